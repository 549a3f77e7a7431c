"""Intervals of paired differences.

A comparison is paired (same fold, same seed). Its interval is Student's t on the differences; for
random splits that share rows the variance is s² (1/k + n_test/n_train) (Nadeau and Bengio 2003);
where all folds share their test rows, the variance of resampling those rows is added. Intervals are
widened (Bonferroni) for the best of several and for one of several parts.
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
        mean = _signed(self.mean, digits)
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return f"{mean} [no interval]"
        # An end that rounds to 0 gets more digits: its sign says whether the interval holds 0.
        low, high = (_signed(end, _digits(end, digits)) for end in (self.low, self.high))
        return f"{mean} [{low}, {high}]"

    def widened(self, parts: int, confidence: float = CONFIDENCE) -> "Interval":
        """The interval of one of several parts, so that all hold together (Bonferroni).

        Args:
            parts: how many there are.
            confidence: of this interval.

        Student's interval is symmetric and follows from mean, reach and n. That of a median does
        not: it becomes infinite.

        Examples:
            >>> Interval(1.0, 0.0, 2.0, 5).widened(2).text(), Interval(1.0, 0.0, 2.0, 5).widened(1)
            ('+1.00 [-0.26, +2.26]', Interval(mean=1.0, low=0.0, high=2.0, n=5))
        """
        if parts == 1:
            return self
        reach = self.high - self.mean
        symmetric = math.isfinite(reach) and math.isclose(
            reach, self.mean - self.low, rel_tol=1e-6, abs_tol=1e-12
        )
        if not symmetric:
            return Interval(self.mean, -math.inf, math.inf, self.n)
        reach *= _quantile(corrected(confidence, parts), self.n) / _quantile(confidence, self.n)
        return Interval(self.mean, self.mean - reach, self.mean + reach, self.n)


def corrected(confidence: float, parts: int) -> float:
    """The confidence of each of several parts for all of them together to have this one.

    Examples:
        >>> round(corrected(0.95, 2), 4)
        0.975
    """
    return 1 - (1 - confidence) / parts


def _quantile(confidence: float, n: int) -> float:
    from scipy import stats  # where results are computed it may not be at hand

    return float(stats.t.ppf(0.5 + confidence / 2, n - 1))


def _signed(value: float, digits: int) -> str:
    # Adding 0 turns a -0 into 0.
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def _digits(end: float, digits: int) -> int:
    """Enough of them for an end that is not 0 not to look like it, within rounding."""
    more = range(digits, digits + 5)
    return next((own for own in more if round(end, own)), digits)


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
    n = len(differences)
    if not all(map(math.isfinite, differences)):
        return _of_the_median(differences, confidence, overlap)
    mean = statistics.fmean(differences)
    if n < 2:
        return Interval(mean, -math.inf, math.inf, n)
    variance = statistics.variance(differences) * (1 / n + overlap) + rows
    reach = _quantile(confidence, n) * math.sqrt(variance)
    return Interval(mean, mean - reach, mean + reach, n)


def _of_the_median(values: Sequence[float], confidence: float, overlap: float) -> Interval:
    """The narrowest pair of order statistics whose coverage is at least that.

    An end that no order statistic reaches is infinite. Splits that share rows widen the share of
    values below the median to 1/2 ± t/2 √(1/n + overlap). Equal values have no spread, as in
    Student's interval.
    """
    from scipy import stats

    ordered, n = sorted(values), len(values)
    if ordered[0] == ordered[-1]:
        return Interval(ordered[0], ordered[0], ordered[0], n)
    inner = int(stats.binom.ppf((1 - confidence) / 2, n, 0.5))
    if overlap and inner:
        share = 0.5 - _quantile(confidence, n) / 2 * math.sqrt(1 / n + overlap)
        inner = min(inner, max(math.floor(n * share), 0))
    low, high = (ordered[inner - 1], ordered[n - inner]) if inner else (-math.inf, math.inf)
    return Interval(ordered[n // 2], low, high, n)


def row_variance(
    answers: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", folds: int | None = None
) -> float:
    """Variance of a mean over folds and test rows when the rows are drawn again with replacement.

    The bootstrap of a mean has this closed form: s²/n of the rows' means over folds. Where only
    some folds kept their answers, that variance is the sum of a part that folds share, which stays,
    and of one that differs between them, which the other folds average out further. A single fold
    cannot separate them: all of its variance counts.

    Args:
        answers: differences of two models, (folds that kept them, rows).
        folds: over how many the mean is taken; None is over these.

    Examples:
        >>> row_variance(np.array([[1.0, 0.0, 0.0, 1.0]]))
        0.0625
    """
    kept, rows = answers.shape
    means = answers.mean(axis=0)
    whole = float(means.var())
    if kept == 1 or folds is None or folds == kept:
        return whole / rows
    apart = answers - means - answers.mean(axis=1, keepdims=True) + answers.mean()
    own = float((apart**2).sum() / (kept - 1) / rows)
    return (max(whole - own / kept, 0.0) + own / folds) / rows


def standing(interval: Interval, margin: float = 0.0) -> Standing:
    """Level where the interval lies within the margin, else ahead or behind where it excludes 0.

    Examples:
        >>> standing(Interval(1.0, 0.5, 1.5, 5)), standing(Interval(0.1, -0.2, 0.4, 5), margin=0.5)
        (<Standing.AHEAD: 'ahead'>, <Standing.LEVEL: 'level'>)
    """
    if -margin <= interval.low and interval.high <= margin:
        return Standing.LEVEL
    if interval.low > 0:
        return Standing.AHEAD
    return Standing.BEHIND if interval.high < 0 else Standing.UNDECIDED
