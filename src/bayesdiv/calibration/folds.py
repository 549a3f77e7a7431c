"""CV+: intervals from rows that are calibrated on in one fold and learned from in the others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bayesdiv.calibration.conformal import one_per_row, rank
from bayesdiv.calibration.intervals import Ends, Scaled, Score
from bayesdiv.calibration.saved import Saved
from bayesdiv.predictive import Predictive


@dataclass(frozen=True)
class FoldIntervals(Saved):
    """Intervals by CV+ (Barber et al. 2021), for tables too small to hold rows out of.

    One model per fold, trained without it. With s_i the score of row i under the model that has not
    seen it, and [l_i(x), u_i(x)] what that model says has a score of at most s_i at a new x,

        [k-th largest of all l_i(x), k-th smallest of all u_i(x)],   k = ⌈(n + 1) · level⌉

    The promise is weaker than that of `Intervals`: with K equal folds of n rows, a target lies
    inside with probability

        1 - 2(1 - level) - min(2(1 - 1/K)/(n/K + 1), (1 - K/n)/(K + 1))

    or more. In practice it is near `level`; every row is both learned from and calibrated on.

    Args:
        level: near which the coverage is.
        score: what is ranked: `Scaled` or `Quantiles`.
        scores: of all rows, (rows,).
        folds: the number of each row's fold, (rows,).

    Examples:
        >>> from torch.distributions import Normal
        >>> folds = [(Predictive(Normal(torch.zeros(1, 5), 1.0)), torch.arange(5.0) + k) for k in (0, 1)]
        >>> intervals = FoldIntervals.fit(folds, level=0.8)
        >>> intervals([Predictive(Normal(torch.full((1, 1), mean), 1.0)) for mean in (0.0, 10.0)])
        (tensor([-3.0000]), tensor([14.0000]))
    """  # noqa: E501

    level: float
    score: Score
    scores: Tensor
    folds: Tensor

    @property
    def promised(self) -> float:
        """The probability that is promised whatever the models: 0 where nothing is."""
        n, k = len(self.folds), int(self.folds.max()) + 1
        less = min(2 * (1 - 1 / k) / (n / k + 1), (1 - k / n) / (k + 1))
        return max(0.0, 1 - 2 * (1 - self.level) - less)

    @classmethod
    def fit(
        cls,
        folds: Sequence[tuple[Predictive, Tensor]],
        level: float = 0.9,
        *,
        score: Score | None = None,
    ) -> Self:
        """Rank the rows of all folds.

        Args:
            folds: of each, what the model that was trained without it predicts, and the targets.
            level: near which the coverage shall be.
            score: None is `Scaled()`.
        """
        score = score or Scaled()
        found = [score.scores(each, one_per_row(each, y), level) for each, y in folds]
        if len(found) < 2:
            raise ValueError(f"there must be two folds or more, got {len(found)}")
        places = [torch.full((len(own),), k) for k, own in enumerate(found)]
        return cls(level, score, torch.cat(found), torch.cat(places))

    def __call__(self, predictives: Sequence[Predictive]) -> Ends:
        """Both ends for each new row.

        Args:
            predictives: of the new rows, by the model of each fold, in the order of `fit`.
        """
        pairs = [
            self.score.interval(each, own.unsqueeze(1).to(each.mean.device), self.level)
            for k, each in enumerate(predictives)
            for own in (self.scores[self.folds == k],)
        ]
        low, high = (torch.cat(ends) for ends in zip(*pairs, strict=True))  # (n, rows, …)
        wanted = rank(len(low), self.level)
        if wanted > len(low):
            return torch.full_like(low[0], -math.inf), torch.full_like(high[0], math.inf)
        return low.sort(0).values[-wanted], high.sort(0).values[wanted - 1]
