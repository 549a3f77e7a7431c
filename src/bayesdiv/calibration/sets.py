"""Conformal sets of classes."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bayesdiv.calibration.conformal import chosen, one_per_row, thresholds_of
from bayesdiv.calibration.saved import Saved
from bayesdiv.predictive import Predictive


@dataclass(frozen=True)
class Sets(Saved):
    """Sets of classes that hold the true one with probability `level` or more: adaptive sets.

    Classes enter by falling probability until the threshold is reached; the score of class c is

        Σ of the probabilities above p_c  +  share · p_c

    A share drawn evenly from [0, 1] per row breaks ties, so that the probability is k/(n + 1) and
    not more; a few sets may then be empty. A fixed share makes the same set of the same row;
    with 1 the sets are largest.

    Args:
        level: the probability promised.
        share: of its own probability that counts in the score of a class; None draws it per row.
        thresholds: one per group, (groups,); a single one without groups.

    Examples:
        >>> from torch.distributions import Categorical
        >>> probs = torch.tensor([0.7, 0.2, 0.1])
        >>> held_out = Predictive(Categorical(probs.expand(1, 4, 3)))
        >>> sets = Sets.fit(held_out, torch.tensor([0, 0, 1, 0]), level=0.8, share=1.0)
        >>> sets(held_out)[0]
        tensor([ True,  True, False])
    """

    level: float
    share: float | None
    thresholds: Tensor

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
        """Choose the thresholds on held-out rows.

        Args:
            predictive: of rows that took no part in training.
            y: their classes.
            level: the probability to promise.
            share: see above.
            groups: a number from 0 per row, for a promise within each group; `groups=y` promises
                it for each class.
        """
        if not predictive.discrete:
            raise ValueError("sets need targets that are classes, got numbers: use Intervals")
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {share}")
        return cls(level, share, thresholds_of(scores_of(predictive, y, share), level, groups))

    def __call__(self, predictive: Predictive, groups: Tensor | None = None) -> Tensor:
        """Which classes are in the set of each new row, (rows, classes).

        Args:
            predictive: of the new rows.
            groups: of the new rows, (rows,), where the thresholds were chosen by groups; or of each
                class of each row, (rows, classes): `torch.arange(classes).unsqueeze(0)` after
                `groups=y`.
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
    descending, order = probabilities.sort(stable=True, dim=-1, descending=True)
    rows = probabilities[..., :1]
    own = torch.rand_like(rows) if share is None else torch.full_like(rows, share)
    above = descending.cumsum(-1) - descending
    return torch.empty_like(probabilities).scatter(-1, order, above + own * descending)
