"""Conformal intervals and sets beside those of MAPIE, from the same predictions."""

import numpy as np
import pytest
import torch
from mapie.classification import SplitConformalClassifier
from mapie.regression import (
    ConformalizedQuantileRegressor,
    CrossConformalRegressor,
    SplitConformalRegressor,
)
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold
from torch.distributions import Categorical, Normal

from bayesdiv.calibration import FoldIntervals, Intervals, Quantiles, Sets
from bayesdiv.predictive import Predictive

LEVEL = 0.9


class Known(RegressorMixin, BaseEstimator):
    """A fitted regressor: one quantile of a Gaussian whose noise grows with |x|."""

    def __init__(self, quantile=0.5, even=False):
        self.quantile, self.even = quantile, even

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict(self, X):
        return np.sin(X[:, 0]) + norm.ppf(self.quantile) * noise(X[:, 0], self.even)


class Sure(ClassifierMixin, BaseEstimator):
    """A fitted classifier of four classes, too sure of itself."""

    classes_ = np.arange(4)

    def fit(self, X, y=None):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, X):
        return torch.from_numpy(2.0 * X).softmax(-1).numpy()

    def predict(self, X):
        return X.argmax(1)


def noise(x, even):
    return np.full_like(x, 0.3) if even else 0.1 + 0.3 * np.abs(x)


def predictive(x, even=False):
    loc, scale = (torch.from_numpy(part).unsqueeze(0) for part in (np.sin(x), noise(x, even)))
    return Predictive(Normal(loc, scale))


def rows(count, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=count)
    return x, np.sin(x) + 1.3 * noise(x, False) * rng.standard_t(4, size=count)


@pytest.mark.parametrize("count", [12, 20, 57, 200])
def test_intervals_by_residuals_are_mapies(count):
    (x, y), (new, _) = rows(count, 0), rows(50, 1)
    theirs = SplitConformalRegressor(Known(), confidence_level=LEVEL, prefit=True)
    theirs.conformalize(x[:, None], y)
    _, ends = theirs.predict_interval(new[:, None])
    ours = Intervals.fit(predictive(x, even=True), torch.from_numpy(y), LEVEL)
    low, high = ours(predictive(new, even=True))
    np.testing.assert_allclose(low, ends[:, 0, 0], atol=1e-12)
    np.testing.assert_allclose(high, ends[:, 1, 0], atol=1e-12)


@pytest.mark.parametrize(("count", "folds"), [(20, 4), (57, 5), (20, 20)])
def test_intervals_of_folds_are_mapies(count, folds):
    (x, y), (new, _) = rows(count, 0), rows(50, 1)
    parts = KFold(folds)
    theirs = CrossConformalRegressor(
        LinearRegression(), confidence_level=LEVEL, method="plus", cv=parts
    )
    _, ends = theirs.fit_conformalize(x[:, None], y).predict_interval(new[:, None])

    def said(model, at):
        return Predictive(Normal(torch.from_numpy(model.predict(at[:, None]))[None], 1.0))

    split = list(parts.split(x))
    models = [LinearRegression().fit(x[rest, None], y[rest]) for rest, _ in split]
    held = [
        (said(m, x[own]), torch.from_numpy(y[own]))
        for m, (_, own) in zip(models, split, strict=True)
    ]
    low, high = FoldIntervals.fit(held, LEVEL)([said(model, new) for model in models])
    np.testing.assert_allclose(low, ends[:, 0, 0], atol=1e-12)
    np.testing.assert_allclose(high, ends[:, 1, 0], atol=1e-12)


@pytest.mark.parametrize("count", [20, 57, 200])
def test_conformalised_quantiles_are_mapies(count):
    (x, y), (new, _) = rows(count, 0), rows(50, 1)
    three = [Known(0.05), Known(0.95), Known(0.5)]
    theirs = ConformalizedQuantileRegressor(three, confidence_level=LEVEL, prefit=True)
    theirs.conformalize(x[:, None], y)
    _, ends = theirs.predict_interval(new[:, None], symmetric_correction=True)
    ours = Intervals.fit(predictive(x), torch.from_numpy(y), LEVEL, score=Quantiles())
    low, high = ours(predictive(new))
    np.testing.assert_allclose(low, ends[:, 0, 0], atol=1e-8)
    np.testing.assert_allclose(high, ends[:, 1, 0], atol=1e-8)


def test_adaptive_sets_are_as_large_and_as_right_as_mapies():
    sizes, right = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(700, 4))
        labels = np.array([rng.choice(4, p=p) for p in torch.from_numpy(X).softmax(-1).numpy()])
        held, new = slice(None, 200), slice(200, None)
        theirs = SplitConformalClassifier(
            Sure(), confidence_level=LEVEL, prefit=True, conformity_score="aps", random_state=seed
        )
        theirs.conformalize(X[held], labels[held])
        how = {"include_last_label": "randomized"}
        _, sets = theirs.predict_set(X[new], conformity_score_params=how)
        both = [sets[:, :, 0], _ours(X[held], labels[held], X[new], seed)]
        sizes.append([one.sum(1).mean() for one in both])
        right.append([one[np.arange(500), labels[new]].mean() for one in both])
    (theirs_size, ours_size), (theirs_right, ours_right) = np.mean(sizes, 0), np.mean(right, 0)
    assert abs(ours_right - LEVEL) < 0.01
    assert abs(theirs_right - ours_right) < 0.01
    assert abs(theirs_size - ours_size) < 0.05 * theirs_size


def _ours(X, labels, new, seed):
    torch.manual_seed(seed)
    held, later = (
        Predictive(Categorical(torch.from_numpy(Sure().predict_proba(rows))[None]))
        for rows in (X, new)
    )
    return Sets.fit(held, torch.from_numpy(labels), LEVEL)(later).numpy()
