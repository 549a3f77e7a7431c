"""What a metric is, and how good predictions of numbers and whole distributions are."""

import math
import operator
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv import quantiles
from bayesdiv.predictive import Predictive

TARGET, NATS, SHARE = "units of the target", "nats per target", "share"
LEVEL = 0.9  # of the intervals that coverage counts where none is given


class Metric(NamedTuple):
    """A metric with what a table says about it."""

    function: Callable[[Predictive, Tensor], Tensor]  # of a prediction and targets
    title: str  # short, as the head of a column
    unit: str  # `TARGET`, `NATS` or `SHARE`
    aim: str  # which value is best, in words
    loss: Callable[[float], float]  # of a value, less where it is better
    explained: str  # what it is, for a line below a table


TABLE: dict[str, Metric] = {}
"""Every metric that is one number, by the name of its function."""


Aim = tuple[str, Callable[[float], float]]
AT_LEVEL: Aim = (f"next to {LEVEL} is best", lambda share: abs(share - LEVEL))
LOWEST: Aim = ("lowest is best", float)
HIGHEST: Aim = ("highest is best", operator.neg)
_Own = TypeVar("_Own", bound=Callable[..., Tensor])


def metric(title: str, unit: str, aim: Aim, explained: str) -> Callable[[_Own], _Own]:
    """Enter a function of a `Predictive` and targets in `TABLE`; also your own.

    Examples:
        >>> @metric("worst", TARGET, LOWEST, "the largest error of all")
        ... def worst(predictive: Predictive, y: Tensor) -> Tensor:
        ...     return (predictive.mean - y).abs().max()
        >>> TABLE.pop("worst").explained
        'worst: the largest error of all'
    """

    def enter(function: _Own) -> _Own:
        TABLE[function.__name__] = Metric(function, title, unit, *aim, f"{title}: {explained}")
        return function

    return enter


def targets(predictive: Predictive, y: Tensor) -> Tensor:
    """The targets, of which there must be one at least."""
    if y.numel() == 0:
        raise ValueError(f"a metric needs at least one target, got shape {tuple(y.shape)}")
    return predictive.checked(y)


def numbers(predictive: Predictive, y: Tensor) -> Tensor:
    """The targets, which must be numbers."""
    if predictive.discrete:
        raise ValueError("this metric needs targets that are numbers, got classes")
    return targets(predictive, y)


def labelled(predictive: Predictive, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean class probabilities (N, C) and labels (N,)."""
    if not predictive.discrete:
        raise ValueError("this metric needs targets that are classes, got numbers")
    y = targets(predictive, y)
    return predictive.probabilities.detach().flatten(0, -2), y.flatten()


@metric("NLL", NATS, LOWEST, "negative log-likelihood per target, in nats")
def nll(predictive: Predictive, y: Tensor) -> Tensor:
    """Negative log-likelihood per target, of the mixture of all draws.

        -1/N Σ_i log 1/S Σ_s p(y_i | x_i, w_s)

    Examples:
        >>> nll(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([0.0, 1.0]))
        tensor(1.1689)
    """
    return -predictive.log_prob(targets(predictive, y)).mean()


@metric("CRPS", TARGET, LOWEST, "continuous ranked probability score, in the units of the target")
def crps(predictive: Predictive, y: Tensor, count: int = 2000) -> Tensor:
    """Continuous ranked probability score: the absolute error of a whole distribution.

        1/N Σ_i ∫ (F_i(z) - [y_i ≤ z])² dz  =  1/N Σ_i (E|Y_i - y_i| - ½ E|Y_i - Y_i'|)

    In closed form for mixtures of Gaussians, else by `count` samples per target.

    Examples:
        >>> crps(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([0.0, 1.0]))
        tensor(0.4181)
    """
    y = numbers(predictive, y)
    each = predictive.marginals
    if isinstance(each, Normal):
        to_target = _absolute(y - each.loc, each.scale).mean(0)
        between = torch.zeros_like(to_target)
        # One by one: all pairs of draws at once need S² B numbers.
        for loc, scale in zip(each.loc, each.scale, strict=True):
            between += _absolute(each.loc - loc, torch.hypot(each.scale, scale)).mean(0)
        return (to_target - 0.5 * between / len(each.loc)).mean()
    if count < 2:
        raise ValueError(f"count must be at least 2, got {count}")
    drawn = predictive.sample(count)
    # Of pairs of different samples in ascending order, E|Y - Y'| is a weighted sum.
    weights = torch.arange(1 - count, count, 2).to(drawn) / (count * (count - 1))
    half: Tensor = torch.tensordot(weights, drawn.sort(0).values, dims=1)
    return ((drawn - y).abs().mean(0) - half).mean()


def _absolute(loc: Tensor, scale: Tensor) -> Tensor:
    """E|X| of a Gaussian: 2 scale φ(z) + loc (2 Φ(z) - 1), z = loc/scale."""
    z = loc / scale
    return scale * math.sqrt(2 / math.pi) * torch.exp(-0.5 * z * z) + loc * torch.erf(z / 2**0.5)


def pit(predictive: Predictive, y: Tensor) -> Tensor:
    """Probability integral transform F_i(y_i) of each target: even on [0, 1] if calibrated.

    A count is put at random between F(y - 1) and F(y), which makes it even as well.

    Examples:
        >>> pit(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([0.0, 2.0]))
        tensor([0.5000, 0.9772])
    """
    y = numbers(predictive, y)
    top = predictive.cdf(y)
    if not quantiles.is_discrete(predictive.marginals):
        return top
    below = quantiles.cdf(predictive.marginals, y - 1).mean(0)
    return torch.lerp(below, top, torch.rand_like(top))


@metric("sharpness", TARGET, LOWEST, "mean predictive standard deviation")
def sharpness(predictive: Predictive, y: Tensor) -> Tensor:
    """Mean predictive standard deviation, 1/N Σ_i √variance_i; `y` is only checked.

    Less is better among predictions that are equally well calibrated, and only there.

    Examples:
        >>> sharpness(Predictive(Normal(torch.zeros(1, 2), 0.5)), torch.zeros(2))
        tensor(0.5000)
    """
    numbers(predictive, y)
    return predictive.variance.sqrt().mean()


@metric("RMSE", TARGET, LOWEST, "root mean squared error, in the units of the target")
def rmse(predictive: Predictive, y: Tensor) -> Tensor:
    """Root mean squared error of the predictive mean, √(1/N Σ_i (mean_i - y_i)²).

    Examples:
        >>> rmse(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([3.0, 4.0]))
        tensor(3.5355)
    """
    y = numbers(predictive, y)
    return (predictive.mean - y).square().mean().sqrt()


@metric("coverage", SHARE, AT_LEVEL, "share of targets inside their 90 % interval")
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
