"""Several processes on one search in a real PostgreSQL, started here and thrown away."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from bayesdiv.app.tuning.search import Search, trials, tune
from tests.sharing import together

pytest.importorskip("psycopg", reason="psycopg is not installed")
for program in ("initdb", "pg_ctl"):
    if shutil.which(program) is None:
        pytest.skip(f"PostgreSQL is not installed: no {program} on PATH", allow_module_level=True)


def unprivileged() -> str | None:
    """The user to run PostgreSQL as, which refuses to run as root; None is the one we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of a server, and what stops it."""
    user, port = unprivileged(), free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if user is not None:
            shutil.chown(folder, user)

        def call(*command: str) -> None:
            subprocess.run(
                command, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=60
            )

        call("initdb", "-D", f"{folder}/data", "-U", "bayesdiv", "--auth=trust", "--no-sync")
        options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off"
        call("pg_ctl", "-D", f"{folder}/data", "-l", f"{folder}/log", "-o", options, "-w", "start")

        def stop() -> None:
            if Path(folder, "data", "postmaster.pid").exists():
                call("pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")

        try:
            yield f"postgresql+psycopg://bayesdiv@127.0.0.1:{port}/postgres", stop
        finally:
            stop()


@pytest.fixture
def url(server) -> str:
    return server[0]


def waits_in_the_first_trial(trial: optuna.Trial) -> float:
    """The first to come leaves its process id and waits for its end; the others go on."""
    x = trial.suggest_float("x", 0, 1)
    folder = Path(os.environ["BAYESDIV_TEST_FOLDER"])
    try:
        with open(folder / "waiting", "x") as marker:
            marker.write(f"{trial.number} {os.getpid()}\n")
        time.sleep(600)
    except FileExistsError:
        pass
    with open(folder / f"trial-{trial.number}", "x"):  # raises if it was run before
        time.sleep(0.05)
    return x


def kill_the_one_that_waits(marker: Path) -> None:
    deadline = time.monotonic() + 60
    while not marker.exists() or not marker.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(int(marker.read_text().split()[1]), signal.SIGKILL)


def test_a_search_survives_a_killed_worker_and_counts_every_trial_once(url, tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESDIV_TEST_FOLDER", str(tmp_path))
    search = Search(url, trials=24)
    killer = threading.Thread(target=kill_the_one_that_waits, args=(tmp_path / "waiting",))
    killer.start()
    together(waits_in_the_first_trial, search, 4)
    killer.join()
    best = tune(waits_in_the_first_trial, search)

    found = trials(search)
    lost = int((tmp_path / "waiting").read_text().split()[0])
    assert [tried.number for tried in found if tried.state == "running"] == [lost]
    complete = {tried.number for tried in found if tried.state == "complete"}
    assert 24 <= len(complete) <= 26  # three processes are left, and each may begin the last one
    assert len(found) == len(complete) + 1
    assert lost not in complete
    assert {int(path.name[6:]) for path in tmp_path.glob("trial-*")} == complete
    assert best.value == min(tried.value for tried in found if tried.state == "complete")


def test_a_finished_search_is_not_run_again_and_a_longer_one_goes_on(url):
    calls = []

    def objective(trial: optuna.Trial) -> float:
        calls.append(trial.number)
        return trial.suggest_float("x", 0, 1)

    for wanted in (3, 3, 5):
        tune(objective, Search(url, name="longer", trials=wanted))
    assert calls == [0, 1, 2, 3, 4]


def waits(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", 0, 1)
    (Path(os.environ["BAYESDIV_TEST_FOLDER"]) / f"begun-{trial.number}").touch()
    time.sleep(3)
    return x


def test_a_server_stopped_in_mid_search_is_one_sentence(server, tmp_path, monkeypatch, capfd):
    """The last test of this file: the server does not come back."""
    url, stop = server
    monkeypatch.setenv("BAYESDIV_TEST_FOLDER", str(tmp_path))

    def when_it_is_at_work() -> None:
        while not list(tmp_path.glob("begun-*")):
            time.sleep(0.05)
        stop()

    stopper = threading.Thread(target=when_it_is_at_work)
    stopper.start()
    with pytest.raises(RuntimeError, match=r"stopped answering: .*refused") as caught:
        tune(waits, Search(url, name="stopped", trials=6))
    stopper.join()
    assert "127.0.0.1" in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err
