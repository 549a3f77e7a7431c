"""Searches whose callers are ended, whose database goes away, whose clock was wrong."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from bayesdiv.app.tuning import study as studies
from bayesdiv.app.tuning import workers
from bayesdiv.app.tuning.search import Search
from bayesdiv.app.tuning.study import opened

# Tests ask a study for trials outside of `optimize`, and catching warnings is not for threads.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def until(condition, seconds=300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_sigterm_ends_the_command_with_one_sentence(tmp_path):
    """As batch systems and containers send it; the same command goes on."""
    options = ["--search", "optuna", "--trials", "9", "--epochs", "2000", "--divergence", "KL"]
    command = [sys.executable, "-m", "bayesdiv", "tune", "diabetes", *options, "--out", "t"]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    search = Search(tmp_path / "t" / "search.db", "diabetes-KL")

    def at_work() -> bool:
        there = search.storage.exists()
        return there and [t.state for t in studies.trials(search)].count("running") == 1

    try:
        until(at_work)
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=90)
    finally:
        child.kill()
    assert child.returncode == 143
    assert "stopped by SIGTERM; the same command resumes it" in said
    assert "Traceback" not in said
    states = [tried.state for tried in studies.trials(search)]
    assert sorted(states) == ["stopped"] + ["waiting"] * 9


def at_sleep(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0, 1)


@pytest.mark.parametrize("hours", [1, 24 * 365])
def test_a_heartbeat_from_the_future_does_not_block_a_search(hours, tmp_path):
    """A worker was killed, and then the clock was set back."""
    search = Search(tmp_path / "s.db", trials=2, heartbeat=1)
    with opened(search) as study:
        studies.plan(study, 2, None)
        study.ask().suggest_float("x", 0, 1)
    database = sqlite3.connect(tmp_path / "s.db")
    with database:
        beats = database.execute(
            "UPDATE trial_heartbeats SET heartbeat = datetime('now', ?)", (f"+{hours} hours",)
        )
        assert beats.rowcount == 1
    database.close()
    workers.tune(at_sleep, search)
    found = studies.trials(search)
    assert [tried.state for tried in found] == ["failed", "complete", "complete"]
    assert found[2].retry_of == 0
    assert found[2].settings == found[0].settings


def test_a_worker_killed_before_its_first_heartbeat_is_missed_too(tmp_path):
    search = Search(tmp_path / "s.db", trials=1, heartbeat=1)
    with opened(search) as study:
        studies.plan(study, 1, None)
        study.ask()  # claims, and starts no thread that would beat
    workers.tune(at_sleep, search)
    assert [tried.state for tried in studies.trials(search)] == ["failed", "complete"]


def test_a_stop_that_is_no_ctrl_c_leaves_the_trial_waiting_too(tmp_path):
    """Raises the exit with which a command line ends on SIGTERM."""

    def ends(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        raise SystemExit(143)

    search = Search(tmp_path / "s.db", trials=1)
    with pytest.raises(SystemExit):
        workers.tune(ends, search)
    found = studies.trials(search)
    assert [tried.state for tried in found] == ["stopped", "waiting"]
    assert found[1].settings == found[0].settings


# Filters of warnings belong to the process: threads restore them in each other's way.
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_two_callers_at_once_run_no_more_trials_than_wanted(tmp_path):
    """Both find none and plan; what one of them planned too many is left out of the list."""
    search, errors = Search(tmp_path / "s.db", trials=6), []

    def call() -> None:
        try:
            workers.tune(at_sleep, search)
        except Exception as error:
            errors.append(error)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert errors == []
    assert [tried.state for tried in studies.trials(search)].count("complete") == 6


def spoils(trial: optuna.Trial) -> float:
    """The database loses its tables in mid-trial, as when its file is replaced."""
    trial.suggest_float("x", 0, 1)
    if trial.number == 1:
        database = sqlite3.connect(Path(os.environ["BAYESDIV_TEST_FOLDER"]) / "s.db", timeout=60)
        with database:
            for (name,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                database.execute(f"DROP TABLE {name}")
        database.close()
        time.sleep(1.5)  # a heartbeat falls into it
    return 1.0


def test_a_database_gone_in_mid_search_is_one_sentence_that_names_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("BAYESDIV_TEST_FOLDER", str(tmp_path))
    search = Search(tmp_path / "s.db", trials=4, heartbeat=1)
    with pytest.raises(RuntimeError, match="no such table") as caught:
        workers.tune(spoils, search)
    sentence = str(caught.value)
    assert sentence.startswith(f"the database sqlite:///{tmp_path}/s.db stopped answering: ")
    assert "the same call resumes once it is back" in sentence
    assert "\n" not in sentence
    assert "Traceback" not in capfd.readouterr().err


def test_a_trial_of_another_tool_is_not_counted(tmp_path):
    """Optuna's own `optimize` on the same study adds trials that were not planned."""
    search = Search(tmp_path / "s.db", trials=2)
    with opened(search) as study:
        study.optimize(at_sleep, n_trials=1)
        assert study.get_trials()[0].state == TrialState.COMPLETE
    workers.tune(at_sleep, search)
    assert [tried.number for tried in studies.trials(search)] == [1, 2]
