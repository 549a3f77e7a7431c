"""The command line as a user meets it: what it prints, what it writes, what it refuses."""

import contextlib
import importlib
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from scipy.stats import beta, norm
from scipy.stats import t as student_t
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss

from bayesdiv.app import cli, console, metric, runs, settings
from bayesdiv.app import training as trainings
from bayesdiv.app.baselines import baselines
from bayesdiv.app.cli import compare as compares
from bayesdiv.app.cli import evaluate as evaluating
from bayesdiv.app.data.files import Written, read
from bayesdiv.app.data.loading import load
from bayesdiv.app.experiment import Experiment
from bayesdiv.app.report import comparison
from bayesdiv.app.tuning import search as searches
from bayesdiv.training.fit import Diverged, Epoch, EpochLoss
from command import call

QUICK = ["--epochs", "3", "--test_samples", "5"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(console.output, "width", 200)
    monkeypatch.setattr(console.errors, "width", 200)


def table(rows: int = 60, **extra: object) -> pd.DataFrame:
    random = np.random.default_rng(0)
    a, b = random.normal(size=rows), random.normal(size=rows)
    colour = np.where(random.random(rows) > 0.5, "red", "blue")
    y = 2 * a - b + (colour == "red") + 0.1 * random.normal(size=rows)
    return pd.DataFrame({"a": a, "b": b, "colour": colour, "y": y, **extra})


@pytest.fixture
def numbers() -> Path:
    table().to_csv("numbers.csv", index=False)
    return Path("numbers.csv")


@pytest.fixture
def classes() -> Path:
    frame = table()
    frame["y"] = np.where(frame["y"] > 0.5, "good", "bad")
    frame.to_csv("classes.csv", index=False)
    return Path("classes.csv")


@pytest.fixture
def run(numbers) -> Path:
    assert call("train", numbers, "--target", "y", "--out", "run", *QUICK) == 0
    return Path("run")


def test_compare_prints_one_table_and_saves_a_figure(numbers, capsys):
    assert call("compare", numbers, "--target", "y", "--seeds", 2, *QUICK) == 0
    out = capsys.readouterr().out
    for word in ("KL", "JSG:0.1", "JSA:0.5", "deterministic", "RMSE", "NLL", "coverage", "±"):
        assert word in out
    page = Path("comparisons/numbers/comparison.html")
    assert str(page) in out
    assert page.read_text().startswith("<!doctype html>")
    saved = json.loads(Path("comparisons/numbers/comparison.json").read_text())
    assert len(saved["results"]["KL"]) == 2


def test_compare_of_classes_counts_false_negatives_and_a_single_seed_earns_no_star(classes, capsys):
    arguments = ["--divergences", "KL", "JSA:0.3", "--seeds", "1", *QUICK]
    assert call("compare", classes, "--target", "y", *arguments) == 0
    out = capsys.readouterr().out
    assert "missed" in out
    assert "no row is marked, as one seed has no interval" in out


def test_compare_reads_the_file_once(numbers, monkeypatch):
    read, times = pd.read_csv, []
    monkeypatch.setattr(
        pd, "read_csv", lambda *given, **how: times.append(given) or read(*given, **how)
    )
    assert call("compare", numbers, "--divergences", "KL", "JSA:0.3", "--seeds", 3, *QUICK) == 0
    assert len(times) == 1


def executed(*arguments: object) -> set[str]:
    """The modules of ours that a command runs, in a process of its own."""
    code = (
        "import sys\nfrom bayesdiv.__main__ import main\n"
        "try:\n    main()\nfinally:\n"
        "    names = [name for name in sys.modules if name.startswith('bayesdiv')]\n"
        "    print('modules', *names, 'optuna' * ('optuna' in sys.modules))"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(out.splitlines()[-1].split()[1:])


def test_a_command_runs_its_own_files_alone(run, numbers):
    others = ("bayesdiv.app.tuning", "bayesdiv.app.report.page", "bayesdiv.app.data.uci")
    shown = executed("show", run)
    assert "bayesdiv.app.cli.show" in shown
    assert "optuna" not in shown
    assert not {name for name in shown if name.startswith((*others, "bayesdiv.app.report"))}
    compared = executed("compare", numbers, "--divergences", "KL", "--seeds", 1, *QUICK)
    assert "bayesdiv.app.cli.compare" in compared
    assert not {name for name in compared if name.startswith(others)}
    assert {name for name in compared if ".cli." in name} == {"bayesdiv.app.cli.compare"}


SAME = {"nll": 1.5, "rmse": 0.25}
LOSSES = ["--divergences", "KL", "JSA:0.5", "deterministic", "--seeds", "3", *QUICK]


def given(monkeypatch, found):
    """Trainings whose test metrics are these, by the loss."""
    whole = trainings.train

    def train(splits, divergence, training, **rest):
        experiment, result = whole(splits, divergence, training, **rest)
        name = "deterministic" if divergence is None else type(divergence).__name__
        spread = 0.01 * (training.seed - 1)
        return experiment, {**result, "test": {k: v * (1 + spread) for k, v in found[name].items()}}

    monkeypatch.setattr(trainings, "train", train)


def test_compare_marks_what_is_best_beyond_the_interval_of_the_difference(
    numbers, monkeypatch, capsys
):
    worse = {"nll": 2.5, "rmse": 0.25004}
    monkeypatch.setattr(compares, "baselines", lambda splits, seed: {})
    given(monkeypatch, {"KL": SAME, "JSA": SAME | {"nll": 0.7}, "deterministic": worse})
    assert call("compare", numbers, *LOSSES) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "0.700±0.007*" in rows["JSA:0.5"]
    assert "1.500±0.015 " in rows["KL"]
    assert "2.500±0.025 " in rows["deterministic"]
    assert not any("0.003*" in row for row in rows.values())  # RMSE is alike


@pytest.mark.parametrize("ahead", [0.5, 0.001])
def test_a_star_is_earned_where_the_corrected_interval_leaves_out_zero(ahead):
    random = np.random.default_rng(0)
    own = 1 + 0.1 * random.normal(size=10)
    other = own + ahead + 0.1 * random.normal(size=10)
    middle, scale = (other - own).mean(), (other - own).std(ddof=1)
    low = middle - student_t.ppf(0.975, 9) * scale * np.sqrt(1 / 10 + 0.25)
    found = metric.clearly_best("nll", {"one": other.tolist(), "two": own.tolist()}, share=0.25)
    assert found == ("two" if low > 0 else None)
    assert (found is None) == (ahead < 0.1)


def test_compare_shows_what_simple_models_reach_on_the_same_rows(numbers, capsys):
    assert call("compare", numbers, "--target", "y", "--divergences", "KL", *QUICK) == 0
    out = capsys.readouterr().out
    saved = json.loads(Path("comparisons/numbers/comparison.json").read_text())["baselines"]
    assert set(saved) == {"mean", "linear", "random forest", "boosting"}
    splits = load(numbers, target="y", seed=2)
    x, y = splits.train.x.numpy(), splits.task.to_units(splits.train.y).numpy()
    predicted = LinearRegression().fit(x, y).predict(splits.test.x.numpy())
    rmse = np.sqrt(np.mean((predicted - splits.task.to_units(splits.test.y).numpy()) ** 2))
    assert saved["linear"][2]["test"]["rmse"] == pytest.approx(rmse, rel=1e-4)
    assert "random forest" in out


def test_the_log_loss_of_simple_classifiers_is_that_of_scikit_learn(classes):
    splits = load(classes, target="y")
    found = baselines(splits)
    x, y = splits.train.x.numpy().astype(float), splits.train.y.numpy()
    model = LogisticRegression(max_iter=1000).fit(x, y)
    shares = model.predict_proba(splits.test.x.numpy().astype(float)) + 1 / len(y)
    wanted = log_loss(splits.test.y.numpy(), shares / shares.sum(1, keepdims=True))
    assert found["linear"]["test"]["nll"] == pytest.approx(wanted, rel=1e-3)
    assert set(found) == {"class shares", "linear", "random forest", "boosting"}


def test_a_file_gets_a_line_now_and_then_with_the_time_left_of_all_trainings(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(console.errors, "_force_terminal", False)
    with console.Pace(2, clock=lambda: now[0]) as pace:
        for name in ("KL", "JSA"):
            tell = pace.teller(name, 100)
            for number in range(1, 101):
                now[0] += 1.0
                tell(Epoch(number, EpochLoss(1.0, 0.5, 20.0), 1.0, 1.0))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 20
    assert lines[0] == "KL: epoch 10 of 100, nll 0.500, divergence 20, about 3 min left"
    assert lines[14] == "JSA: epoch 50 of 100, nll 0.500, divergence 20, about 50 s left"


def test_progress_names_the_divergence_as_the_command_line_takes_it(numbers, monkeypatch, capsys):
    monkeypatch.setattr(console.errors, "_force_terminal", False)
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    assert call("train", numbers, "--out", "run", *QUICK) == 0
    assert "JSA:0.3: epoch 1 of 3, " in capsys.readouterr().err


def test_options_of_a_command_without_networks_for_pictures_name_none(capsys):
    assert call("tune", "--help") == 0
    assert "resnet" not in capsys.readouterr().out
    assert call("train", "--help") == 0
    assert "resnet18" in capsys.readouterr().out


def test_small_metrics_keep_their_digits(numbers, monkeypatch, capsys):
    small = {"nll": -66.7, "rmse": 1.2345e-30}
    given(monkeypatch, {"KL": small, "JSA": small | {"rmse": 2e-30}, "deterministic": small})
    assert call("compare", numbers, *LOSSES) == 0
    out = capsys.readouterr().out
    assert "1.23e-30±1.23e-32 " in out
    assert "2e-30±2e-32 " in out


def test_a_run_of_small_targets_shows_their_size(capsys):
    frame = table()
    frame["y"] *= 1e-30
    frame.to_csv("small.csv", index=False)
    assert call("train", "small.csv", "--out", "run", *QUICK) == 0
    rmse = json.loads(Path("run/metrics.json").read_text())["test"]["rmse"]
    assert 1e-31 < rmse < 1e-28
    assert f"{rmse:.3g}" in capsys.readouterr().out


def test_compare_writes_over_no_earlier_comparison(numbers, capsys):
    other = Path("elsewhere", numbers.name)
    other.parent.mkdir()
    other.write_bytes(numbers.read_bytes())
    one = ["--divergences", "KL", "--seeds", "1", *QUICK]
    for path in (numbers, other, numbers):
        assert call("compare", path, *one) == 0
    told = [
        json.loads(Path("comparisons", name, "comparison.json").read_text())["settings"]["data"]
        for name in ("numbers", "numbers-2", "numbers-3")
    ]
    assert told == ["numbers.csv", "elsewhere/numbers.csv", "numbers.csv"]
    assert str(Path("comparisons/numbers-3/comparison.html")) in capsys.readouterr().out
    before = Path("comparisons/numbers/comparison.json").read_bytes()
    assert call("compare", numbers, "--out", "comparisons/numbers", *one) == 2
    assert (
        complaint(capsys)
        .strip()
        .endswith("comparisons/numbers/comparison.json exists already: choose another --out")
    )
    assert Path("comparisons/numbers/comparison.json").read_bytes() == before


def test_a_comparison_that_is_stopped_leaves_no_file_behind(numbers, monkeypatch):
    one = ["--divergences", "KL", "--seeds", "1", *QUICK]
    assert call("compare", numbers, *one) == 0
    before = {path: path.read_bytes() for path in Path("comparisons").rglob("*.*")}
    assert len(before) == 2

    def stop(*arguments, **rest):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainings, "train", stop)
    assert call("compare", numbers, *one) == 130
    assert call("compare", numbers, *one, "--out", "new/folder") == 130
    assert {path: path.read_bytes() for path in Path("comparisons").rglob("*.*")} == before
    assert list(Path("new/folder").iterdir()) == []


def test_compare_warms_up_every_loss_before_it_takes_the_time(numbers, monkeypatch):
    rows, whole = [], trainings.train

    def train(splits, divergence, training, **rest):
        rows.append((divergence is None, splits.num_data))
        return whole(splits, divergence, training, **rest)

    monkeypatch.setattr(trainings, "train", train)
    both = ["--divergences", "KL", "deterministic", "--seeds", "1", *QUICK, "--batch_size", "7"]
    assert call("compare", numbers, *both) == 0
    assert rows == [(False, 7), (True, 7), (False, 36), (True, 36)]


def compared(monkeypatch, title, *arguments):
    """The values that the page of a comparison draws under a title, and what they are made of."""
    kept, whole = [], comparison.page

    def page(title, measures, histories, forecasts, *rest):
        kept.append(forecasts)
        return whole(title, measures, histories, forecasts, *rest)

    monkeypatch.setattr(comparison, "page", page)
    assert call("compare", *arguments, "--divergences", "KL", "--seeds", 3, *QUICK) == 0
    (path,) = Path("comparisons").rglob("comparison.html")
    (drawn,) = re.findall(rf"<b>{title}</b>.*?json\">(.*?)</script>", path.read_text(), re.S)
    return json.loads(drawn)["values"], kept[0]["KL"]


def test_the_coverage_of_a_comparison_is_that_of_all_seeds(numbers, monkeypatch):
    values, seeds = compared(monkeypatch, "Interval coverage", numbers)
    assert len(seeds) == 3
    within = []  # how far from the middle of its forecast each target is, as a level
    for predictive, y in seeds:
        each = predictive.conditional
        below = norm.cdf(y.double(), each.mean.double(), each.stddev.double()).mean(0)
        within += np.abs(2 * below - 1).tolist()
    assert len(within) == 36
    levels, shares = (
        [value[name] for value in values]
        for name in ("level of the interval", "share of targets inside")
    )
    wanted = [np.mean(np.array(within) <= lv) for lv in levels]
    np.testing.assert_allclose(shares, wanted, rtol=1e-6)


def test_the_reliability_of_a_comparison_is_that_of_all_seeds(classes, monkeypatch):
    values, seeds = compared(monkeypatch, "Reliability", classes)
    mean = np.concatenate([p.conditional.probs.double().mean(0).numpy() for p, _ in seeds])
    right = mean.argmax(1) == np.concatenate([y.numpy() for _, y in seeds])
    confidence = mean.max(1)
    place = np.ceil(confidence * 15).astype(int)
    wanted = [(confidence[place == k].mean(), right[place == k].mean()) for k in sorted(set(place))]
    found = [(value["confidence"], value["accuracy"]) for value in values]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_page_of_a_comparison_has_the_interval_of_nadeau_and_bengio(numbers, monkeypatch):
    values, _ = compared(monkeypatch, "RMSE", numbers)
    saved = json.loads(Path("comparisons/numbers/comparison.json").read_text())
    every = {**saved["results"], **saved["baselines"]}
    assert [value["row"] for value in values] == list(every)
    for value in values:
        each = [run["test"]["rmse"] for run in every[value["row"]]]
        half = student_t.ppf(0.975, 2) * np.std(each, ddof=1) * np.sqrt(1 / 3 + 12 / 36)
        least = max(0.0, np.mean(each) - half)  # no RMSE is negative
        wanted = [np.mean(each), least, np.mean(each) + half]
        np.testing.assert_allclose([value[k] for k in ("middle", "low", "high")], wanted, rtol=1e-6)


def test_evaluate_writes_a_page_on_the_rows_of_a_new_file(numbers, capsys):
    assert call("train", numbers, "--out", "run", *QUICK) == 0
    new = pd.read_csv(numbers).tail(30)
    new.to_csv("new.csv", index=False)
    assert call("evaluate", "run", "new.csv", "--out", "new.html") == 0
    assert "wrote new.html" in capsys.readouterr().out
    page = Path("new.html").read_text()
    assert "30 rows of new.csv, and averages" in page
    (drawn,) = re.findall(r"<b>Predicted against actual.*?json\">(.*?)</script>", page, re.S)
    for value in json.loads(drawn)["values"]:
        assert new["y"].iloc[value["row"] - 1] == pytest.approx(value["actual"], rel=1e-5)


def test_a_metric_that_a_part_lacks_is_a_dash(capsys):
    console.print_metrics({"validation": {"nll": 1.0, "accuracy": 0.5}, "test": {"nll": 2.0}})
    out = capsys.readouterr().out
    assert "NLL" in out
    assert out.splitlines()[-1].split() == ["test", "2.000", "–"]


def test_embedded_data_with_noise(capsys):
    arguments = ["--noise", "0.5", "--seeds", "1", *QUICK]
    assert call("compare", "breast_cancer", "--divergences", "KL", *arguments) == 0
    assert "breast_cancer" in capsys.readouterr().out


def test_train_evaluate_show_agree(run, capsys):
    metrics = json.loads((run / "metrics.json").read_text())
    assert call("evaluate", run) == 0
    assert f"{metrics['test']['rmse']:.3f}" in capsys.readouterr().out
    assert call("show", run) == 0
    out = capsys.readouterr().out
    assert "JSA:0.3" in out
    assert "MLP(inputs=4" in out
    assert re.search(r"likelihood +\w*Gaussian\w* *\n", out)
    assert "epochs done" in out
    names = {line.split("  ")[0] for line in out.splitlines()}
    assert "hidden" in names
    assert not {"net", "pretrained"} & names  # which tables have no use for
    assert len((run / "history.jsonl").read_text().splitlines()) == 3
    assert not (run / "checkpoint.safetensors").exists()


def test_divergence_of_the_command_line_is_built_and_kept(numbers):
    options = ["--divergence", "JSA:alpha=0.3", "--out", "jsa", *QUICK]
    assert call("train", numbers, "--target", "y", *options) == 0
    settings = json.loads(Path("jsa/settings.json").read_text())
    assert settings["divergence"] == "JSA:0.3"


def test_settings_can_come_from_a_file(numbers):
    Path("settings.yaml").write_text("divergence: bayesdiv.JSG:0.2\nepochs: 2\n")
    assert call("train", numbers, "--config", "settings.yaml", "--out", "run2") == 0
    assert json.loads(Path("run2/settings.json").read_text())["training"]["epochs"] == 2


def test_a_deterministic_network_is_trained_too(numbers):
    assert call("train", numbers, "--divergence", "null", "--out", "plain", *QUICK) == 0
    assert json.loads(Path("plain/settings.json").read_text())["divergence"] == "deterministic"


def test_predict_adds_mean_scale_and_interval(run):
    table(20).drop(columns="y").to_csv("new.csv", index=False)
    assert call("predict", run, "new.csv", "-o", "out.csv") == 0
    out = pd.read_csv("out.csv")
    assert len(out) == 20
    assert (out["predicted_low"] < out["predicted_mean"]).all()
    assert (out["predicted_mean"] < out["predicted_high"]).all()
    assert (out["predicted_scale"] > 0).all()


def test_predict_leaves_the_columns_of_the_table_as_they_were(run):
    frame = table(12).drop(columns="y")
    frame.insert(0, "id", [f"{k:03d}" for k in range(12)])
    frame.to_csv("new.csv", index=False, sep=";")
    assert call("predict", run, "new.csv", "-o", "out.csv") == 0
    before, after = (Path(name).read_text().splitlines() for name in ("new.csv", "out.csv"))
    assert all(new.startswith(f"{old};") for old, new in zip(before, after, strict=True))


def test_evaluate_loads_and_predicts_its_own_rows_once(run, monkeypatch):
    predict, loaded, seen = Experiment.predict, [], []
    monkeypatch.setattr(settings, "load", lambda *a, **how: loaded.append(a) or load(*a, **how))
    monkeypatch.setattr(
        Experiment, "predict", lambda self, *rows: seen.append(rows) or predict(self, *rows)
    )
    monkeypatch.setattr(evaluating, "on_runs", lambda known: "a page of no rows")
    assert call("evaluate", run, "--out", "page.html") == 0
    assert len(loaded) == 1
    assert len(seen) == 2  # those of validation and of test


def test_evaluating_on_data_that_changed_is_refused(run, numbers, capsys):
    table(80).to_csv(numbers, index=False)
    assert call("evaluate", run) == 2
    assert "does not hold the rows that run was trained on" in complaint(capsys)


def with_other_targets(path: Path, part: str) -> None:
    """Change the targets of a part of the data of a run, and nothing that training sees."""
    frame = pd.read_csv(path)
    splits = load(path, target="y")
    y = splits.task.to_units(getattr(splits, part).y).numpy()
    frame.loc[np.isclose(frame["y"].to_numpy()[:, None], y, rtol=1e-4).any(1), "y"] = 100.0
    assert 5 <= (frame["y"] == 100).sum() <= 12
    frame.to_csv(path, index=False)


@pytest.mark.parametrize("part", ["validation", "test"])
def test_evaluating_on_other_validation_or_test_rows_is_refused(run, numbers, part, capsys):
    kept = Path("kept.csv")
    kept.write_bytes(numbers.read_bytes())
    with_other_targets(numbers, part)
    assert call("evaluate", run) == 2
    told = complaint(capsys).strip().splitlines()[-1]
    assert told.endswith(
        "numbers.csv does not hold the rows that run was trained on: give these with --data, or "
        "train again; for new rows use bayesdiv evaluate RUN FILE"
    )
    assert call("evaluate", run, "--data", kept) == 0
    assert f"{runs.read_json(run / 'metrics.json')['test']['rmse']:.3f}" in capsys.readouterr().out


def test_data_that_are_named_and_not_those_of_the_run_are_not_said_to_have_moved(run, capsys):
    table(80).to_csv("other.csv", index=False)
    for given in ("other.csv", "nowhere.csv"):
        assert call("evaluate", run, "--data", given) == 2
        said = complaint(capsys)
        assert "that run was trained on" in said
        assert "moved" not in said
        assert "changed" not in said


@pytest.mark.parametrize(
    "change",
    [
        {"a": [np.nan] * 7 + [1.0] * 53},
        {"a": ["unknown"] + ["1"] * 59},
        {"a": np.inf},
        {"a": [f"1,{k}" for k in range(60)]},
        {"colour": [f"x{k}" for k in range(60)]},
    ],
)
def test_a_command_on_a_run_advises_no_option_of_training(run, numbers, change, capsys):
    table().assign(**change).to_csv(numbers, index=False)
    capsys.readouterr()
    for command in ("evaluate", "report", "calibrate"):
        assert call(command, run) == 2
        assert re.findall(r"--\w+", complaint(capsys)) == ["--data"]


@pytest.mark.parametrize("command", ["show", "evaluate", "report", "train"])
def test_a_run_of_an_earlier_version_is_refused_in_one_sentence(run, numbers, command, capsys):
    told = (run / "settings.json").read_text().replace('"format": 3', '"format": 1')
    (run / "settings.json").write_text(told)
    (run / "metrics.json").unlink()
    capsys.readouterr()
    given = [numbers, "--out", run] if command == "train" else [run]
    assert call(command, *given) == 2
    said = " ".join(complaint(capsys).split())
    assert "has format 1, and this version reads 3: use the version of bayesdiv that wrote" in said


def test_a_run_with_a_setting_that_was_dropped_is_refused_in_one_sentence(run, capsys):
    told = json.loads((run / "settings.json").read_text())
    told["training"] |= {"balance": False, "bias": None}
    (run / "settings.json").write_text(json.dumps(told))
    (run / "metrics.json").unlink()
    capsys.readouterr()
    assert call("show", run) == 2
    said = " ".join(complaint(capsys).split())
    assert said.endswith("unexpected keyword argument 'balance'): train the run again")


def stopped(numbers, *options) -> None:
    """A run that was stopped after one epoch, in the folder parts."""
    whole, seen = trainings.Keeper.after, []

    def after(self, epoch, validation):
        if seen:
            raise KeyboardInterrupt
        whole(self, epoch, validation)
        seen.append(epoch.number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainings.Keeper, "after", after)
        assert call("train", numbers, *options, "--out", "parts") == 130


def test_a_run_goes_on_with_its_own_rows_alone_wherever_the_file_is(numbers, capsys):
    options = ["--target", "y", *QUICK]
    stopped(numbers, *options)
    before = numbers.read_bytes()
    with_other_targets(numbers, "test")
    capsys.readouterr()
    assert call("train", numbers, *options, "--out", "parts") == 2
    assert "parts holds a run that was started with different rows" in complaint(capsys)
    numbers.write_bytes(before)
    Path("moved").mkdir()
    moved = numbers.rename("moved/renamed.csv")
    assert call("train", moved, *options, "--out", "parts") == 0
    assert call("evaluate", "parts") == 0  # it has learned where its file is


def test_a_divergence_of_ones_own_is_trained_and_predicts(numbers, monkeypatch, capsys):
    Path("mine.py").write_text(
        "from dataclasses import dataclass\nimport bayesdiv as bd\n\n\n"
        "@dataclass(frozen=True)\nclass Twice(bd.Divergence):\n"
        "    def estimate(self, at_q, at_p):\n        return 2 * bd.KL().estimate(at_q, at_p)\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert call("train", numbers, "--divergence", "mine.Twice", "--out", "own", *QUICK) == 0
    assert call("predict", "own", numbers, "-o", "out.csv") == 0
    capsys.readouterr()
    assert call("show", "own") == 0
    assert "mine.Twice" in capsys.readouterr().out


def test_a_loss_that_diverges_does_not_stop_the_others(numbers, capsys):
    arguments = ["--divergences", "ChiSquared", "KL", "--seeds", "1", *QUICK]
    assert call("compare", numbers, "--target", "y", *arguments) == 0
    shown = capsys.readouterr()
    assert "ChiSquared, seed 1 of 1: the divergence" in shown.err
    assert "diverged" in shown.out


def test_a_seed_that_diverges_is_shown_and_earns_no_star(numbers, capsys, monkeypatch):
    whole = trainings.train

    def train(splits, divergence, training, **rest):
        if divergence is not None and training.seed == 1:
            raise Diverged("the nll of batch 1 of epoch 1 is inf: lower the learning rate")
        return whole(splits, divergence, training, **rest)

    monkeypatch.setattr(trainings, "train", train)
    arguments = ["--divergences", "KL", "deterministic", "--seeds", "2", *QUICK]
    assert call("compare", numbers, "--target", "y", *arguments) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "KL" in line]
    assert "KL (1 of 2 diverged)" in row
    assert "*" not in row
    saved = json.loads(Path("comparisons/numbers/comparison.json").read_text())
    assert "seed 1" in saved["diverged"]["KL"][0]


def test_training_and_validation_nll_are_in_the_same_units(numbers):
    frame = table()
    frame["y"] *= 1000
    frame.to_csv("large.csv", index=False)
    assert call("train", "large.csv", "--out", "large", *QUICK) == 0
    line = runs.read_history(Path("large"))[-1]
    assert abs(line["nll"] - line["validation_nll"]) < 2


def test_predict_adds_class_probabilities_and_entropy(classes):
    assert call("train", classes, "--target", "y", "--out", "run", *QUICK) == 0
    assert call("predict", "run", classes, "-o", "out.csv") == 0
    out = pd.read_csv("out.csv")
    assert np.allclose(out["probability_bad"] + out["probability_good"], 1, atol=1e-5)
    assert set(out["predicted_class"]) <= {"good", "bad"}
    assert (out["entropy"] >= out["mutual_information"] - 1e-6).all()


def test_shares_in_percent_are_numbers(capsys):
    table(dose=["5%", "10%", "20%"] * 20)[["a", "dose", "y"]].to_csv("doses.csv", index=False)
    assert call("train", "doses.csv", "--out", "run", *QUICK) == 0
    columns = json.loads(Path("run/settings.json").read_text())["encoder"]["columns"]
    assert columns[1]["unit"] == "%"
    assert columns[1]["loc"] == pytest.approx(35 / 3, rel=0.2)


def test_rows_that_cannot_be_read_are_flagged_and_the_others_predicted(run, capsys):
    frame = table(5).astype({"a": object}).drop(columns="y")
    frame.loc[1, "a"], frame.loc[2, "colour"], frame.loc[3, "b"] = "many", "green", np.nan
    frame.to_csv("new.csv", index=False)
    capsys.readouterr()
    assert call("predict", run, "new.csv", "-o", "out.csv") == 0
    assert "rows that could not be read: 3, see the column problem" in capsys.readouterr().err
    out = pd.read_csv("out.csv", keep_default_na=False)
    assert out["problem"].tolist() == [
        "",
        "column 'a' must hold numbers, got 'many'",
        "column 'colour' must have one of the training rows' values 'blue', 'red', got 'green'",
        "column 'b' has no value",
        "",
    ]
    assert [text != "" for text in out["predicted_mean"]] == [True, False, False, False, True]
    table(5).loc[[0, 4]].to_csv("good.csv", index=False)
    assert call("predict", run, "good.csv", "-o", "alone.csv") == 0
    alone = pd.read_csv("alone.csv")["predicted_mean"]
    assert out["predicted_mean"].iloc[[0, 4]].astype(float).tolist() == pytest.approx(
        alone.tolist()
    )


def test_the_parts_of_the_uncertainty_add_up(run, classes):
    assert call("predict", run, classes, "-o", "out.csv") == 0
    out = pd.read_csv("out.csv")
    both = out["epistemic_scale"] ** 2 + out["aleatoric_scale"] ** 2
    np.testing.assert_allclose(both, out["predicted_scale"] ** 2, rtol=1e-4)
    assert call("train", classes, "--target", "y", "--out", "classes", *QUICK) == 0
    assert call("predict", "classes", classes, "-o", "told.csv") == 0
    told = pd.read_csv("told.csv")
    both = told["mutual_information"] + told["expected_entropy"]
    np.testing.assert_allclose(both, told["entropy"], rtol=1e-4)


def test_a_run_is_evaluated_on_a_new_file(run, capsys):
    new = table(90).tail(30)
    new.to_csv("new.csv", index=False)
    capsys.readouterr()
    assert call("evaluate", run, "new.csv") == 0
    shown = capsys.readouterr().out
    assert call("predict", run, "new.csv", "-o", "out.csv") == 0
    out = pd.read_csv("out.csv")
    rmse = np.sqrt(np.mean((out["predicted_mean"] - new["y"].to_numpy()) ** 2))
    assert f"{rmse:.3f}" in shown
    new.drop(columns="y").to_csv("less.csv", index=False)
    assert call("evaluate", run, "less.csv") == 2
    assert "less.csv must have the target 'y' to evaluate on" in complaint(capsys)


def test_rows_unlike_those_of_training_are_flagged_at_the_rate_that_was_asked_for(capsys):
    table(600).to_csv("many.csv", index=False)
    assert call("train", "many.csv", "--out", "run", *QUICK) == 0
    random = np.random.default_rng(1)
    usual = pd.DataFrame({name: random.normal(size=1000) for name in "ab"}).assign(colour="red")
    far = usual.head(20).assign(a=7.0, b=-7.0)
    pd.concat([usual, far]).to_csv("new.csv", index=False)
    capsys.readouterr()
    for rate in (0.05, 0.2):
        out = f"{rate}.csv"
        assert call("predict", "run", "new.csv", "--false_alarms", rate, "-o", out) == 0
        flagged = pd.read_csv(out)["unlike_training"].to_numpy()
        # 120 validation rows set the threshold: their share above it has a Beta distribution.
        low, high = beta.ppf([1e-4, 1 - 1e-4], rate * 121, (1 - rate) * 121)
        assert low - 0.03 < flagged[:1000].mean() < high + 0.03
        assert flagged[1000:].all()
    assert "rows unlike the training data:" in capsys.readouterr().err
    assert call("predict", "run", "new.csv", "--false_alarms", 2, "-o", "x.csv") == 2
    assert "false_alarms must lie inside (0, 1), got 2" in complaint(capsys)


def test_a_run_that_does_not_know_which_rows_are_usual_predicts_without(run, numbers, capsys):
    (run / "unlike.json").write_text('{"distance": 3}')
    assert call("predict", run, numbers, "-o", "out.csv") == 2
    assert "unlike.json is damaged" in complaint(capsys)
    (run / "unlike.json").unlink()
    assert call("predict", run, numbers, "-o", "out.csv") == 0
    assert "unlike_training" not in pd.read_csv("out.csv")


def test_a_run_remembers_how_its_file_was_written_and_parted(capsys):
    frame = table(day=[f"{1 + k % 28:02}.{1 + k // 28:02}.2024" for k in range(60)], id="x")
    frame.loc[3, "a"] = np.nan
    frame.to_csv("t.csv", index=False, sep=":", decimal=",", encoding="latin-1")
    ways = ["--separator", ":", "--decimal", ",", "--encoding", "latin-1", "--drop", "id"]
    ways += ["--impute", "--split", "time:day", "--target", "y"]
    assert call("train", "t.csv", *ways, "--out", "run", *QUICK) == 0
    told = capsys.readouterr()
    assert "missing values are filled and marked: 1 in 'a'" in told.err
    assert "column 'day' splits the rows and is not an input" in told.err
    assert call("evaluate", "run") == 0
    assert capsys.readouterr().out.splitlines()[:5] == told.out.splitlines()[:5]
    assert call("predict", "run", "t.csv", "-o", "out.csv") == 0
    out = pd.read_csv("out.csv", sep=":", decimal=",")
    assert out["problem"].isna().all()
    assert np.isfinite(out["predicted_mean"]).all()


@pytest.mark.parametrize("kind", ["semicolons", "quoted commas", "white space", "Excel"])
def test_predictions_have_the_decimal_sign_of_the_file(kind, run):
    table(12).to_csv("points.csv", index=False)
    assert call("predict", run, "points.csv", "-o", "wanted.csv") == 0
    wanted = pd.read_csv("wanted.csv")
    new = Path("new.xlsx" if kind == "Excel" else "new.csv")
    if kind == "Excel":
        table(12).to_excel(new, index=False)
    else:
        mark = {"semicolons": ";", "quoted commas": ",", "white space": " "}[kind]
        table(12).to_csv(new, index=False, sep=mark, decimal=",")
    ways = ["--separator", "space"] if kind == "white space" else []
    assert call("predict", run, new, "-o", "out.csv", "--decimal", ",", *ways) == 0
    separator = "," if kind == "quoted commas" else ";"
    out = pd.read_csv("out.csv", sep=separator, decimal=",")
    assert "." not in "".join(out.columns) + Path("out.csv").read_text()
    ours = read("out.csv", written=Written(decimal=","))
    for found in (out, ours[list(out.columns)]):
        pd.testing.assert_frame_equal(found, wanted, check_dtype=False)


def test_predictions_of_rows_that_cannot_be_read_are_empty_under_a_decimal_comma(run):
    frame = table(2).drop(columns="y")
    frame["a"] = ["1,5", "wide"]
    frame.to_csv("new.csv", index=False, sep=";", decimal=",")
    assert call("predict", run, "new.csv", "-o", "out.csv", "--decimal", ",") == 0
    out = pd.read_csv("out.csv", sep=";", decimal=",")
    assert np.isfinite(out["predicted_mean"][0])
    assert np.isnan(out["predicted_mean"][1])
    assert "'wide'" in out["problem"][1]


def test_predictions_take_names_that_are_free(classes, capsys):
    frame = pd.read_csv(classes).rename(columns={"a": "entropy", "b": "probability_bad"})
    frame.to_csv("named.csv", index=False)
    assert call("train", "named.csv", "--target", "y", "--out", "run", *QUICK) == 0
    capsys.readouterr()
    assert call("predict", "run", "named.csv", "-o", "out.csv") == 0
    assert "entropy_2" in capsys.readouterr().out
    out = pd.read_csv("out.csv")
    pd.testing.assert_frame_equal(out[list(frame.columns)], frame)
    assert np.allclose(out["probability_bad_2"] + out["probability_good"], 1, atol=1e-5)
    assert (out["entropy_2"] >= out["mutual_information"] - 1e-6).all()
    assert call("predict", "run", "out.csv", "-o", "twice.csv") == 0
    assert "entropy_3" in pd.read_csv("twice.csv")


def test_one_row_is_one_row(run, capsys):
    table(1).to_csv("one.csv", index=False)
    capsys.readouterr()
    assert call("predict", run, "one.csv", "-o", "out.csv") == 0
    assert capsys.readouterr().out.startswith("1 row: out.csv with predicted_mean")


def test_an_unfinished_run_is_shown_as_far_as_it_has_come(numbers, capsys):
    stopped(numbers, "--target", "y", *QUICK)
    capsys.readouterr()
    assert call("show", "parts") == 0
    out = capsys.readouterr().out
    (line,) = runs.read_history(Path("parts"))[:1]
    assert "1, unfinished" in out
    assert "Metrics after epoch 1" in out
    assert f"{line['validation_rmse']:.3f}" in out
    assert "parts is not finished: the same train command resumes it" in out
    Path("parts/history.jsonl").unlink()
    assert call("show", "parts") == 0
    assert "0, unfinished" in capsys.readouterr().out


def weights_of(folder: str) -> dict[str, torch.Tensor]:
    return runs._read(Path(folder) / "weights.safetensors")[0]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_resumes_and_ends_bit_for_bit_the_same(numbers, how):
    options = ["--target", "y", "--divergence", "JSA", "--epochs", "40", "--test_samples", "5"]
    options += ["--hidden", "[8]", "--members", "2"]
    assert call("train", numbers, *options, "--out", "whole") == 0
    code = (
        "from bayesdiv.__main__ import main; from bayesdiv.app import training; "
        "training.SECONDS_BETWEEN_CHECKPOINTS = 0.0; main()"
    )
    command = [sys.executable, "-c", code, "train", str(numbers), *options, "--out", "parts"]
    child = subprocess.Popen(
        command, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    wait_for(lambda: len(runs.read_history(Path("parts"))) >= 5, child)
    child.send_signal(how)
    child.communicate(timeout=60)
    assert child.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    assert not Path("parts/metrics.json").exists()
    assert call("train", numbers, *options, "--out", "parts") == 0
    whole, parts = weights_of("whole"), weights_of("parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    assert len(runs.read_history(Path("parts"))) == 40


def wait_for(condition, child) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert child.poll() is None, child.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_large_table_is_compared_in_one_seed_and_few_epochs_and_says_so(
    numbers, monkeypatch, capsys
):
    module = importlib.import_module("bayesdiv.app.cli.compare")
    monkeypatch.setattr(module, "LARGE", 10)
    monkeypatch.setattr(module, "UPDATES", 12)
    options = [*QUICK]
    at = options.index("--epochs")
    del options[at : at + 2]
    assert call("compare", numbers, "--divergences", "KL", *options) == 0
    told = capsys.readouterr().err
    assert "is compared over 1 seed and" in told
    assert "give --seeds and --epochs for more" in told
    (run,) = json.loads(Path("comparisons/numbers/comparison.json").read_text())["results"]["KL"]
    assert run["best_epoch"] <= 12
    assert call("compare", numbers, "--divergences", "KL", "--seeds", 1, *QUICK) == 0
    assert "is compared over" not in capsys.readouterr().err


# tune ----------------------------------------------------------------------------------------

FEW = ["--search", "optuna", "--trials", "4", *QUICK]


def test_tune_shows_its_trials_and_what_the_best_is_worth_on_test_data(numbers, capsys):
    assert call("tune", numbers, "--target", "y", *FEW) == 0
    out = capsys.readouterr().out
    for words in (
        "trials finished: 4, requested: 4",
        "learning rate",
        "validation NLL",
        "test data, trained again",
    ):
        assert words in out
    found = pd.read_csv("tunings/numbers-JSA/trials.csv")
    assert found["trial"].tolist() == [0, 1, 2, 3]
    best = found["value"][found["state"] == "complete"].idxmin()
    (marked,) = [line for line in out.splitlines() if "* " in line and "trials" not in line]
    assert marked.split()[0] == str(best)
    assert marked.split()[1] == f"{found['alpha'][best]:.3g}"
    assert Path("tunings/numbers-JSA/search.html").read_text().startswith("<!doctype html>")


def test_the_command_that_tune_ends_with_predicts(numbers, capsys):
    assert call("tune", numbers, "--target", "y", "--trials", "2", *QUICK) == 0
    said = capsys.readouterr().out.split("bayesdiv predict")[1].split()
    assert call("predict", *said[:4]) == 0
    assert Path("predicted.csv").exists()


def test_tune_names_no_data_set_where_predict_takes_a_file(capsys):
    assert call("tune", "diabetes", "--trials", "1", "--epochs", "1", "--test_samples", "4") == 0
    assert "/run new.csv -o predicted.csv" in capsys.readouterr().out


def test_the_help_of_tune_says_when_alpha_is_searched_and_how_a_range_is_given(capsys):
    assert call("tune", "--help") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "that of JSA only with --alpha_range or --search optuna" in out
    assert "range to search, such as 0 1" in out


def test_a_terminal_shows_how_far_a_search_has_come(numbers, monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, height=11)
    monkeypatch.setattr(importlib.import_module("bayesdiv.app.cli.tune"), "errors", screen)
    assert call("tune", numbers, "--target", "y", *FEW, "--trials", "2", "--epochs", "60") == 0
    shown = screen.file.getvalue()
    assert "trials finished: 0, requested: 2" in shown
    assert "trials finished: 1, requested: 2" in shown


@pytest.mark.parametrize("divergence", ["JSG", "KL"])
def test_train_takes_the_best_settings_and_comes_to_the_same_test_metrics(
    numbers, divergence, capsys
):
    options = ["--target", "y", "--noise", "0.1", "--seed", "3", "--hidden", "[7]"]
    assert call("tune", numbers, "--divergence", divergence, "--out", "t", *options, *FEW) == 0
    assert call("train", numbers, "--config", "t/best.yaml", "--out", "run") == 0
    told = json.loads(Path("t/result.json").read_text())
    settings = json.loads(Path("run/settings.json").read_text())
    best = told["best"]["settings"]
    alpha = f":{best.pop('alpha')}" if divergence == "JSG" else ""
    assert settings["divergence"] == divergence + alpha
    assert {name: settings["training"][name] for name in best} == best
    assert settings["training"]["hidden"] == [7]
    assert settings["data"]["noise"] == 0.1
    assert json.loads(Path("run/metrics.json").read_text())["test"] == told["test"]["best"]


def test_a_search_of_one_trial_has_the_settings_given_for_its_best(numbers):
    assert call("tune", numbers, "--out", "t", *FEW, "--trials", "1") == 0
    told = json.loads(Path("t/result.json").read_text())
    assert told["best"]["settings"] == {"alpha": 0.5, "strength": 1.0, "learning_rate": 0.005}
    assert told["test"]["best"] == told["test"]["given"]


def test_tune_says_which_settings_of_a_search_differ_and_what_to_do(numbers, capsys):
    assert call("tune", numbers, "--out", "t", *FEW, "--trials", "1") == 0
    other = [*FEW, "--trials", "1", "--epochs", "2"]
    assert call("tune", numbers, "--out", "t", *other) == 2
    assert complaint(capsys).splitlines()[-1] == (
        f"bayesdiv: the search 'numbers-JSA' in sqlite:///{Path.cwd()}/t/search.db was started "
        "with other settings: epochs is 3 there and 2 here; choose another place or name for it"
    )


def test_a_setting_given_outside_its_range_is_moved_to_its_end(numbers):
    kl = ["--divergence", "KL", *FEW, "--trials", "1"]
    assert call("tune", numbers, "--out", "t", "--learning_rate", "10", *kl) == 0
    (first,) = pd.read_csv("t/trials.csv").itertuples()
    assert (first.learning_rate, first.strength) == (3e-2, 1.0)


def test_tune_keeps_to_its_ranges_and_goes_on_to_more_trials(numbers):
    ranges = ["--alpha_range", "0.2", "0.3", "--strength_range", "5", "6"]
    assert call("tune", numbers, "--out", "t", *ranges, *FEW, "--trials", "2") == 0
    first = pd.read_csv("t/trials.csv")
    assert first["alpha"].between(0.2, 0.3).all()
    assert first["strength"].between(5, 6).all()
    assert call("tune", numbers, "--out", "t", *ranges, *FEW, "--trials", "3") == 0
    both = pd.read_csv("t/trials.csv")
    assert len(both) == 3
    pd.testing.assert_frame_equal(both[:2].dropna(axis=1), first.dropna(axis=1))


def test_a_divergence_of_ones_own_is_searched_and_trained_as_the_last_line_says(
    numbers, monkeypatch, capsys
):
    Path("own.py").write_text(
        "from dataclasses import dataclass\nimport bayesdiv as bd\n\n\n"
        "@dataclass(frozen=True)\nclass Twice(bd.Divergence):\n    alpha: float = 0.5\n\n"
        "    def estimate(self, at_q, at_p):\n"
        "        return 2 * self.alpha * bd.KL().estimate(at_q, at_p)\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert call("tune", numbers, "--divergence", "own.Twice", "--out", "t", *FEW) == 0
    *_, line = capsys.readouterr().out.splitlines()
    program, *words = line.split()
    assert program == "bayesdiv"
    assert call(*words) == 0
    settings = json.loads(Path("runs/numbers-Twice/settings.json").read_text())
    best = json.loads(Path("t/result.json").read_text())["best"]["settings"]
    assert settings["divergence"] == f"own.Twice:{best['alpha']}"
    assert settings["training"]["strength"] == best["strength"]


def test_a_search_stopped_by_hand_says_that_it_goes_on_and_does(numbers):
    options = ["--target", "y", "--search", "optuna", "--out", "t", *QUICK]
    command = [sys.executable, "-m", "bayesdiv", "tune", str(numbers), *options, "--trials", "90"]
    child = subprocess.Popen(
        command, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True
    )
    search = searches.Search(Path("t/search.db"), name="numbers-JSA")

    def finished() -> int:
        query = "SELECT count(*) FROM trials WHERE state IN ('COMPLETE', 'PRUNED')"
        with contextlib.suppress(sqlite3.OperationalError):  # not there yet
            reading = sqlite3.connect("file:t/search.db?mode=ro", uri=True, timeout=60)
            with contextlib.closing(reading) as database:
                return int(database.execute(query).fetchone()[0])
        return 0

    wait_for(finished, child)
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "the same command resumes it" in told
    assert "Traceback" not in told
    done = finished()
    assert 0 < done < 90
    assert "failed" not in {tried.state for tried in searches.trials(search)}
    assert call("tune", numbers, *options, "--trials", done + 2) == 0
    assert finished() == done + 2
    assert len(pd.read_csv("t/trials.csv").query("state in ('complete', 'pruned')")) == done + 2


def test_a_search_that_has_more_trials_than_asked_for_says_so(numbers, capsys):
    assert call("tune", numbers, "--out", "t", "--divergence", "KL", *FEW) == 0
    assert call("tune", numbers, "--out", "t", "--divergence", "KL", *FEW, "--trials", "2") == 0
    assert "trials finished: 4, requested: 2" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["--trials", "0"], ["--strength_range", "3", "1"]])
def test_a_search_that_is_refused_leaves_no_folder(numbers, wrong):
    assert call("tune", numbers, *FEW, *wrong) == 2
    assert not Path("tunings").exists()


# Bad input -----------------------------------------------------------------------------------


def broken(name: str, make) -> None:
    make(Path(name))


def missing_value(path: Path) -> None:
    frame = table()
    frame.loc[3, "a"] = np.nan
    frame.to_csv(path, index=False)


def commas(path: Path) -> None:
    shares = [f"{5 + k / 10}".replace(".", ",") for k in range(60)]
    table(share=shares)[["a", "share", "y"]].to_csv(path, index=False)


def names(path: Path) -> None:
    owner, street = ([f"{name} {k}" for k in range(60)] for name in ("Ms", "Street"))
    table(owner=owner, street=street).to_csv(path, index=False)


def good(path: Path) -> None:
    table().to_csv(path, index=False)


def damaged_run(run: Path, file: str, content: bytes) -> None:
    (run / file).write_bytes(content)


BAD_DATA = [
    ("nowhere.csv", None, [], "nowhere.csv"),
    ("folder.csv", lambda p: p.mkdir(), [], "folder"),
    ("empty.csv", lambda p: p.write_text(""), [], "empty.csv"),
    ("header.csv", lambda p: p.write_text("a,b,y\n"), [], "header"),
    ("few.csv", lambda p: table(5).to_csv(p, index=False), [], "at least 10 rows"),
    ("binary.csv", lambda p: p.write_bytes(bytes(range(256))), [], "binary.csv"),
    ("t.json", lambda p: p.write_text("a,y\n1,2\n"), [], ".xlsx or .parquet"),
    (
        "nan.csv",
        missing_value,
        [],
        "got missing values: 1 in 'a', the first in row 4: fill them with --impute, drop columns",
    ),
    ("comma.csv", commas, [], "got '5,0' in row 1: give --decimal ,"),
    ("comma.csv", commas, ["--target", "share"], "give --decimal ,"),
    ("names.csv", names, ["--target", "y"], "drop it with --drop owner,street"),
    ("names.csv", names, [], "'Street 2' and 57 more: choose another --target"),
    ("t.csv", good, ["--header", "perhaps"], "header must be yes or no, got perhaps"),
    ("t.csv", good, ["--decimal", "x"], "decimal must be . or , got x"),
    ("t.csv", good, ["--split", "y"], "split must be time:COLUMN or group:COLUMN, got y"),
    ("t.csv", good, ["--test", "none.csv"], "the file none.csv does not exist"),
    ("t.csv", good, ["--target", "y", "--drop", "y"], "the target 'y' cannot be dropped"),
    ("t.csv", good, ["--drop", "z"], "t.csv must have the column 'z'"),
    ("t.csv", good, ["--drop", "a,b,colour"], "got 'y': drop fewer columns"),
    ("t.csv", good, ["--size", "30"], "a table without --pictures, which takes no --size: leave"),
    ("t.csv", good, ["--skip_broken"], "takes no --skip_broken: leave it out"),
    ("digits", None, ["--size", "30", "--impute"], "takes no --impute and no --size: leave them"),
    ("digits", None, ["--hidden", "7,7"], "digits holds pictures, which take no --hidden"),
    (
        "t.csv",
        good,
        ["--target", "colour", "--likelihood", "gamma"],
        "got gamma for the classes of 't.csv': leave it out",
    ),
    ("one.csv", lambda p: table(y="same").to_csv(p, index=False), [], "same"),
    ("t.csv", good, ["--target", "yy"], "'yy'"),
    ("t.csv", good, ["--noise", "-1"], "noise"),
    ("t.csv", good, ["--noise", "nan"], "noise"),
    ("t.csv", good, ["--epochs", "0"], "epochs"),
    ("t.csv", good, ["--learning_rate", "-1"], "learning_rate"),
    ("t.csv", good, ["--strength", "-1"], "strength"),
    ("t.csv", good, ["--start", "0"], "start"),
    ("t.csv", good, ["--hidden", "[0]"], "at least one unit"),
    ("t.csv", good, ["--epochs", "many"], "many"),
    (
        "t.csv",
        lambda p: table().to_csv(p, index=False),
        ["--divergence", "JSA:1.5"],
        "alpha must lie in [0, 1], got 1.5",
    ),
    ("t.csv", good, ["--divergence", "JSX"], "JSX"),
]


def complaint(capsys) -> str:
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err + shown.out
    return shown.err


def test_a_sheet_of_a_text_file_is_refused(numbers, capsys):
    assert call("train", numbers, "--sheet", "first", "--out", "r") == 2
    assert "sheet is for an Excel file (.xlsx), got numbers.csv" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "make", "options", "words"), BAD_DATA)
def test_bad_data_or_settings_get_one_sentence_and_exit_code_2(name, make, options, words, capsys):
    if make is not None:
        make(Path(name))
    assert call("train", name, "--out", "run", *options) == 2
    assert words in " ".join(complaint(capsys).split())
    assert not Path("run/weights.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a command; it must be one of compare, train"),
        (["no_such_command"], "no_such_command is not a command; it must be one of compare, train"),
        (["predit"], "predit is not a command; did you mean predict?"),
        (["evaluate", "no_such_run"], "no_such_run"),
        (["show", "no_such_run"], "no run no_such_run: give the folder that bayesdiv train wrote"),
        (["compare", "digits", "--divergences", "JSA:2"], "must lie in [0, 1], got 2.0 in 'JSA:2'"),
        (["compare", "digits", "--divergences", "JSA:"], "alpha of 'JSA:' must be a number, as in"),
        (["train", "digits", "--out", ""], "out must not be empty, got '': give it a value"),
        (["train", "digits", "--out="], "out must not be empty, got '': give it a value"),
        (["predict", "run", "new.csv", "-o", ""], "out must not be empty"),
        (["report", "run", ""], "runs must not be empty"),
        (["explore", "--open=3"], "--open takes no value, got '3'"),
        (["train", "digits", "--out", "r", "--noise", "x"], "noise must be a number, got x"),
        (["train", "digits", "--out", "r", "--epochs", ""], "must be a whole number, got ''"),
        (
            ["compare", "digits", "--divergences", "Foo"],
            "Foo is not a known divergence: give one of",
        ),
        (["compare", "digits", "--divergences", "0.3"], "write NAME or NAME:ALPHA, as in JSA:0.3"),
        (["train", "digits", "--config", "no.yaml", "--out", "r"], "check its name and folder"),
        (["compare", "digits", "--divergences", "JSA:x"], "alpha of 'JSA:x'"),
        (["compare", "digits", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["compare", "digit"], "digits"),
        (["tune", "diabetes", "--trials", "0"], "trials must be at least 1, got 0"),
        (["tune", "diabetes", "--alpha_range", "0", "2"], "alpha must lie in [0, 1], got 2"),
        (["tune", "diabetes", "--strength_range", "3", "1"], "low below high, got 3.0 and 1.0"),
        (["tune", "diabetes", "--strength_range", "0", "1"], "low must be positive"),
        (
            ["tune", "diabetes", "--divergence", "JSX"],
            "JSX is not a known divergence; did",
        ),
        (
            ["tune", "diabetes", "--divergence", "null"],
            "tune needs a divergence, got null: give one of",
        ),
        (["tune", "nowhere.csv"], "nowhere.csv"),
        (["show"], "show needs RUN, as in: bayesdiv show runs/diabetes"),
        (["report"], "report needs RUNS, as in: bayesdiv report"),
        (["predict", "run"], "predict needs DATA and --out, as in: bayesdiv predict"),
        (["train"], "train needs DATA and --out, as in: bayesdiv train"),
    ],
)
def test_bad_arguments_get_one_sentence_and_exit_code_2(arguments, words, capsys):
    assert call(*arguments) == 2
    assert words in " ".join(complaint(capsys).split())


BAD_RUNS = [
    ("weights.safetensors", lambda content: content[: len(content) // 2], "damaged"),
    ("weights.safetensors", lambda content: b"not weights", "damaged"),
    ("settings.json", lambda content: content[:40], "damaged"),
    (
        "settings.json",
        lambda content: content.replace(b'"format": 3', b'"format": 99'),
        "format 99",
    ),
    ("settings.json", lambda content: content.replace(b'"MLP"', b'"Big"'), "damaged"),
    ("settings.json", lambda content: content.replace(b'"inputs": 4', b'"inputs": 5'), "not fit"),
]


@pytest.mark.parametrize(("file", "change", "words"), BAD_RUNS)
def test_a_damaged_run_gets_one_sentence_and_exit_code_2(run, file, change, words, capsys):
    path = run / file
    path.write_bytes(change(path.read_bytes()))
    capsys.readouterr()
    assert call("show", run) == 2
    assert words in " ".join(complaint(capsys).split())


def test_nothing_is_overwritten(run, numbers, capsys):
    before = {path: path.read_bytes() for path in run.iterdir()}
    assert call("train", numbers, "--target", "y", "--out", run, *QUICK) == 2
    assert "finished run" in complaint(capsys)
    Path("taken.csv").write_text("mine\n")
    assert call("predict", run, numbers, "-o", "taken.csv") == 2
    assert "exists already" in complaint(capsys)
    assert Path("taken.csv").read_text() == "mine\n"
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_a_file_that_changed_since_its_run_was_begun_is_named_as_such(numbers, capsys):
    assert call("train", numbers, "--out", "done", *QUICK) == 0
    Path("run").mkdir()
    shutil.copy("done/settings.json", "run")
    lines = Path(numbers).read_text().splitlines()
    Path(numbers).write_text("\n".join(lines[:4] + lines[5:]) + "\n")
    capsys.readouterr()
    assert call("train", numbers, "--out", "run", *QUICK) == 2
    said = complaint(capsys)
    assert "rows (36 to train on, now 35): restore them, or choose another folder" in said
    assert len(said) < 200


def test_rows_that_a_run_lost_are_named_and_not_the_epochs_that_follow_from_them(numbers, capsys):
    stopped(numbers)
    table(50).to_csv(numbers, index=False)
    capsys.readouterr()
    assert call("train", numbers, "--out", "parts") == 2
    assert "was started with different rows (36 to train on, now 30)" in complaint(capsys)
    assert call("train", numbers, "--drop", "b", "--out", "parts") == 2
    assert "data.drop is None there and b here" in complaint(capsys)


def test_other_settings_in_the_same_folder_are_refused(numbers, capsys):
    Path("run").mkdir()
    assert call("train", numbers, "--out", "done", *QUICK) == 0
    settings = json.loads(Path("done/settings.json").read_text())
    settings["training"]["epochs"] = 77
    Path("run/settings.json").write_text(json.dumps(settings))
    capsys.readouterr()
    assert call("train", numbers, "--out", "run", *QUICK) == 2
    assert "other settings: training" in complaint(capsys)


def test_predicting_other_columns_is_refused(run, capsys):
    table().drop(columns="a").to_csv("less.csv", index=False)
    assert call("predict", run, "less.csv", "-o", "out.csv") == 2
    said = "a table must have the columns that the run was trained on, got none named"
    assert f"{said} 'a'" in complaint(capsys)
    table()[["colour", "y"]].to_csv("fewer.csv", index=False)
    assert call("predict", run, "fewer.csv", "-o", "out.csv") == 2
    assert f"{said} 'a', 'b'" in complaint(capsys)
    table(colour="green").to_csv("green.csv", index=False)
    assert call("predict", run, "green.csv", "-o", "out.csv") == 2
    assert "green" in complaint(capsys)
    assert not Path("out.csv").exists()


def test_a_diverging_training_names_the_batch_and_the_remedy(numbers, capsys):
    assert call("train", numbers, "--out", "run", "--learning_rate", "1e30", *QUICK) == 2
    assert "lower the learning rate" in complaint(capsys)


def test_help_shows_one_worked_example_a_command(capsys):
    for command in cli.commands():
        assert call(command, "--help") == 0
        assert f"Example: bayesdiv {command}" in " ".join(capsys.readouterr().out.split())


def test_help_says_what_to_type_and_no_types(capsys):
    for command in cli.commands():
        assert call(command, "--help") == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "type:" not in out
        assert "null" not in out
        assert "Union" not in out
        assert out.startswith(f"usage: bayesdiv {command}")
        assert out.partition(" options: ")[0].count("[--") == 0
        if "--divergence" in out:
            assert "JSA:0.3" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "diabetes", "--out", "run", "--batchsize", "3"], "did you mean --batch_size?"),
        (["predict", "run", "x.csv", "-o", "y.csv", "--levl=3"], "did you mean --level?"),
        (["tune", "pics", "--net", "resnet20"], "no option --net; see bayesdiv tune --help"),
        (["show", "run", "--zzz"], "show has no option --zzz; see bayesdiv show --help"),
        (["show", "run", "more"], "show does not take 'more'; see bayesdiv show --help"),
        (["train", "diabetes", "--out", "run", "--hidden", "wide"], "such as 50,50, got wide"),
        (
            ["train", "diabetes", "--out", "run", "--divergence.alpha", "0.3"],
            "bayesdiv: train has no option --divergence.alpha; write --divergence JSA:0.3",
        ),
        (["compare", "diabetes", "--divergence.alpha", "0.3"], "; write --divergences JSA:0.3"),
        (["show", "run", "--divergence.alpha", "0.3"], ".alpha; see bayesdiv show --help"),
        (
            ["train", "diabetes", "--out", "run", "--divergence", "JSA:x"],
            "bayesdiv: alpha of 'JSA:x' must be a number, as in JSA:0.3, got x",
        ),
    ],
)
def test_a_misspelt_option_gets_the_closest_one(arguments, words, capsys):
    assert call(*arguments) == 2
    assert words in " ".join(complaint(capsys).split())


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--divergence", "JSA:0.2"], "JSA:0.2"),
        (["--divergence=JSG:alpha=0.2"], "JSG:0.2"),
        (["--divergence", "bayesdiv.KL"], "KL"),
        (["--divergence", "deterministic"], "deterministic"),
        (["--config", "short.yaml"], "JSA:0.25"),
    ],
)
def test_a_divergence_is_a_name_with_alpha_on_the_command_line_and_in_a_file(numbers, given, kept):
    Path("short.yaml").write_text("divergence: JSA:0.25\nhidden: 7,5\n")
    options = ["--hidden", "7,5"] if "--config" not in given else []
    assert call("train", numbers, *given, *options, "--out", "run", *QUICK) == 0
    settings = json.loads(Path("run/settings.json").read_text())
    assert settings["divergence"] == kept
    assert settings["training"]["hidden"] == [7, 5]


def test_markup_in_names_shows_as_text(capsys):
    frame = table().rename(columns={"y": "[red]y[/red]"})
    frame.to_csv("t.csv", index=False)
    assert call("train", "t.csv", "--out", "run", *QUICK) == 0
    capsys.readouterr()
    assert call("show", "run") == 0
    assert "[red]y[/red]" in capsys.readouterr().out
    assert call("train", "t.csv", "--out", "run[/]", *QUICK) == 0
    assert "Run: run[/]" in capsys.readouterr().out
    frame.to_csv("a$b^$[v].csv", index=False)
    arguments = ["--divergences", "KL", "--seeds", "1", *QUICK]
    assert call("compare", "a$b^$[v].csv", *arguments) == 0
