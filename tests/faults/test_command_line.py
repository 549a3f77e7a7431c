"""The command line under bad luck: rare classes, signals, hostile files, mistakes of ours."""

import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesdiv import __main__ as entry
from bayesdiv.app import cli, runs
from bayesdiv.app import training as trainings
from bayesdiv.app.cli import show
from bayesdiv.app.extra import Terminated
from command import call
from hostile import QUICK, rows

TRAIN = ("train", "numbers.csv", "--out", "new", *QUICK)


# A class that is rare ------------------------------------------------------------------------


@pytest.fixture
def rare(place):
    """Four of 60 rows are ill, so that the test part has none."""
    frame = rows().drop(columns="y")
    frame["state"] = np.where(np.arange(60) < 4, "ill", "well")
    frame["state"] = frame["state"].map({"ill": "z_ill", "well": "a_well"})  # ill is class 1
    frame.to_csv("rare.csv", index=False)
    return place


def test_a_metric_that_a_part_lacks_is_shown_as_such_everywhere(rare, capsys):
    found = set()
    for seed in range(2):
        assert call("train", "rare.csv", "--seed", seed, "--out", f"run{seed}", *QUICK) == 0
        result = runs.read_json(Path(f"run{seed}/metrics.json"))
        found |= {part for part in ("test", "validation") if "false_negative_rate" in result[part]}
        for command in ("show", "evaluate"):
            assert call(command, f"run{seed}") == 0
    assert found != {"test", "validation"}
    assert "–" in capsys.readouterr().out
    assert call("report", "run0", "-o", "page.html") == 0
    assert call("compare", "rare.csv", "--divergences", "KL", "--seeds", 2, *QUICK) == 0


def test_parts_with_and_without_a_metric_stand_in_one_table(capsys):
    from bayesdiv.app.console import print_metrics

    print_metrics({"validation": {"nll": 1.0}, "test": {"nll": 2.0, "false_negative_rate": 0.5}})
    validation, test = capsys.readouterr().out.splitlines()[-2:]
    assert validation.split() == ["validation", "1.000", "–"]
    assert test.split() == ["test", "2.000", "0.500"]


# Mistakes of ours ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [KeyError("x"), AssertionError(), IndexError("i"), StopIteration()]
)
def test_an_unexpected_failure_is_one_sentence_and_a_traceback_in_a_file(
    place, refused, monkeypatch, error
):
    def fails(_):
        raise error

    monkeypatch.setattr(show, "show", fails)
    said = refused("show", "one", code=70)
    assert type(error).__name__ in said
    path = Path(re.search(r"report it and attach (\S+), which", said)[1])
    assert "Traceback" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    path.unlink()


def test_too_little_memory_is_one_sentence(place, refused, monkeypatch):
    def fails(_):
        raise MemoryError

    monkeypatch.setattr(show, "show", fails)
    assert "not enough memory" in refused("show", "one")


# Signals -------------------------------------------------------------------------------------


def test_sigterm_writes_the_checkpoint_and_one_sentence(place, refused, monkeypatch):
    def after(self, epoch, validation, whole=trainings.Keeper.after):
        whole(self, epoch, validation)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(trainings.Keeper, "after", after)
        said = refused(*TRAIN, code=143)
    assert said.endswith("bayesdiv: stopped by SIGTERM; the same command resumes it")
    assert signal.getsignal(signal.SIGTERM) is before
    assert runs.load_state(Path("new/checkpoint.safetensors"), {})["epoch"] == 1
    assert not Path("new/.lock").exists()
    assert call(*TRAIN) == 0


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_a_stop_during_imports_is_one_sentence(monkeypatch, capsys, stop, code):
    def interrupted(_):
        raise stop

    monkeypatch.setattr(cli, "main", interrupted)
    with pytest.raises(SystemExit) as end:
        entry.main(["show", "one"])
    assert end.value.code == code
    by = " by SIGTERM" * (stop is Terminated)
    assert capsys.readouterr().err == f"bayesdiv: stopped{by}\n"


@pytest.mark.parametrize("file", ["comparison.html", "comparison.json"])
def test_a_comparison_that_was_killed_while_writing_is_made_again(place, monkeypatch, file):
    compare = ("compare", "numbers.csv", "--divergences", "KL", "--seeds", 1, "--out", "c", *QUICK)

    def killed(path, content, whole=runs.write):
        if path.name == file:
            raise KeyboardInterrupt
        whole(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "write", killed)
        assert call(*compare) == 130
    if file == "comparison.json":  # the numbers come last and mark the end
        assert [path.name for path in Path("c").iterdir()] == ["comparison.html"]
        assert call(*compare) == 0
    assert Path("c/comparison.json").exists()
    assert call(*compare) == 2


# Names ---------------------------------------------------------------------------------------


def test_names_cannot_steer_a_terminal(place, capsys):
    evil = "y\x1b]0;owned\x07\x1b[2J\u202e"
    rows().rename(columns={"y": evil}).to_csv("evil.csv", index=False)
    assert call("train", "evil.csv", "--out", "e\x1b[31m", *QUICK) == 0
    assert call("show", "e\x1b[31m") == 0
    assert call("train", "evil.csv", "--target", "\x1b[2J", "--out", "f", *QUICK) == 2
    assert call("train", "\udcff.csv", "--out", "f", *QUICK) == 2
    out, err = capsys.readouterr()
    for text in (out, err):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", text)
    assert "y\\x1b]0;owned" in out


# Configs -------------------------------------------------------------------------------------


@pytest.fixture
def trap(place, monkeypatch):
    """A module that leaves a trace when it is imported."""
    Path("trap_of_ours.py").write_text(
        "from pathlib import Path\nfrom bayesdiv import KL\nPath('trace').touch()\n"
        "class Twice(KL):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(place))
    yield "trap_of_ours.Twice"
    sys.modules.pop("trap_of_ours", None)


@pytest.mark.parametrize("form", ["divergence: {}", "divergence:\n  class_path: {}"])
@pytest.mark.parametrize("option", ["--config", "--conf", "--config="])
def test_a_config_cannot_have_code_of_others_imported(trap, refused, form, option):
    Path("c.yaml").write_text(form.format(trap))
    given = [f"{option}c.yaml"] if option.endswith("=") else [option, "c.yaml"]
    said = refused(*TRAIN, *given)
    assert not Path("trace").exists()
    if option != "--conf" or "must not name code" in said:
        assert "a config must not name code outside bayesdiv, got trap_of_ours.Twice" in said


def test_code_of_others_is_imported_when_the_command_line_names_it(trap):
    Path("c.yaml").write_text("epochs: 1")
    assert call(*TRAIN, "--config", "c.yaml", "--divergence", trap) == 0
    assert Path("trace").exists()


def bomb():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 10)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (bomb(), "without YAML aliases"),
        (b"\xff\xfe\x00", "c.yaml must be UTF-8 text"),
        (b"[" * 5000, "at most 500 brackets"),
        (b"a: " + b"x" * (1 << 20), "c.yaml must have at most"),
        (b"epochs: 1\nhidden: [1", "is not valid YAML in line 2 (expected ',' or ']', but got"),
        (b"epochs: \x01", "c.yaml is not valid YAML (it holds control characters): correct it"),
        (b"epochs: !!python/object/apply:os.system [true]", "c.yaml is not valid YAML in line 1 ("),
        (b"epochs: many", "epochs must be a whole number, got many"),
        (b"epochs: [1, 2]", "epochs must be"),
        (b"hidden: {a: 1}", "hidden must be"),
        (b"- 1", "bayesdiv"),
    ],
)
def test_a_hostile_config_is_one_sentence(place, refused, content, words):
    Path("c.yaml").write_bytes(content)
    said = refused(*TRAIN, "--config", "c.yaml")
    assert words in said
    assert "Union" not in said
    assert "codec" not in said


def test_a_name_that_no_file_can_have_is_one_sentence(place, refused):
    for given in (["--config", "é" * 300], ["--out", "é" * 300]):
        assert "File name too long" in refused("train", "numbers.csv", *given, *QUICK)
    assert "File name too long" in refused("show", "é" * 300)


def test_a_pipe_as_a_config_is_not_waited_for(place, refused):
    os.mkfifo("c.yaml")
    assert "must be an ordinary file" in refused(*TRAIN, "--config", "c.yaml")


# Files that are larger inside ----------------------------------------------------------------


def test_a_parquet_file_with_more_cells_than_memory_is_not_read(place, refused, monkeypatch):
    pd.DataFrame({"a": [0.0], "b": [0.0]}).sample(10**5, replace=True).to_parquet("t.parquet")
    monkeypatch.setattr("bayesdiv.app.data.files.memory", lambda: 10**6)
    said = refused("train", "t.parquet", "--out", "new", *QUICK)
    assert "t.parquet must fit into memory, got 100,000 rows of" in said


def test_a_parquet_file_whose_notes_are_broken_is_one_sentence(place, refused):
    rows().to_parquet("t.parquet")
    whole = Path("t.parquet").read_bytes()
    Path("t.parquet").write_bytes(whole.replace(b"pandas_type", b"pandas_tipe"))
    assert "must be a Parquet file" in refused("predict", "one", "t.parquet", "-o", "out.csv")


def test_text_that_is_not_utf_8_is_one_sentence_without_codecs(place, refused):
    Path("latin.csv").write_bytes("a,größe\n1,2\n".encode("latin-1"))
    said = refused("train", "latin.csv", "--out", "new", *QUICK)
    assert "latin.csv must be UTF-8 text" in said
    assert "codec" not in said


def test_a_table_that_is_a_pipe_is_not_waited_for(place, refused):
    os.mkfifo("pipe.csv")
    assert "must be an ordinary file" in refused("train", "pipe.csv", "--out", "new", *QUICK)


def test_a_spreadsheet_that_is_larger_inside_than_memory_is_not_read(place, refused, monkeypatch):
    rows().to_excel("t.xlsx", index=False)
    monkeypatch.setattr("bayesdiv.app.data.files.memory", lambda: 10**5)
    said = refused("train", "t.xlsx", "--out", "new", *QUICK)
    assert "t.xlsx must hold at most 2,000 bytes unpacked, got" in said


def test_a_zip_file_that_is_larger_inside_than_its_table_is_refused(tmp_path, monkeypatch):
    from zipfile import ZIP_DEFLATED, ZipFile

    from bayesdiv.app.data.uci import Source

    monkeypatch.setattr("bayesdiv.app.data.uci._MOST_BYTES", 1 << 16)
    with ZipFile(tmp_path / "bomb.zip", "w", ZIP_DEFLATED) as archive:
        archive.writestr("data.csv", b"0" * (1 << 20))
    with pytest.raises(ValueError, match="must hold at most"):
        Source("place", (0,), member="data.csv").numbers(tmp_path / "bomb.zip")


def test_a_whole_disk_in_the_place_of_a_folder_of_pictures_is_not_walked(
    place, refused, monkeypatch
):
    for name in ("a/b/c", "a/d", "e"):
        Path("disk", name).mkdir(parents=True)
    monkeypatch.setattr("bayesdiv.app.data.images.MOST_FOLDERS", 3)
    said = refused("train", "disk", "--out", "new", *QUICK)
    assert "must hold at most 3 folders, got more in disk:" in said
