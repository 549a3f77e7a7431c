"""Intervals of paired differences.

A comparison is paired (same fold, same seed). Its interval is Student's t on the differences; for
random splits that share rows the variance is s² (1/k + n_test/n_train) (Nadeau and Bengio 2003);
where all folds share their test rows, the variance of resampling those rows is added.
"""

import math
import statistics
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95


class Standing(Enum):
    """Where an interval lies."""

    AHEAD = "ahead"
    LEVEL = "level"
    UNDECIDED = "undecided"
    BEHIND = "behind"


class Interval(NamedTuple):
    """An estimate with its confidence interval.

    Args:
        mean: the estimate.
        low: the lower end.
        high: the upper end.
        n: how many differences it rests on.
    """

    mean: float
    low: float
    high: float
    n: int

    def times(self, factor: float) -> "Interval":
        """The same in another unit; a negative factor turns it round.

        Examples:
            >>> Interval(1.0, -1.0, 3.0, 5).times(-2)
            Interval(mean=-2.0, low=-6.0, high=2.0, n=5)
        """
        low, high = sorted((factor * self.low, factor * self.high))
        return Interval(factor * self.mean, low, high, self.n)

    def text(self, digits: int = 2) -> str:
        """As a table shows it; a single difference has no interval.

        Examples:
            >>> Interval(1.54, 0.4, 2.7, 3).text(1), Interval(1.5, -math.inf, math.inf, 1).text(1)
            ('+1.5 [+0.4, +2.7]', '+1.5 [no interval]')
        """
        # Adding 0 turns a -0 into 0.
        mean, low, high = (f"{round(value, digits) + 0.0:+.{digits}f}" for value in self[:3])
        known = math.isfinite(self.low) and math.isfinite(self.high)
        return f"{mean} [{low}, {high}]" if known else f"{mean} [no interval]"


def student(
    differences: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    overlap: float = 0.0,
    rows: float = 0.0,
) -> Interval:
    """Student's t interval of the mean of paired differences.

    Infinite differences (a run without a finite result) have no mean: then it is the interval of
    the median by order statistics.

    Args:
        differences: one per fold or split.
        confidence: of the interval.
        overlap: n_test/n_train where the splits are random and share rows.
        rows: variance of the mean from resampling the test rows that all folds share.

    Examples:
        >>> student([1.0, 2.0, 3.0]).text()
        '+2.00 [-0.48, +4.48]'
    """
    from scipy import stats  # where results are computed it may not be at hand

    n = len(differences)
    if not all(map(math.isfinite, differences)):
        return _of_the_median(differences, confidence)
    mean = statistics.fmean(differences)
    if n < 2:
        return Interval(mean, -math.inf, math.inf, n)
    variance = statistics.variance(differences) * (1 / n + overlap) + rows
    reach = float(stats.t.ppf(0.5 + confidence / 2, n - 1)) * math.sqrt(variance)
    return Interval(mean, mean - reach, mean + reach, n)


def _of_the_median(values: Sequence[float], confidence: float) -> Interval:
    """The widest pair of order statistics whose coverage is at least that; else all values."""
    from scipy import stats

    ordered, n = sorted(values), len(values)
    inner = int(stats.binom.ppf((1 - confidence) / 2, n, 0.5))
    low, high = ordered[max(inner - 1, 0)], ordered[min(n - inner, n - 1)]
    return Interval(ordered[n // 2], low, high, n)


def row_variance(answers: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> float:
    """Variance of a mean over folds and test rows when the rows are drawn again with replacement.

    The bootstrap of a mean has this closed form: s²/n of the rows' means over folds.

    Args:
        answers: differences of two models, (folds, rows).

    Examples:
        >>> row_variance(np.array([[1.0, 0.0, 0.0, 1.0]]))
        0.0625
    """
    means = answers.mean(axis=0)
    return float(means.var() / means.size)


def standing(interval: Interval, margin: float = 0.0) -> Standing:
    """Ahead or behind where the interval excludes 0, level where it lies within the margin.

    Examples:
        >>> standing(Interval(1.0, 0.5, 1.5, 5)), standing(Interval(0.1, -0.2, 0.4, 5), margin=0.5)
        (<Standing.AHEAD: 'ahead'>, <Standing.LEVEL: 'level'>)
    """
    if interval.low > 0:
        return Standing.AHEAD
    if interval.high < 0:
        return Standing.BEHIND
    within = -margin <= interval.low and interval.high <= margin
    return Standing.LEVEL if within else Standing.UNDECIDED
