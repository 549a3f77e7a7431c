"""What simple models of scikit-learn reach on the same parts of the data, beside the networks."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributions import Categorical, Distribution, Normal, Poisson

from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.predictive import Predictive

MOST_COLUMNS = 1000  # pixels and the like: a forest of more takes longer than it is worth
MOST_ROWS = 20_000  # that each tree of a forest is grown on


def baselines(splits: Splits, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Test metrics and seconds of a constant, a linear model, a random forest and boosting.

    Their errors are taken as Gaussian, with the spread of the validation rows; counts as Poisson.
    A class has at least the probability of one training row, since a forest often gives it none.

    Args:
        splits: the data; nothing is fitted to tables of more than 1,000 columns.
        seed: of forest and boosting.

    Examples:
        >>> from bayesdiv.app.data.loading import load
        >>> found = baselines(load("diabetes"))
        >>> found["linear"]["test"]["rmse"] < found["mean"]["test"]["rmse"]
        True
    """
    if splits.num_features > MOST_COLUMNS:
        return {}
    found = {}
    for name, model in _models(splits, seed).items():
        began = time.perf_counter()
        x, y = _arrays(splits.train)
        model.fit(x, y)
        forecast = _forecast(model, splits)
        test = splits.task.measured(Predictive(forecast), splits.test.y)
        found[name] = {"test": test, "seconds": time.perf_counter() - began}
    return found


def _arrays(part: Part) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Inputs as a table, and targets."""
    return part.x.flatten(1).double().numpy(), part.y.numpy()


def _models(splits: Splits, seed: int) -> Mapping[str, Any]:
    """The models by the names that a table has for them."""
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.linear_model import LinearRegression, LogisticRegression

    forest = {"random_state": seed, "max_samples": min(MOST_ROWS, splits.num_data), "n_jobs": 1}
    boosting = {"random_state": seed, "early_stopping": splits.num_data >= 1000}
    if splits.train.y.is_floating_point():
        return {
            "mean": DummyRegressor(),
            "linear": LinearRegression(),
            "random forest": RandomForestRegressor(**forest),
            "boosting": HistGradientBoostingRegressor(**boosting),
        }
    return {
        "class shares": DummyClassifier(),
        "linear": LogisticRegression(max_iter=1000),
        "random forest": RandomForestClassifier(**forest),
        "boosting": HistGradientBoostingClassifier(**boosting),
    }


def _forecast(model: Any, splits: Splits) -> Distribution:
    """The distribution of the test targets, as one draw."""
    x, _ = _arrays(splits.test)
    if not splits.train.y.is_floating_point():
        shares = np.full((len(x), splits.task.outputs), 1 / splits.num_data)
        shares[:, model.classes_] += model.predict_proba(x)
        return Categorical(torch.from_numpy(shares).float()[None])
    loc = torch.from_numpy(model.predict(x)).float()[None]
    if _counts(splits):
        return Poisson(loc.clamp(min=1 / splits.num_data))
    beside, y = _arrays(splits.validation if len(splits.validation.y) else splits.train)
    scale = float(np.sqrt(np.mean((model.predict(beside) - y) ** 2)))
    return Normal(loc, max(scale, 1e-6))


def _counts(splits: Splits) -> bool:
    """Whether the network's own forecasts are of whole numbers."""
    outputs = torch.zeros(1, splits.task.outputs)
    return bool(getattr(splits.task.likelihood()(outputs).support, "is_discrete", False))
