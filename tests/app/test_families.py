"""Likelihoods by their words, in the estimators and on the command line."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import bayesdiv as bd
from bayesdiv.app import options
from bayesdiv.app.command import Command
from bayesdiv.app.data.loading import load
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.families import FAMILIES, candidates, family_of, in_units
from bayesdiv.app.settings import task_of
from bayesdiv.app.sklearn import estimators
from bayesdiv.app.task import described
from bayesdiv.app.tasks.counts import Counts
from bayesdiv.app.tasks.regression import Regression

QUICK = {
    "epochs": 12,
    "test_samples": 20,
    "members": 2,
    "samples": 2,
    "learning_rate": 0.02,
    "random_state": 0,
}
LOC, SCALE = torch.tensor([3.0], dtype=torch.float64), torch.tensor([20.0], dtype=torch.float64)


@pytest.fixture(scope="module")
def positive():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2))
    return x, 1000 * rng.gamma(4, np.exp(x[:, 0]) / 4)


@pytest.mark.parametrize("word", FAMILIES)
def test_distributions_in_units_are_those_of_the_rescaled_targets(word):
    family = family_of(word)
    y = np.array([[1.0], [2.0], [7.0]])
    units = family.units(y, np.ones(3))
    likelihood = family.likelihood(units).double()
    torch.manual_seed(0)
    outputs = 0.5 * torch.randn(2, 3, family.outputs, dtype=torch.float64)
    found = likelihood(outputs)
    positive = word in ("log_normal", "gamma")
    loc = torch.zeros_like(LOC) if positive else LOC
    if word in ("poisson", "negative_binomial"):
        assert in_units(found, torch.zeros(1), torch.ones(1)) is found
        return
    moved = in_units(found, loc, SCALE)
    at = torch.tensor([0.4, 1.0, 2.5], dtype=torch.float64)
    wanted = found.log_prob(at) - SCALE.log()
    assert torch.allclose(moved.log_prob(loc + SCALE * at), wanted)
    assert torch.allclose(moved.mean, loc + SCALE * found.mean)


def test_words_are_offered_where_targets_allow_them():
    everywhere = ["heteroscedastic", "gaussian", "student_t", "mixture"]
    assert candidates(np.array([[-1.0], [2.5]])) == everywhere
    assert candidates(np.array([[0.5], [2.5]])) == [*everywhere, "log_normal", "gamma"]
    assert candidates(np.array([[1.0], [2.0]])) == list(FAMILIES)
    assert "student_t" not in candidates(np.array([[1.0, 0.5], [2.0, 0.1]]))


@pytest.mark.parametrize("word", ["log_normal", "gamma"])
def test_positive_targets_have_intervals_above_zero(positive, word):
    x, y = positive
    model = bd.BayesianRegressor(likelihood=word, **QUICK).fit(x, y)
    low, high = model.predict_interval(x, level=0.9)
    assert low.min() > 0
    assert 0.8 < np.mean((low <= y) & (y <= high)) <= 1.0
    assert model.score(x, y) > 0.3
    assert model.family_ == word


def test_several_positive_targets_are_learned_in_their_own_units(positive):
    x, y = positive
    model = bd.BayesianRegressor(likelihood="gamma", **QUICK).fit(x, np.c_[y, 1e-6 * y])
    low, high = model.predict_interval(x)
    inside = (low <= np.c_[y, 1e-6 * y]) & (np.c_[y, 1e-6 * y] <= high)
    assert (inside.mean(0) > 0.8).all()


def test_auto_takes_the_likelihood_of_the_targets_and_says_so(positive, monkeypatch):
    monkeypatch.setattr(estimators, "UPDATES", 40)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(150, 1))
    y = rng.lognormal(2 * x[:, 0], 0.8)
    model = bd.BayesianRegressor(likelihood="auto", **QUICK).fit(x, y)
    assert model.family_ in ("log_normal", "gamma")
    assert model.report_.startswith(f"likelihood {model.family_} chosen by validation NLL, ")
    assert "heteroscedastic" in model.report_


def test_a_unit_s_probability_stands_beside_that_of_counts():
    y = np.array([[0.0], [3.0]])
    normal = bd.Predictive(torch.distributions.Normal(torch.zeros(1, 2).double(), 2.0))
    wanted = np.log(stats.norm(0, 2).cdf(y[:, 0] + 0.5) - stats.norm(0, 2).cdf(y[:, 0] - 0.5))
    assert np.allclose(estimators._log_score(normal, y, whole=True), wanted)
    assert np.allclose(
        estimators._log_score(normal, y, whole=False), stats.norm(0, 2).logpdf(y[:, 0])
    )


@pytest.mark.parametrize(
    ("word", "targets", "message"),
    [
        ("gamma", [1.0, 0.0, 2.0], r"must be positive, got 0.0: use 'heteroscedastic'"),
        ("poisson", [1.0, 0.5, 2.0], r"must be 0, 1, 2, …, got 0.5"),
    ],
)
def test_targets_that_a_family_cannot_have_are_refused(word, targets, message):
    model = bd.BayesianRegressor(likelihood=word, epochs=1)
    with pytest.raises(ValueError, match=message):
        model.fit([[0.0], [1.0], [2.0]], targets)


@pytest.fixture(scope="module")
def priced(tmp_path_factory, positive):
    path = tmp_path_factory.mktemp("prices") / "prices.csv"
    x, y = positive
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "price": y}).to_csv(path, index=False)
    return path


def test_a_file_is_loaded_under_a_likelihood(priced):
    splits = load(priced, likelihood="gamma")
    assert splits.task.family == "gamma"
    assert task_of({"task": described(splits.task)}) == splits.task
    assert (splits.train.y > 0).all()
    assert splits.train.y.log().mean().abs() < 1e-5
    assert type(splits.task.likelihood()).__name__ == "Gamma"
    with pytest.raises(DataError, match=r"must be 0, 1, 2, …"):
        load(priced, likelihood="poisson")
    with pytest.raises(DataError, match=r"are numbers, got gamma .*'digits': leave it out$"):
        load("digits", likelihood="gamma")


def test_counts_and_quantities_have_the_likelihoods_that_they_had():
    assert Regression.fit(pd.Series([1.0, 3.0])) == Regression(2.0, 1.0)
    assert type(Counts.fit(pd.Series([0, 3])).likelihood()).__name__ == "Poisson"
    assert type(Regression(150.0, 50.0).likelihood()).__name__ == "HeteroscedasticGaussian"


def test_auto_on_the_command_line_is_settled_once_and_noted(priced, monkeypatch):
    monkeypatch.setattr(estimators, "UPDATES", 40)
    command = Command("", "")
    options.add_data(command)
    settings = command.parse_args([str(priced), "--likelihood", "auto"])
    source = options.open_data(settings)
    first = options.part_data(source, settings, seed=0)
    assert settings.likelihood == first.task.family != "auto"
    assert first.notes[-1].startswith(f"likelihood {first.task.family} chosen by validation NLL")
    assert options.part_data(source, settings, seed=1).task.family == first.task.family
