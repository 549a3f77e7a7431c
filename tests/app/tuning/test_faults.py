"""Searches whose callers are ended, whose database goes away, whose clock was wrong."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest

from bayesdiv.app.tuning.search import Search, opened, trials, tune

# Tests ask a study for trials outside of `optimize`.
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
        with contextlib.suppress(sqlite3.OperationalError):  # not there yet
            reading = sqlite3.connect(f"file:{search.storage}?mode=ro", uri=True, timeout=60)
            with contextlib.closing(reading) as database:
                return len(database.execute("SELECT * FROM trial_params").fetchall()) == 2
        return False

    try:
        until(at_work)
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=90)
    finally:
        child.kill()
    assert child.returncode == 143
    assert "stopped by SIGTERM; the same command resumes it" in said
    assert "Traceback" not in said
    states = [tried.state for tried in trials(search)]
    assert states == ["stopped"]


def at_sleep(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0, 1)


def test_the_trial_of_a_killed_process_does_not_block_a_search(tmp_path):
    search = Search(tmp_path / "s.db", trials=2)
    with opened(search) as study:
        study.ask().suggest_float("x", 0, 1)  # and is never heard of again
    tune(at_sleep, search)
    found = trials(search)
    assert [tried.state for tried in found] == ["stopped", "complete", "complete"]
    assert found[1].settings == found[0].settings


def test_the_given_settings_are_tried_again_after_a_kill_in_the_first_trial(tmp_path):
    search = Search(tmp_path / "s.db", trials=2)
    with opened(search) as study:
        study.enqueue_trial({"x": 0.125})
        study.ask()  # killed before it reads its settings
    tune(at_sleep, search, start={"x": 0.125})
    assert [tried.settings for tried in trials(search)][:2] == [{}, {"x": 0.125}]


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
    return 1.0


def test_a_database_gone_in_mid_search_is_one_sentence_that_names_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("BAYESDIV_TEST_FOLDER", str(tmp_path))
    search = Search(tmp_path / "s.db", trials=4)
    with pytest.raises(RuntimeError, match="no such table") as caught:
        tune(spoils, search)
    sentence = str(caught.value)
    assert sentence.startswith(f"the database sqlite:///{tmp_path}/s.db stopped answering: ")
    assert "the same call resumes once it is back" in sentence
    assert "\n" not in sentence
    assert "Traceback" not in capfd.readouterr().err
