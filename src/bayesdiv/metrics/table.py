"""What a table or an axis says about each metric, and which targets a metric accepts."""

import operator
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

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
LOWEST: Aim = ("lowest is best", float)
HIGHEST: Aim = ("highest is best", operator.neg)
_Own = TypeVar("_Own", bound=Callable[..., Tensor])


def nearest(level: float) -> Aim:
    """The aim of a metric that should hit a value, such as coverage.

    Examples:
        >>> words, loss = nearest(0.9)
        >>> words, min([0.8, 0.95], key=loss)
        ('next to 0.9 is best', 0.95)
    """
    return f"next to {level} is best", lambda value: abs(value - level)


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


def every_class(predictive: Predictive, y: Tensor) -> tuple[Tensor, Tensor]:
    """As `labelled`, where no class may be missing: it would have no rate."""
    probabilities, y = labelled(predictive, y)
    classes = probabilities.shape[-1]
    missing = (torch.bincount(y, minlength=classes) == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(f"a ROC curve needs targets of every class, got none of {missing}")
    return probabilities, y


def two_classes(predictive: Predictive) -> None:
    """Refuse more classes than two."""
    if predictive.discrete and predictive.probabilities.shape[-1] != 2:
        classes = predictive.probabilities.shape[-1]
        raise ValueError(f"this metric needs two classes, got {classes}")
