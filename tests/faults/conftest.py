"""A table and a finished run that tests copy and damage."""

import shutil
from pathlib import Path

import pytest

from bayesdiv.app import console
from command import call
from hostile import QUICK, rows


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A folder with numbers.csv and the calibrated runs one and two, which differ in their seed."""
    folder = tmp_path_factory.mktemp("finished")
    rows().to_csv(folder / "numbers.csv", index=False)
    for name, seed in (("one", 0), ("two", 1)):
        data = folder / "numbers.csv"
        assert call("train", data, "--seed", seed, "--out", folder / name, *QUICK) == 0
        for kind in ("spread", "conformal"):
            assert call("calibrate", folder / name, "--kind", kind) == 0
    return folder


@pytest.fixture
def place(finished, tmp_path, monkeypatch) -> Path:
    """A copy of it to damage, and to be in."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for one in (console.output, console.errors):
        monkeypatch.setattr(one, "width", 200)
    return tmp_path


@pytest.fixture
def refused(capsys):
    """What a command that must refuse says, in one sentence on stderr."""

    def told(*arguments: object, code: int = 2) -> str:
        capsys.readouterr()
        assert call(*arguments) == code
        said = " ".join(capsys.readouterr().err.split())
        assert said.count("bayesdiv: ") == 1
        assert "Traceback" not in said
        return said

    return told
