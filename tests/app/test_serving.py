"""Runs as files: what the command writes, prints and refuses, and a server that answers."""

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

from bayesdiv.app.data.columns import Encoder
from bayesdiv.app.settings import restore, task_of
from bayesdiv.app.task import Task
from bayesdiv.draws import draw_weights
from bayesdiv.prediction import predict_at
from bayesdiv.predictive import Predictive
from command import call
from serving.running import runner

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two runs on raw columns, of classes and of a quantity far from 0, and their rows."""
    folder = tmp_path_factory.mktemp("served")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 60), "town": rng.choice(["Oslo", "Rome"], 60)})
    frame["when"] = 1.7e9 + frame["age"] + rng.normal(0, 3, 60)
    rows = folder / "rows.csv"
    frame.to_csv(rows, index=False)
    assert call("train", rows, "--epochs", 3, "--out", folder / "run", "--target", "town") == 0
    assert call("train", rows, "--epochs", 3, "--out", folder / "quantity") == 0
    return folder, frame


def kept(folder: Path, rows: pd.DataFrame, samples: int) -> tuple[Predictive, Task]:
    """What the draws of a file predict for rows of a table, from the run itself."""
    experiment, told = restore(folder)
    torch.manual_seed(experiment.training.seed)
    weights = draw_weights(experiment.model, samples)
    x = Encoder.from_json(told["encoder"]).encode(rows)
    found = predict_at(experiment.model, experiment.likelihood, x, weights)
    return found, task_of(told)


def test_a_run_of_classes_becomes_a_file_of_raw_columns(run, capsys):
    folder, frame = run
    path = folder / "run.pt2"
    assert call("export", folder / "run", path, "--samples", 4) == 0
    said = capsys.readouterr().out
    assert "MB, probabilities, entropy" in said
    assert "inputs: 2 numbers per row; the file's metadata lists them" in said
    assert "validation NLL" in said
    found = runner(path)(torch.tensor(frame[["age", "when"]].to_numpy()))
    wanted, _ = kept(folder / "run", frame, 4)
    assert (found["probabilities"] - wanted.probabilities).abs().max() < 1e-5


def test_the_metadata_of_a_run_tell_numbers_from_categories(tmp_path):
    rows = pd.DataFrame({"c": ["x", "y"] * 30, "d": pd.date_range("2024-01-01", periods=60)})
    rows.assign(n=np.sin(range(60)), y=np.cos(range(60))).to_csv(tmp_path / "rows.csv", index=False)
    assert call("train", tmp_path / "rows.csv", "--epochs", 1, "--out", tmp_path / "run") == 0
    assert call("export", tmp_path / "run", tmp_path / "run.pt2", "--samples", 2) == 0
    extra = {"bayesdiv.json": ""}
    torch.export.load(tmp_path / "run.pt2", extra_files=extra)
    columns = json.loads(extra["bayesdiv.json"])["columns"]
    assert [column["kind"] for column in columns] == ["category", "number", "number"]


@pytest.mark.slow
def test_a_run_on_small_pictures_in_a_table_becomes_a_file_of_their_columns(tmp_path):
    quick = ("--epochs", 1, "--test_samples", 5)
    assert call("train", "digits", *quick, "--out", tmp_path / "run") == 0
    assert call("export", tmp_path / "run", tmp_path / "run.onnx", "--samples", 4) == 0
    pixels = load_digits(as_frame=True).data[:20]
    found = runner(tmp_path / "run.onnx")(torch.tensor(pixels.to_numpy()))
    wanted, _ = kept(tmp_path / "run", pixels, 4)
    assert (found["probabilities"] - wanted.probabilities).abs().max() < 1e-5


def test_a_run_of_a_quantity_becomes_a_file_in_its_units(run):
    folder, frame = run
    path = folder / "quantity.onnx"
    assert call("export", folder / "quantity", path, "--samples", 4, "--level", 0.8) == 0
    raw = np.column_stack([frame["age"], frame["town"] == "Rome"]).astype(np.float64)
    found = runner(path)(torch.from_numpy(raw))
    wanted, task = kept(folder / "quantity", frame, 4)
    columns = task.columns(wanted, 0.8)
    for name in ("mean", "scale", "low", "high"):
        off = (found[name] - columns[f"predicted_{name}"]).abs().max()
        assert off < 1e-5 * columns["predicted_scale"].max()  # of seconds since 1970


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "rows.csv"], "exists already"),
        (["run", "net.txt"], "path must end in .onnx or .pt2"),
        (["run", "net.txt", "--data", "moved.csv"], "path must end in .onnx or .pt2"),
        (["run", "net.pt2", "--data", "moved.csv", "--level", "2"], "level must lie inside (0, 1)"),
        (["nothing", "net.pt2"], "there is no run"),
        (["run", "net.pt2", "--precision", "int4"], "precision must be one of"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(run, arguments, sentence, capsys, monkeypatch):
    monkeypatch.chdir(run[0])
    assert call("export", *arguments) == 2
    said = capsys.readouterr().err
    assert sentence in " ".join(said.split())
    assert said.startswith("bayesdiv: ")
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_server_of_the_example_answers_a_client(run):
    folder, frame = run
    path = folder / "served.onnx"
    arguments = ("--samples", 4, "--precision", "int8", "--among", 20)
    assert call("export", folder / "quantity", path, *arguments) == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, ROOT / "examples/serve.py", path, str(port)])
    try:
        rows = [[float(frame["age"][k]), float(frame["town"][k] == "Rome")] for k in range(5)]
        request = urllib.request.Request(f"http://127.0.0.1:{port}", json.dumps(rows).encode())
        answer = json.loads(_answered(request))
    finally:
        server.terminate()
        server.wait()
    found = runner(path)(torch.tensor(rows, dtype=torch.float64))
    assert set(answer) == set(found)
    for name, values in found.items():
        assert answer[name] == pytest.approx(values.tolist(), rel=1e-12)


def _answered(request: urllib.request.Request) -> bytes:
    """What the server says, once it listens."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return bytes(reply.read())
        except ConnectionRefusedError:
            time.sleep(0.2)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.2)
    raise AssertionError("the server does not listen")
