"""Kinds of targets: what each needs, from a column to the command line and a report."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.distributions import Categorical, Normal, Poisson

from bayesdiv.app import task as tasks
from bayesdiv.app.data.loading import load
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.report.page import page
from bayesdiv.app.settings import restore, task_of
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.counts import Counts
from bayesdiv.app.tasks.regression import Regression
from bayesdiv.predictive import Predictive
from command import call

QUICK = ["--epochs", "8", "--test_samples", "20"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def counted(rows: int = 120) -> pd.DataFrame:
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 2))
    visits = random.poisson(np.exp(1.0 + 0.6 * x[:, 0]))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "visits": visits})


def test_metrics_of_a_regression_are_those_of_the_target_in_its_units():
    task, y = Regression(loc=150.0, scale=50.0), torch.tensor([0.5, -1.0])
    predictive = Predictive(Normal(torch.tensor([[0.0, 0.0]]), 1.0))
    found = task.measured(predictive, y)
    target, error = np.array([175.0, 100.0]), np.array([25.0, 50.0])
    assert found["rmse"] == pytest.approx(math.sqrt((error**2).mean()))
    assert found["nll"] == pytest.approx(-stats.norm(150, 50).logpdf(target).mean(), rel=1e-6)
    assert found["coverage"] == 1.0


def test_metrics_of_counts_are_those_of_scipy():
    rates, y = torch.tensor([[1.0, 4.0, 2.5]]), torch.tensor([0.0, 9.0, 2.0])
    found = Counts().measured(Predictive(Poisson(rates)), y)
    assert found["nll"] == pytest.approx(-stats.poisson(rates[0]).logpmf(y).mean(), rel=1e-6)
    assert found["rmse"] == pytest.approx(float((rates[0] - y).square().mean().sqrt()))
    low, high = stats.poisson(rates[0]).ppf(0.05), stats.poisson(rates[0]).ppf(0.95)
    assert found["coverage"] == pytest.approx(((low <= y.numpy()) & (y.numpy() <= high)).mean())


def test_columns_of_counts_hold_the_quantiles_of_scipy():
    rates = torch.tensor([[1.0, 4.0, 2.5]])
    columns = Counts().columns(Predictive(Poisson(rates)), 0.8)
    assert columns["predicted_mean"].tolist() == rates[0].tolist()
    assert columns["predicted_low"].tolist() == stats.poisson(rates[0]).ppf(0.1).tolist()
    assert columns["predicted_high"].tolist() == stats.poisson(rates[0]).ppf(0.9).tolist()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, 2, -3] * 4, "the target of counts must hold 0, 1, 2, …, got -3 in row 3 of 'y'"),
        ([1, 2.5, 3] * 4, "got 2.5 in row 2"),
        (["few", "many", "none"] * 4, "the target of counts must hold numbers, got 'few'"),
    ],
)
def test_what_is_no_count_is_refused(values, words):
    pd.DataFrame({"x": range(12), "y": values}).to_csv("t.csv", index=False)
    with pytest.raises(DataError, match=words):
        load("t.csv", task=Counts)


def test_missed_is_measured_of_two_classes_alone():
    two = Predictive(Categorical(torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])))
    three = Predictive(Categorical(torch.tensor([[[0.8, 0.1, 0.1], [0.2, 0.4, 0.4]]])))
    y = torch.tensor([1, 1])
    assert Classification(("no", "yes")).measured(two, y)["false_negative_rate"] == 0.5
    assert "false_negative_rate" not in Classification(("a", "b", "c")).measured(three, y)
    assert "false_negative_rate" not in Classification(("no", "yes")).measured(two, 0 * y)


@pytest.mark.parametrize(
    "task", [Regression(1.5, 2.0), Classification(("no", "yes")), Counts()], ids=tasks.name_of
)
def test_a_task_survives_json(task):
    assert task_of({"task": tasks.described(task)}) == task


def test_counts_are_trained_predicted_and_reported_from_the_command_line(capsys):
    counted().to_csv("visits.csv", index=False)
    assert call("train", "visits.csv", "--task", "counts", "--out", "run", *QUICK) == 0
    experiment, settings = restore(Path("run"))
    assert type(experiment.likelihood).__name__ == "Poisson"
    units = {"loc": 0.0, "scale": 1.0, "family": "", "centre": 0.0, "width": 1.0}
    assert settings["task"] == {"kind": "counts", **units}
    assert call("show", "run") == 0
    assert "counts" in capsys.readouterr().out
    assert call("predict", "run", "visits.csv", "-o", "predicted.csv") == 0
    table = pd.read_csv("predicted.csv")
    assert (table["predicted_mean"] > 0).all()
    assert (table["predicted_low"] % 1 == 0).all()
    assert (table["predicted_low"] <= table["predicted_high"]).all()
    assert call("evaluate", "run") == 0
    assert "coverage" in capsys.readouterr().out
    text = page([Path("run")])
    assert "counts: the target is 0, 1, 2, …" in text
    assert "of all targets inside" in text


def test_whole_numbers_are_counts_only_if_asked(capsys):
    frame = counted()
    frame.assign(visits=frame["visits"] % 3).to_csv("visits.csv", index=False)
    assert isinstance(load("visits.csv").task, Classification)
    assert isinstance(load("visits.csv", task=Counts).task, Counts)
    assert call("train", "visits.csv", "--task", "ranks", "--out", "run") == 2
    assert "one of classification, counts, regression, got ranks" in capsys.readouterr().err


def test_a_file_with_a_task_of_ones_own_reaches_the_command_line(tmp_path, monkeypatch, capsys):
    """Student's t noise: the likelihood, and all else from the quantity it is."""
    folder = tmp_path / "more_tasks"
    folder.mkdir()
    (folder / "heavy_tailed.py").write_text(
        '''
from dataclasses import dataclass

from bayesdiv.app.tasks.regression import Regression
from bayesdiv.likelihoods import StudentTNoise


@dataclass(frozen=True)
class HeavyTailed(Regression):
    """A quantity with outliers."""

    outputs = 1

    def likelihood(self):
        return StudentTNoise()
'''
    )
    package = tasks.tasks
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    counted().to_csv("visits.csv", index=False)
    assert call("train", "visits.csv", "--task", "heavy_tailed", "--out", "run", *QUICK) == 0
    assert "coverage" in capsys.readouterr().out
    experiment, _ = restore(Path("run"))
    assert type(experiment.likelihood).__name__ == "StudentTNoise"
    assert "of all targets inside" in page([Path("run")])
