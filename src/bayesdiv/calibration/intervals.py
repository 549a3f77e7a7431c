"""Conformal intervals of numbers."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bayesdiv.calibration.conformal import chosen, one_per_row, thresholds_of
from bayesdiv.calibration.saved import Saved
from bayesdiv.predictive import Predictive

Ends = tuple[Tensor, Tensor]  # of intervals


class Score(Saved, ABC):
    """How unusual a number is for its prediction, and which numbers are no more unusual than that.

    Any score keeps the promise; a good one makes intervals short. The scores and ends of intervals
    have the shape of the targets.
    """

    @abstractmethod
    def scores(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        """The score of each target; larger ones are less usual."""

    @abstractmethod
    def interval(self, predictive: Predictive, largest: Tensor, level: float) -> Ends:
        """Both ends of the numbers whose score is at most `largest`, one or one per row."""


@dataclass(frozen=True)
class Scaled(Score):
    """Distance to the predictive mean, in predictive standard deviations.

    |y - mean| / √variance ≤ r   ⟺   mean - r √variance ≤ y ≤ mean + r √variance
    """

    def scores(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        """|y - mean| / √variance, in double precision."""
        variance = predictive.variance.double()
        wrong = variance[~((variance > 0) & variance.isfinite())]
        if wrong.numel():
            raise ValueError(
                "scaled intervals need a positive, finite predictive variance, got "
                f"{wrong[0].item()}: use Quantiles() for a likelihood without one"
            )
        return (y - predictive.mean.double()).abs() / variance.sqrt()

    def interval(self, predictive: Predictive, largest: Tensor, level: float) -> Ends:
        """The mean, and `largest` standard deviations on both sides of it."""
        mean = predictive.mean
        reach = largest * predictive.variance.double().sqrt()
        return _widened(mean.double() - reach, mean.double() + reach, mean)


@dataclass(frozen=True)
class Quantiles(Score):
    """Distance beyond the predictive interval, negative inside it: conformalised quantiles.

        max(low - y, y - high) ≤ r   ⟺   low - r ≤ y ≤ high + r

    Ends that would change places meet half way.
    """

    def scores(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        """max(low - y, y - high), in double precision."""
        low, high = (end.double() for end in predictive.interval(level))
        return torch.maximum(low - y, y - high)

    def interval(self, predictive: Predictive, largest: Tensor, level: float) -> Ends:
        """The predictive interval, longer by `largest` on both sides."""
        low, high = predictive.interval(level)
        # An infinite threshold has no middle to meet in, nor any need of one.
        least = torch.maximum(largest, (low.double() - high.double()) / 2)
        return _widened(low.double() - least, high.double() + least, low)


@dataclass(frozen=True)
class Central(Score):
    """Distance to the median in probability: intervals stay where the likelihood has its support.

        |F(y) - ½| ≤ r   ⟺   F⁻¹(½ - r) ≤ y ≤ F⁻¹(½ + r)

    F is the predictive distribution function, so that positive targets keep positive ends.
    """

    def scores(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        """|F(y) - ½|, in double precision."""
        return (predictive.cdf(y.double()) - 0.5).abs()

    def interval(self, predictive: Predictive, largest: Tensor, level: float) -> Ends:
        """The quantiles at ½ ± `largest`."""
        mean = predictive.mean
        every = largest.expand_as(mean)
        low, high = torch.full_like(mean, -math.inf), torch.full_like(mean, math.inf)
        for value in largest.unique().tolist():
            below = tail(value)
            if below > 0:
                low = predictive.quantile(below).where(every == value, low)
                high = predictive.quantile(1 - below).where(every == value, high)
        slack = 4 * torch.finfo(mean.dtype).eps  # of each end: a positive one stays positive
        return low - slack * low.abs(), high + slack * high.abs()


def tail(largest: float) -> float:
    """½ - r, less by more than quantiles are rounded by: ties stay inside."""
    return (0.5 - largest) * (1 - 1e-9) - 1e-15


def _widened(low: Tensor, high: Tensor, like: Tensor) -> Ends:
    """The ends in the dtype of `like`, moved apart by rounding's worth.

    A target that is itself the calibration row of the threshold must not fall out by rounding:
    where targets repeat, such as ratings, many would.
    """
    slack = 4 * torch.finfo(like.dtype).eps * torch.maximum(low.abs(), high.abs())
    slack = slack.nan_to_num(posinf=0.0)
    return (low - slack).to(like.dtype), (high + slack).to(like.dtype)


@dataclass(frozen=True)
class Intervals(Saved):
    """Intervals of numbers that hold a new target with probability `level` or more.

    The promise of `bayesdiv.calibration`: whatever the model, on average, for exchangeable rows.
    Several outputs have a threshold and a promise each.

    Args:
        level: the probability promised.
        score: what the threshold bounds.
        thresholds: one per group, (groups, …outputs); a single one without groups.

    Examples:
        >>> from torch.distributions import Normal
        >>> held_out = Predictive(Normal(torch.zeros(1, 9), 0.5))
        >>> intervals = Intervals.fit(held_out, torch.arange(1.0, 10.0), level=0.8)
        >>> intervals(Predictive(Normal(torch.tensor([[20.0]]), 0.25)))
        (tensor([16.0000]), tensor([24.0000]))
    """

    level: float
    score: Score
    thresholds: Tensor

    @classmethod
    def fit(
        cls,
        predictive: Predictive,
        y: Tensor,
        level: float = 0.9,
        *,
        score: Score | None = None,
        groups: Tensor | None = None,
    ) -> Self:
        """Choose the thresholds on held-out rows.

        Args:
            predictive: of rows that took no part in training.
            y: their targets.
            level: the probability to promise.
            score: None is `Scaled()`.
            groups: a number from 0 per row, for a promise within each group.
        """
        if predictive.discrete:
            raise ValueError("intervals need targets that are numbers, got classes: use Sets")
        score = score or Scaled()
        y = one_per_row(predictive, y)
        found = score.scores(predictive, y, level) if len(y) else y.double()
        return cls(level, score, thresholds_of(found, level, groups))

    def __call__(self, predictive: Predictive, groups: Tensor | None = None) -> Ends:
        """Both ends for each new row; infinite in a group with too few calibration rows.

        Args:
            predictive: of the new rows.
            groups: of the new rows, where the thresholds were chosen by groups.
        """
        largest = chosen(self.thresholds, groups, predictive.mean.device)
        return self.score.interval(predictive, largest, self.level)
