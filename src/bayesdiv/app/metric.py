"""How each metric is called, in which unit it is and which of its values is best."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from bayesdiv import metrics
from bayesdiv.predictive import Predictive

TARGET, NATS, SHARE = "units of the target", "nats per target", "share"
LEVEL = 0.9  # of the intervals that coverage counts


class Metric(NamedTuple):
    """A function of predictions and targets, with what a table or an axis says about it.

    Args:
        function: (predictive, y) to a number.
        title: short, as a column has it.
        unit: `TARGET`, `NATS` or `SHARE`.
        aim: which value is best, in words.
        loss: of a value, less where it is better.
        explained: what it is, in a line below a table.
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


def _from_level(value: float) -> float:
    return abs(value - LEVEL)


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(
        *(metrics.accuracy, "accuracy", SHARE, "highest is best", operator.neg),
        "accuracy: share of targets whose class is called right",
    ),
    "rmse": Metric(
        *(metrics.rmse, "RMSE", TARGET, "lowest is best", float),
        "RMSE: root mean squared error, in the units of the target",
    ),
    "nll": Metric(
        *(metrics.nll, "NLL", NATS, "lowest is best", float),
        "NLL: negative log-likelihood per target, in nats",
    ),
    "ece": Metric(
        *(metrics.ece, "ECE", SHARE, "lowest is best", float),
        "ECE: expected calibration error, 15 bins",
    ),
    "coverage": Metric(
        *(metrics.coverage, "coverage", SHARE, f"next to {LEVEL} is best", _from_level),
        "coverage: share of targets inside their 90 % interval",
    ),
    "false_negative_rate": Metric(
        *(metrics.false_negative_rate, "missed", SHARE, "lowest is best", float),
        "missed: share of the second class that was not found",
    ),
}


def title(key: str) -> str:
    """The title of a metric, also of one that is not known here.

    Examples:
        >>> title("nll"), title("mean_width")
        ('NLL', 'mean width')
    """
    return METRICS[key].title if key in METRICS else key.replace("_", " ")


def best(key: str, values: Sequence[float], shown: Callable[[float], str]) -> set[int]:
    """Which values are best, as far as the digits that are shown say; none if all are alike.

    Examples:
        >>> best("accuracy", [0.9, 0.95, 0.94], str), best("coverage", [0.95, 0.88], str)
        ({1}, {1})
        >>> best("nll", [2.0], str)
        set()
    """
    usable = [value for value in values if math.isfinite(value)]
    texts = [shown(value) for value in values]
    if len(set(texts)) < 2 or not usable or key not in METRICS:
        return set()
    chosen = shown(min(usable, key=METRICS[key].loss))
    return {place for place, text in enumerate(texts) if text == chosen}
