"""Scores of held-out rows, kept so that intervals or sets of any level can be made of them."""

from dataclasses import dataclass
from typing import Self, cast

from torch import Tensor

from bayesdiv.calibration.conformal import one_per_row, thresholds_of
from bayesdiv.calibration.intervals import Central, Intervals, Scaled, Score
from bayesdiv.calibration.saved import Saved
from bayesdiv.calibration.sets import Sets, scores_of
from bayesdiv.predictive import Predictive

SHARE = 0.0  # of its own probability that counts: the likeliest class is in every set


@dataclass(frozen=True)
class Levels(Saved):
    """Conformal intervals or sets of whatever level is asked for later.

    Targets with a lower bound are scored by `Central`, so that ends stay above it, other numbers
    by `Scaled`; sets of classes never lack the likeliest one.

    Args:
        score: what thresholds bound; None for classes.
        scores: of the held-out rows, (rows, …outputs).

    Examples:
        >>> import torch
        >>> from torch.distributions import Normal
        >>> levels = Levels.fit(Predictive(Normal(torch.zeros(1, 9), 0.5)), torch.arange(1.0, 10.0))
        >>> levels(Predictive(Normal(torch.tensor([[20.0]]), 0.25))).interval(0.8)
        (tensor([16.0000]), tensor([24.0000]))
    """

    score: Score | None
    scores: Tensor

    @classmethod
    def fit(cls, predictive: Predictive, y: Tensor) -> Self:
        """Score held-out rows and their targets."""
        if predictive.discrete:
            return cls(None, scores_of(predictive, y, SHARE))
        score = Central() if hasattr(predictive.marginals.support, "lower_bound") else Scaled()
        y = one_per_row(predictive, y)
        return cls(score, score.scores(predictive, y, level=0.5))  # whatever the level

    def kept(self, level: float) -> Intervals | Sets:
        """The calibration of one level, such as `bd.export` takes."""
        thresholds = thresholds_of(self.scores, level, None)
        if self.score is None:
            return Sets(level, SHARE, thresholds)
        return Intervals(level, self.score, thresholds)

    def __call__(self, predictive: Predictive) -> "Promised":
        """The same prediction with conformal intervals or sets."""
        return Promised(predictive.conditional, self)


@dataclass(frozen=True)
class Promised(Predictive):
    """A prediction whose intervals or sets keep the promise of `bayesdiv.calibration`."""

    levels: Levels

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """The conformal interval."""
        if self.levels.score is None:
            return super().interval(level)  # which says that classes have none
        return cast(Intervals, self.levels.kept(level))(self)

    def sets(self, level: float = 0.9) -> Tensor:
        """Which classes are in the conformal set of each row, (rows, classes)."""
        if self.levels.score is not None:
            raise ValueError("sets need targets that are classes, got numbers: use interval")
        return cast(Sets, self.levels.kept(level))(self)
