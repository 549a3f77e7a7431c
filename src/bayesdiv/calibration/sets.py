"""Conformal sets of classes, and calibration whose level is chosen later."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bayesdiv.calibration.conformal import (
    Central,
    Intervals,
    Saved,
    Scaled,
    Score,
    chosen,
    one_per_row,
    thresholds_of,
)
from bayesdiv.predictive import Predictive

SHARE = 0.0  # of its own probability that counts: the likeliest class is in every set


@dataclass(frozen=True)
class Sets(Saved):
    """Sets of classes that hold the true one with probability `level` or more: adaptive sets.

    Classes enter by falling probability until the threshold is reached; the score of class c is

        Σ of the probabilities above p_c  +  share · p_c

    A share drawn evenly from [0, 1] per row breaks ties, so that the probability is k/(n + 1) and
    not more; a few sets may then be empty. A fixed share makes the same set of the same row;
    with 1 the sets are largest.

    Examples:
        >>> probs = torch.tensor([0.7, 0.2, 0.1])
        >>> held_out = Predictive(Categorical(probs.expand(1, 4, 3)))
        >>> sets = Sets.fit(held_out, torch.tensor([0, 0, 1, 0]), level=0.8, share=1.0)
        >>> sets(held_out)[0]
        tensor([ True,  True, False])
    """

    level: float
    share: float | None  # None draws it per row
    thresholds: Tensor  # one per group, (groups,)

    @classmethod
    def fit(
        cls,
        predictive: Predictive,
        y: Tensor,
        level: float = 0.9,
        *,
        share: float | None = None,
        groups: Tensor | None = None,
    ) -> Self:
        """Choose the thresholds on rows that took no part in training.

        `groups`, a number from 0 per row, makes the promise hold within each group; `groups=y`
        within each class.
        """
        if not predictive.discrete:
            raise ValueError("sets need targets that are classes, got numbers: use Intervals")
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {share}")
        return cls(level, share, thresholds_of(scores_of(predictive, y, share), level, groups))

    def __call__(self, predictive: Predictive, groups: Tensor | None = None) -> Tensor:
        """Which classes are in the set of each new row, (rows, classes).

        `groups` are those of the rows, or after `groups=y` `torch.arange(classes).unsqueeze(0)`.
        """
        if groups is not None and groups.dim() == 1:
            groups = groups.unsqueeze(-1)
        scores = _adaptive(predictive.probabilities.double(), self.share)
        return scores <= chosen(self.thresholds, groups, scores.device)


def scores_of(predictive: Predictive, y: Tensor, share: float | None) -> Tensor:
    """The score of the true class of each row, (rows,), see `Sets`."""
    y = one_per_row(predictive, y)
    each = _adaptive(predictive.probabilities.double(), share)
    return each.gather(-1, y.unsqueeze(-1)).squeeze(-1)


def _adaptive(probabilities: Tensor, share: float | None) -> Tensor:
    """The score of every class, (rows, classes), see `Sets`."""
    descending, order = probabilities.topk(probabilities.shape[-1])  # ONNX cannot sort
    rows = probabilities[..., :1]
    own = torch.rand_like(rows) if share is None else torch.full_like(rows, share)
    above = descending.cumsum(-1) - descending
    return torch.empty_like(probabilities).scatter(-1, order, above + own * descending)


@dataclass(frozen=True)
class Levels(Saved):
    """Conformal intervals or sets of whatever level is asked for later.

    Targets with a lower bound are scored by `Central`, so that ends stay above it, other numbers
    by `Scaled`; sets of classes never lack the likeliest one.
    """

    score: Score | None  # None for classes
    scores: Tensor  # of the held-out rows, (rows, …outputs)

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
        return Promised(predictive.conditional, self)


@dataclass(frozen=True)
class Promised(Predictive):
    """A prediction whose intervals or sets keep the promise of `bayesdiv.calibration`."""

    levels: Levels

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        kept = self.levels.kept(level)
        return kept(self) if isinstance(kept, Intervals) else super().interval(level)  # refused

    def sets(self, level: float = 0.9) -> Tensor:
        """Which classes are in the conformal set of each row, (rows, classes)."""
        kept = self.levels.kept(level)
        if isinstance(kept, Intervals):
            raise ValueError("sets need targets that are classes, got numbers: use interval")
        return kept(self)
