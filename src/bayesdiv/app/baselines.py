"""What simple models of scikit-learn reach on the same parts of the data, beside the networks."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal, Poisson

from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.predictive import Predictive

MOST_COLUMNS = 1000  # pixels and the like: a forest of more takes longer than it is worth
MOST_ROWS = 20_000  # that each tree of a forest is grown on


def baselines(splits: Splits, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Test metrics and seconds of a constant, a linear model, a random forest and boosting.

    Their errors are taken as Gaussian, with the spread of the validation rows; counts as Poisson.
    A class has at least the probability of one training row, since a forest often gives it none.
    """
    return {
        name: {"test": splits.task.measured(predictive, splits.test.y), "seconds": seconds}
        for name, predictive, seconds in forecasts(splits, splits.test.x, seed)
    }


def forecasts(splits: Splits, x: Tensor, seed: int = 0) -> Iterator[tuple[str, Predictive, float]]:
    """What each model of `baselines` predicts for rows of x, and the seconds that it took."""
    if splits.num_features > MOST_COLUMNS:
        return
    for name, model in _models(splits, seed).items():
        began = time.perf_counter()
        model.fit(*_arrays(splits.train))
        forecast = _forecast(model, splits, x.flatten(1).double().numpy())
        yield name, Predictive(forecast), time.perf_counter() - began


def _arrays(part: Part) -> tuple[NDArray[np.float64], NDArray[Any]]:
    return part.x.flatten(1).double().numpy(), part.y.numpy()


def _models(splits: Splits, seed: int) -> Mapping[str, Any]:
    """The models by the names that a table has for them."""
    from sklearn import dummy, ensemble, linear_model

    forest = {"random_state": seed, "max_samples": min(MOST_ROWS, splits.num_data), "n_jobs": 1}
    boosting = {"random_state": seed, "early_stopping": splits.num_data >= 1000}
    if splits.train.y.is_floating_point():
        kind, constant, linear = "Regressor", "mean", linear_model.LinearRegression()
    else:
        kind, constant = "Classifier", "class shares"
        linear = linear_model.LogisticRegression(max_iter=1000)
    return {
        constant: getattr(dummy, f"Dummy{kind}")(),
        "linear": linear,
        "random forest": getattr(ensemble, f"RandomForest{kind}")(**forest),
        "boosting": getattr(ensemble, f"HistGradientBoosting{kind}")(**boosting),
    }


def _forecast(model: Any, splits: Splits, x: NDArray[np.float64]) -> Distribution:
    """The distribution of the targets of rows, as one draw."""
    if not splits.train.y.is_floating_point():
        shares = np.full((len(x), splits.task.outputs), 1 / splits.num_data)
        shares[:, model.classes_] += model.predict_proba(x)
        return Categorical(torch.from_numpy(shares).float()[None])
    loc = torch.from_numpy(model.predict(x)).float()[None]
    forecast = splits.task.likelihood()(torch.zeros(1, splits.task.outputs))
    if getattr(forecast.support, "is_discrete", False):
        return Poisson(loc.clamp(min=1 / splits.num_data))
    beside, y = _arrays(splits.validation if len(splits.validation.y) else splits.train)
    scale = float(np.sqrt(np.mean((model.predict(beside) - y) ** 2)))
    return Normal(loc, max(scale, 1e-6))
