"""Predictions that keep their promise: conformal intervals and sets, temperature, posterior spread.

Everything here is chosen on rows that took no part in training. With n such rows, a conformal
threshold is their k-th smallest score,

    k = ⌈(n + 1) · level⌉,   infinite where k > n,

and a new row has a score of at most the threshold with probability k/(n + 1) ≥ `level` if scores
have no ties, and at least that if they do. The promise is marginal: it is an average over
calibration rows and new rows that are exchangeable, such as independent rows of one source; it says
nothing about a single row, nor about rows of another source. Given the calibration rows, coverage
follows the Beta(k, n + 1 - k) distribution, so that few rows promise the mean and little more. With
`groups`, the promise holds within each group, whose rows are then the n that count.

`FoldIntervals` (CV+) needs no rows of their own and promises less.
"""

from bayesdiv.calibration.conformal import (
    Central,
    FoldIntervals,
    Intervals,
    Quantiles,
    Saved,
    Scaled,
    Score,
)
from bayesdiv.calibration.sets import Levels, Promised, Sets, Spread, Temperature

__all__ = ["Central", "FoldIntervals", "Intervals", "Levels", "Promised", "Quantiles", "Saved"]
__all__ += ["Scaled", "Score", "Sets", "Spread", "Temperature"]
