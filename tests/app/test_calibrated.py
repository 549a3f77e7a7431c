"""Runs that were calibrated: kept in the folder, applied by every command, kept by export."""

import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize_scalar

from bayesdiv.app import calibrated, runs
from bayesdiv.app.data.columns import Encoder
from bayesdiv.app.settings import outline, restore, task_of
from bayesdiv.app.task import Task
from bayesdiv.prediction import predict_at
from command import call
from serving.running import runner

QUICK = ("--epochs", 3, "--test_samples", 5, "--members", 2, "--samples", 1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of numbers and one of classes, and rows that they have not seen."""
    folder = tmp_path_factory.mktemp("calibrated")
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 157))
    frame = pd.DataFrame({"a": a, "b": b})
    numbers = frame.assign(y=100 + 10 * a + rng.normal(0, 5, 157))
    classes = frame.assign(y=np.array(["no", "so so", "yes"])[np.digitize(a + b, [-0.5, 0.5])])
    for name, table in (("numbers", numbers), ("classes", classes)):
        table[:100].to_csv(folder / f"{name}.csv", index=False)
        table[100:].to_csv(folder / f"{name}_held.csv", index=False)
        assert call("train", folder / f"{name}.csv", "--out", folder / name, *QUICK) == 0
    return folder


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A copy to calibrate, and to be in."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def predicted(run, level=0.9):
    """The table of `bayesdiv predict` for the held-out rows."""
    Path("out.csv").unlink(missing_ok=True)
    assert call("predict", run, f"{run}_held.csv", "-o", "out.csv", "--level", level) == 0
    return pd.read_csv("out.csv")


def held(run: str) -> tuple[torch.Tensor, torch.Tensor, Task]:
    _, told = restore(Path(run))
    frame, task = pd.read_csv(f"{run}_held.csv"), task_of(told)
    return Encoder.from_json(told["encoder"]).encode(frame), task.encode(frame["y"]), task


def test_intervals_of_a_calibrated_run_hold_as_many_held_out_rows_as_the_rank_says(place, capsys):
    before = predicted("numbers")
    assert call("calibrate", "numbers", "numbers_held.csv") == 0
    said = capsys.readouterr().out
    assert "conformal intervals for levels up to 0.9827, fitted to 57 rows" in said
    for level in (0.5, 0.9):
        found = predicted("numbers", level)
        inside = (found.predicted_low <= found.y) & (found.y <= found.predicted_high)
        assert inside.sum() == math.ceil(58 * level)
    assert "calibrated: conformal" in capsys.readouterr().out
    assert np.array_equal(found.predicted_mean, before.predicted_mean)
    assert call("evaluate", "numbers", "numbers_held.csv") == 0
    assert f"{math.ceil(58 * 0.9) / 57:.3f}" in capsys.readouterr().out
    assert call("show", "numbers") == 0
    assert "conformal" in capsys.readouterr().out
    Path("numbers", calibrated.FILE).unlink()
    assert predicted("numbers").equals(before)


def test_a_level_that_the_calibration_is_too_small_for_is_noted(place, capsys):
    pd.read_csv("classes_held.csv")[:4].to_csv("few.csv", index=False)
    pd.read_csv("numbers_held.csv")[:4].to_csv("fewer.csv", index=False)
    assert call("calibrate", "classes", "few.csv") == 0
    assert call("calibrate", "numbers", "fewer.csv") == 0
    capsys.readouterr()
    for run, what in (("classes", "set holds all classes"), ("numbers", "interval is infinite")):
        predicted(run, 0.9)
        said = " ".join(capsys.readouterr().err.split())
        assert f"which serve levels up to 0.8; at level 0.9 every {what}" in said
        assert "calibrate with at least 9 rows" in said
        predicted(run, 0.8)
        assert "serve levels" not in capsys.readouterr().err
    assert call("evaluate", "numbers", "numbers_held.csv") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "at level 0.9 every interval is infinite: calibrate with at least 9 rows" in said
    assert call("evaluate", "classes", "classes_held.csv") == 0
    assert "serve levels" not in capsys.readouterr().err


def test_sets_of_a_calibrated_run_hold_enough_held_out_rows(place):
    assert call("calibrate", "classes", "classes_held.csv") == 0
    found = predicted("classes", 0.8)
    sets = [set(text.split(" | ")) for text in found.predicted_set]
    assert sum(y in each for y, each in zip(found.y, sets, strict=True)) >= math.ceil(58 * 0.8)
    assert all(y in each for y, each in zip(found.predicted_class, sets, strict=True))
    assert any(len(each) < 3 for each in sets)


def test_a_temperature_is_that_of_least_nll_and_changes_what_the_run_predicts(place, capsys):
    x, y, _ = held("classes")
    logits = restore(Path("classes"))[0].predict(x).conditional.logits.double()

    def nll(temperature):
        each = (logits / temperature).softmax(-1).mean(0)
        return -each[torch.arange(len(y)), y].log().mean().item()

    best = minimize_scalar(nll, bounds=(0.01, 100.0), method="bounded").x
    assert call("calibrate", "classes", "classes_held.csv", "--kind", "temperature") == 0
    experiment, _ = restore(Path("classes"))
    (cooler,) = experiment.calibration
    assert cooler.value == pytest.approx(best, rel=1e-3)
    assert f"temperature {cooler.value:.4g}, fitted to 57 rows" in capsys.readouterr().out
    assert -experiment.predict(x).log_prob(y).mean().item() == pytest.approx(nll(best), abs=1e-5)


def test_a_spread_scales_the_draws_around_the_means_of_their_members(place):
    x, y, _ = held("numbers")
    plain, _ = restore(Path("numbers"))
    drawn = plain.drawn(6)
    again = predict_at(plain.model, plain.likelihood, plain.inputs(x), plain.drawn(5))
    assert torch.equal(again.mean, plain.predict(x).mean)  # they are the draws of a prediction
    before = -plain.predict(x, samples=6).log_prob(y).mean()
    assert call("calibrate", "numbers", "numbers_held.csv", "--kind", "spread") == 0
    experiment, _ = restore(Path("numbers"))
    (spread,) = experiment.calibration
    means = experiment.model.network.posterior.each.mean.repeat(3, 1)  # members take turns
    wanted = means + spread.factor * (drawn[0] - means)
    assert torch.allclose(experiment.drawn(6)[0], wanted, atol=1e-6)
    assert torch.allclose(experiment.drawn(5)[0], wanted[:5], atol=1e-6)
    assert -experiment.predict(x, samples=6).log_prob(y).mean() < before
    assert experiment.predict(x, samples=3).samples == 3


def test_what_is_fitted_anew_drops_what_was_fitted_on_top_of_it(place):
    for kind in ("spread", "temperature", "conformal"):
        assert call("calibrate", "classes", "classes_held.csv", "--kind", kind) == 0
    assert calibrated.named(calibrated.read(Path("classes"))) == "spread, temperature, conformal"
    assert call("calibrate", "classes", "classes_held.csv", "--kind", "temperature") == 0
    assert calibrated.named(calibrated.read(Path("classes"))) == "spread, temperature"


def test_without_a_file_the_test_rows_of_the_run_are_taken(place, capsys):
    assert call("calibrate", "numbers") == 0
    out, err = capsys.readouterr()
    assert "fitted to 20 rows" in out
    assert "fitted to the test rows" in err


@pytest.mark.parametrize("run", [pytest.param("numbers", marks=pytest.mark.slow), "classes"])
def test_an_exported_run_keeps_its_calibration(place, run):
    kinds = {"numbers": ("spread", "conformal"), "classes": ("spread", "temperature", "conformal")}
    for kind in kinds[run]:
        assert call("calibrate", run, f"{run}_held.csv", "--kind", kind) == 0
    level = 0.7
    wanted = predicted(run, level)
    assert call("export", run, "run.pt2", "--samples", 5, "--level", level) == 0
    raw = pd.read_csv(f"{run}_held.csv")[["a", "b"]].to_numpy()
    found = {name: v.numpy() for name, v in runner(Path("run.pt2"))(torch.from_numpy(raw)).items()}
    if run == "numbers":
        scale = wanted.predicted_scale.max()
        for name in ("low", "high"):
            off = np.abs(found[f"conformal_{name}"] - wanted[f"predicted_{name}"]).max()
            assert off < 1e-5 * scale
    else:
        for k, name in enumerate(("no", "so so", "yes")):
            off = np.abs(found["probabilities"][:, k] - wanted[f"probability_{name}"]).max()
            assert off < 1e-5
            member = [name in text.split(" | ") for text in wanted.predicted_set]
            assert np.mean(found["conformal_set"][:, k] != member) < 0.02  # but for ties
    extra = {"bayesdiv.json": ""}
    torch.export.load("run.pt2", extra_files=extra)
    kept = [state["kind"] for state in json.loads(extra["bayesdiv.json"])["calibration"]]
    last = {"numbers": "Intervals", "classes": "Sets"}[run]
    assert kept == [*(kind.title() for kind in kinds[run][:-1]), last]


def test_fewer_draws_in_a_file_than_in_the_calibration_are_said(place, capsys):
    assert call("calibrate", "numbers", "numbers_held.csv") == 0
    assert call("export", "numbers", "run.pt2", "--samples", 2) == 0
    assert "give --samples 5 to keep it" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_text(path.read_text().replace("0.", "1.", 1)), "is damaged"),
        (lambda path: path.write_text("{}"), "is damaged"),
        (lambda path: path.write_bytes(b"\xff"), "is damaged"),
        (lambda path: shutil.copy("classes/calibration.json", path), "it is of another run"),
    ],
)
def test_a_calibration_that_is_damaged_or_of_another_run_is_refused(place, capsys, damage, words):
    for run in ("numbers", "classes"):
        assert call("calibrate", run, f"{run}_held.csv") == 0
    damage(Path("numbers", calibrated.FILE))
    capsys.readouterr()
    assert call("predict", "numbers", "numbers.csv", "-o", "out.csv") == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["numbers", "--kind", "temperature"], "a temperature needs targets that are classes"),
        (["numbers", "--kind", "platt"], "kind must be one of"),
        (["numbers", "bare.csv"], "bare.csv must have the target 'y'"),
        (["nowhere"], "there is no run nowhere"),
    ],
)
def test_what_cannot_be_calibrated_is_one_sentence(place, capsys, arguments, words):
    pd.read_csv("numbers.csv").drop(columns="y").to_csv("bare.csv", index=False)
    assert call("calibrate", *arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert words in said
    assert said.startswith("bayesdiv: ")
    assert said.count("bayesdiv: ") == 1
    assert not Path("numbers", calibrated.FILE).exists()


def test_a_run_that_is_being_written_is_not_calibrated(place, capsys):
    with runs.owned(Path("numbers")):
        assert call("calibrate", "numbers", "numbers_held.csv") == 2
    assert f"is being written by process {os.getpid()}" in capsys.readouterr().err


def test_rows_that_the_run_was_trained_on_are_no_rows_to_calibrate_by(place, capsys):
    assert call("calibrate", "numbers", "numbers_held.csv") == 0
    assert "trained on" not in capsys.readouterr().err
    assert call("calibrate", "numbers", "numbers.csv") == 0
    said = capsys.readouterr().err
    assert f"rows that the run was trained on: {outline(Path('numbers'))[1]['num_data']}" in said
    Path("numbers.csv").unlink()  # then nobody can know
    assert call("calibrate", "numbers", "numbers_held.csv") == 0


def test_rows_that_an_earlier_calibration_used_are_noted(place, capsys):
    told = "an earlier calibration was fitted to these very rows"
    assert call("calibrate", "numbers", "numbers_held.csv", "--kind", "spread") == 0
    assert call("calibrate", "numbers", "numbers_held.csv", "--kind", "spread") == 0
    assert told not in capsys.readouterr().err
    assert call("calibrate", "numbers", "numbers_held.csv") == 0
    assert told in capsys.readouterr().err


def test_rows_that_a_calibration_was_fitted_to_are_not_called_new(place, capsys):
    assert call("calibrate", "numbers", "numbers_held.csv") == 0
    out, err = capsys.readouterr()
    assert "fitted" in out
    assert "new" not in out
    assert "fitted to the rows of numbers_held.csv" in err
    assert call("evaluate", "numbers", "numbers_held.csv") == 0
    assert "calibrated with these very rows" in capsys.readouterr().err
    assert call("evaluate", "numbers", "numbers.csv") == 0
    assert "these very rows" not in capsys.readouterr().err
