"""How good predictions of numbers are."""

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv.metrics.table import LEVEL, LOWEST, SHARE, TARGET, metric, nearest, numbers
from bayesdiv.predictive import Predictive


@metric("RMSE", TARGET, LOWEST, "root mean squared error, in the units of the target")
def rmse(predictive: Predictive, y: Tensor) -> Tensor:
    """Root mean squared error of the predictive mean, √(1/N Σ_i (mean_i - y_i)²).

    Examples:
        >>> rmse(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([3.0, 4.0]))
        tensor(3.5355)
    """
    y = numbers(predictive, y)
    return (predictive.mean - y).square().mean().sqrt()


@metric("MAE", TARGET, LOWEST, "mean absolute error, in the units of the target")
def mae(predictive: Predictive, y: Tensor) -> Tensor:
    """Mean absolute error of the predictive mean, 1/N Σ_i |mean_i - y_i|.

    Examples:
        >>> mae(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([3.0, -4.0]))
        tensor(3.5000)
    """
    y = numbers(predictive, y)
    return (predictive.mean - y).abs().mean()


@metric("coverage", SHARE, nearest(LEVEL), "share of targets inside their 90 % interval")
def coverage(predictive: Predictive, y: Tensor, level: float = LEVEL) -> Tensor:
    """Share of targets inside their central interval; calibrated noise gives `level`.

        1/N Σ_i [low_i ≤ y_i ≤ high_i]

    Examples:
        >>> coverage(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([1.6, 1.7]))
        tensor(0.5000)
    """
    y = numbers(predictive, y)
    own = type(predictive).interval is Predictive.interval  # not one that was calibrated
    if own and isinstance(predictive.marginals, Normal) and 0 < level < 1:
        # The same rows without the search for their quantiles, which takes long for many.
        below = predictive.cdf(y)
        return ((2 * below - 1).abs() <= level).to(below.dtype).mean()
    low, high = predictive.interval(level)
    return ((low <= y) & (y <= high)).to(low.dtype).mean()


@metric("width", TARGET, LOWEST, "mean width of the 90 % intervals")
def interval_width(predictive: Predictive, y: Tensor, level: float = LEVEL) -> Tensor:
    """Mean width of the central intervals, 1/N Σ_i (high_i - low_i); `y` is only checked.

    Examples:
        >>> interval_width(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.zeros(2))
        tensor(3.2897)
    """
    numbers(predictive, y)
    low, high = predictive.interval(level)
    return (high - low).mean()


@metric("pinball", TARGET, LOWEST, "loss of the 90 % quantile, in the units of the target")
def pinball(predictive: Predictive, y: Tensor, probability: float = LEVEL) -> Tensor:
    """Pinball loss of a quantile q_i, least on average for the true one.

        1/N Σ_i max(probability (y_i - q_i), (1 - probability) (q_i - y_i))

    Examples:
        >>> pinball(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([1.0, -1.0]), 0.5)
        tensor(0.5000)
    """
    gap = numbers(predictive, y) - predictive.quantile(probability)
    return torch.maximum(probability * gap, (probability - 1) * gap).mean()
