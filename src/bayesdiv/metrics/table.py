"""What a table or an axis says about each metric."""

import operator
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from torch import Tensor

from bayesdiv.predictive import Predictive

TARGET, NATS, SHARE = "units of the target", "nats per target", "share"
LEVEL = 0.9  # of the intervals that coverage counts where none is given


class Metric(NamedTuple):
    """A metric with what a table or an axis says about it.

    Attributes:
        function: (predictive, y) to a number.
        title: short, as the head of a column.
        unit: `TARGET`, `NATS` or `SHARE`.
        aim: which value is best, in words.
        loss: of a value, less where it is better.
        explained: what it is, for a line below a table.
    """

    function: Callable[[Predictive, Tensor], Tensor]
    title: str
    unit: str
    aim: str
    loss: Callable[[float], float]
    explained: str

    @property
    def label(self) -> str:
        """For an axis: the title, with nats where they are the unit."""
        return f"{self.title} (nats)" if self.unit == NATS else self.title


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
    """Enter a function of a `Predictive` and targets in `TABLE`; one of your own too.

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
