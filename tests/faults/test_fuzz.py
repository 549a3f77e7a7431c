"""Fuzzers: whatever a file or an argument holds, one sentence or a right answer.

No case may end in a traceback or hang, and none may change a prediction without a word. A few cases
of each kind run by default, 20,000 in all with -m slow.
"""

import functools
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesdiv.app import cli
from bayesdiv.app import training as trainings
from bayesdiv.app.cli import tune
from bayesdiv.training.fit import Diverged
from command import call
from hostile import bytes_of, csv_of, damaged, outcome, rows

FEW, CHUNK, CHUNKS = 25, 500, 8  # 5 kinds of 4,000 cases
KINDS = ("csv", "parquet", "folder", "config", "arguments")
LONG = [
    pytest.param(k, CHUNK, marks=pytest.mark.slow, id=f"chunk{k}") for k in range(1, CHUNKS + 1)
]


@pytest.fixture
def asked(place):
    """Where the files are, and what the undamaged run predicts."""
    assert call("predict", "one", "numbers.csv", "-o", "right.csv") == 0
    rows().to_parquet("numbers.parquet")
    assert call("predict", "one", "numbers.parquet", "-o", "parquet_right.csv") == 0
    return place


def texts(path):
    """The rows of a table as they are written, and what was predicted for each."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False, sep=None, engine="python")
    added = [name for name in frame.columns if name.startswith(("predicted_", "problem"))]
    return frame, added


def same_where_same(path, right):
    """Whether rows with the features of an undamaged one have its predictions."""
    (frame, added), (wanted, known) = texts(path), texts(right)
    features = [name for name in ("a", "b", "colour") if name in wanted.columns]
    if added != known or not set(features) <= set(frame.columns):
        return
    answers = dict(
        zip(*(map(tuple, wanted[each].values) for each in (features, known)), strict=True)
    )
    given = (map(tuple, frame[each].values) for each in (features, known))
    for row, found in zip(*given, strict=True):
        right = answers.get(row, found)
        # Rows in another batch may differ in the last digits of single precision.
        both = [np.double(x[:-1]) for x in (found, right) if "" not in x[:-1]]
        close = len(both) == 2 and np.allclose(*both, 1e-5, 1e-5)
        assert close or right == found, f"{row}: {found}"
        *numbers, problem = found
        assert all(numbers) or problem, f"{row} has no prediction and no reason"


def one_file(r, k, ending, mutated, right):
    path, out = Path(f"case{k}.{ending}"), Path(f"out{k}.csv")
    path.write_bytes(mutated(Path(f"numbers.{ending}").read_bytes(), r))
    if outcome("predict", "one", path, "-o", out)[0] == 0:
        same_where_same(out, right)
        out.unlink()
    path.unlink()


one_csv = functools.partial(one_file, ending="csv", mutated=csv_of, right="right.csv")
one_parquet = functools.partial(
    one_file, ending="parquet", mutated=bytes_of, right="parquet_right.csv"
)


def one_folder(r, k):
    run, out = Path(f"run{k}"), Path(f"out{k}.csv")
    shutil.copytree("one", run)
    path = r.choice(sorted(run.iterdir()))
    kind = r.random()
    if kind < 0.05:
        path.unlink()
    elif kind < 0.1:
        shutil.copy(Path("two", path.name), path)
    else:
        path.write_bytes(damaged(path.name)(path.read_bytes(), r))
    command = r.choice(["predict", "predict", "predict", "show", "evaluate"])
    more = ["numbers.csv", "-o", out] if command == "predict" else []
    code, _ = outcome(command, run, *more)
    optional = all((run / name).exists() for name in ("unlike.json", "calibration.json"))
    if command == "predict" and code == 0 and optional:
        assert out.read_bytes() == Path("right.csv").read_bytes(), f"{path} changed predictions"
        out.unlink()
    shutil.rmtree(run)


CONFIG = {
    "epochs": 3,
    "learning_rate": 0.01,
    "hidden": [8],
    "divergence": "bayesdiv.JSA:0.3",
    "target": "y",
    "noise": 0.1,
    "seed": 1,
}


def one_config(r, k):
    path = Path(f"case{k}.yaml")
    path.write_bytes(damaged("config.json")(json.dumps(CONFIG).encode(), r))
    outcome("train", "numbers.csv", "--out", f"new{k}", "--config", path)
    path.unlink()


WORDS = [
    *("numbers.csv", "one", "two", "nowhere", "", ".", "/", "-", "--", "-o", "--out", "--target"),
    *("y", "a", "--epochs", "--epochs=2", "-1", "0", "1", "1e3", "1e400", "nan", "inf", "--level"),
    *("0.9", "1.5", "--divergence", "KL", "JSA", "JSA:0.3", "JSQ", "JSA:x", "null", "os.system"),
    *("JSA:alpha=0.3", "0.3", "--config", "--hidden", "[8]", "[8,", "8,8", "{}", "--seed"),
    *("99999999999", "--noise", "red:0.5", "red", "--task", "regression", "--members"),
    *("\x00", "\x1b[2J", "\udcff", "é" * 300, "x.csv", "new.csv", "--help", "--seeds", "--data"),
    *("--divergences", "deterministic", "--trials", "--search", "optuna"),
]
COMMANDS = (
    *("train", "compare", "predict", "show", "evaluate", "report", "tune", "calibrate", "export"),
    *("frobnicate", ""),
)


def one_arguments(r, k):
    command = r.choice(COMMANDS)
    given = [r.choice(WORDS) for _ in range(r.randrange(8))]
    if r.random() < 0.5:
        given = [r.choice(["numbers.csv", "one"]), "--out", f"new{k}", *given]
    outcome(command, *given)
    for left in (Path(f"new{k}"), Path("comparisons")):
        shutil.rmtree(left, ignore_errors=True)


CASES = dict(zip(KINDS, (one_csv, one_parquet, one_folder, one_config, one_arguments), strict=True))


def stands_in(*_, **__):
    raise Diverged("training is left out")


@pytest.mark.parametrize(("chunk", "count"), [(0, FEW), *LONG])
@pytest.mark.parametrize("kind", KINDS)
def test_no_case_ends_in_a_traceback_a_hang_or_another_prediction(
    asked, monkeypatch, kind, chunk, count
):
    if kind in ("config", "arguments"):
        monkeypatch.setattr(trainings, "train", stands_in)
        monkeypatch.setattr(tune.tuning, "tune_experiment", stands_in)
        monkeypatch.setattr(tune, "population", stands_in)
    monkeypatch.setattr(cli, "commands", functools.cache(cli.commands))
    monkeypatch.setattr(cli, "parser", functools.cache(cli.parser))  # to make it is half the time
    for k in range(count):
        seed = chunk * 1_000_000 + k
        try:
            CASES[kind](random.Random(seed), k)
        except BaseException as error:
            error.add_note(f"case {kind} {seed}")
            raise
