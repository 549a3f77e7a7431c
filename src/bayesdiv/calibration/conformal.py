"""Conformal thresholds by groups, and intervals of numbers, from held-out rows or by folds."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bayesdiv.predictive import Predictive

Ends = tuple[Tensor, Tensor]  # of intervals
Held = tuple[Predictive, Tensor]  # predictions of held-out rows, and their targets
MOST_GROUPS = 1 << 20  # larger numbers are names, such as those of customers


@dataclass(frozen=True)
class Saved:
    """A frozen dataclass of numbers and tensors: `state()` gives plain values for a JSON file."""

    kinds: ClassVar[dict[str, type["Saved"]]] = {}

    def __init_subclass__(cls) -> None:
        Saved.kinds[cls.__name__] = cls

    def state(self) -> dict[str, object]:
        """Its kind and its numbers; those that are infinite as words, since JSON has none."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        text = json.dumps({"kind": type(self).__name__, **values}, default=_plain)
        return dict(json.loads(text, parse_constant=str))

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> Self:
        """The same value again; `Saved.from_state` takes any kind."""
        kind = Saved.kinds.get(str(state.get("kind")))
        if kind is None or not issubclass(kind, cls):
            got = state.get("kind")
            raise ValueError(f"a saved value must be of kind {cls.__name__}, got {got}")
        missing = [field.name for field in fields(kind) if field.name not in state]
        if missing:
            raise ValueError(f"a saved {kind.__name__} must have {', '.join(missing)}")
        return kind(**{field.name: _value(state[field.name]) for field in fields(kind)})


def _plain(value: "Saved | Tensor") -> object:
    return value.state() if isinstance(value, Saved) else value.tolist()


def _value(value: object) -> object:
    if isinstance(value, Mapping):
        return Saved.from_state(value)
    if value is None:
        return None
    try:
        numbers = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"a saved calibration must hold numbers, got {value!r}") from None
    return torch.from_numpy(numbers) if numbers.ndim else numbers.item()


def threshold(scores: Tensor, level: float) -> Tensor:
    """The conformal threshold of scores along their first axis; infinite where they are too few."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie inside (0, 1), got {level}")
    scores = scores.detach()
    if scores.isnan().any():
        raise ValueError(f"scores must be numbers, got {int(scores.isnan().sum())} NaN")
    # The level counts as the decimal number that it is written as: 0.55 of 100 is 55, not 56.
    rank = math.ceil((len(scores) + 1) * Fraction(repr(float(level))))
    if rank > len(scores):
        return scores.new_full(scores.shape[1:], math.inf)
    return scores.sort(0).values[rank - 1]


def thresholds_of(scores: Tensor, level: float, groups: Tensor | None) -> Tensor:
    """One threshold per group along a first axis; a single one without groups."""
    if groups is None:
        return threshold(scores, level).unsqueeze(0)
    if groups.shape != scores.shape[:1]:
        raise ValueError(f"groups must have shape {(len(scores),)}, got {tuple(groups.shape)}")
    groups = _numbered(groups)
    count = int(groups.max()) + 1 if len(groups) else 1
    found = scores.new_full((count, *scores.shape[1:]), math.inf).detach()
    for group in groups.unique().tolist():
        found[group] = threshold(scores[groups == group], level)
    return found


def chosen(thresholds: Tensor, groups: Tensor | None, device: torch.device) -> Tensor:
    """The threshold of each row; that of a group without calibration rows is infinite."""
    if groups is None:
        if len(thresholds) > 1:
            raise ValueError(f"groups must be given: thresholds differ by {len(thresholds)} groups")
        return thresholds.to(device)
    known = torch.cat([thresholds, torch.full_like(thresholds[:1], math.inf)]).to(device)
    return known[_numbered(groups).to(device).clamp(max=len(thresholds))]


def _numbered(groups: Tensor) -> Tensor:
    wrong = groups[(groups < 0) | (groups != groups.long()) | (groups >= MOST_GROUPS)]
    if wrong.numel():
        raise ValueError(f"groups must be numbered 0, 1, 2, …, got {wrong[0].item()}")
    return groups.long()


def one_per_row(predictive: Predictive, y: Tensor) -> Tensor:
    """The targets, if rows are the only axis besides draws and outputs."""
    shape = tuple(predictive.conditional.batch_shape)
    if len(shape) != 2:
        raise ValueError(f"calibration needs batch shape (samples, rows), got {shape}")
    return predictive.checked(y)


class Score(Saved, ABC):
    """How unusual a number is for its prediction, and which numbers are no more unusual than that.

    Any score keeps the promise; a good one makes intervals short.
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
        variance = predictive.variance.double()
        wrong = variance[~((variance > 0) & variance.isfinite())]
        if wrong.numel():
            rule = "scaled intervals need a positive, finite predictive variance"
            remedy = "use Quantiles() for a likelihood without one"
            raise ValueError(f"{rule}, got {wrong[0].item()}: {remedy}")
        return (y - predictive.mean.double()).abs() / variance.sqrt()

    def interval(self, predictive: Predictive, largest: Tensor, level: float) -> Ends:
        mean = predictive.mean
        reach = largest * predictive.variance.double().sqrt()
        return _widened(mean.double() - reach, mean.double() + reach, mean)


@dataclass(frozen=True)
class Quantiles(Score):
    """Distance beyond the predictive interval, negative inside it: conformalised quantiles.

    max(low - y, y - high) ≤ r   ⟺   low - r ≤ y ≤ high + r, or both ends half way
    """

    def scores(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        low, high = (end.double() for end in predictive.interval(level))
        return torch.maximum(low - y, y - high)

    def interval(self, predictive: Predictive, largest: Tensor, level: float) -> Ends:
        low, high = predictive.interval(level)
        # An infinite threshold has no middle to meet in, nor any need of one.
        least = torch.maximum(largest, (low.double() - high.double()) / 2)
        return _widened(low.double() - least, high.double() + least, low)


@dataclass(frozen=True)
class Central(Score):
    """Distance to the median in probability: positive targets keep positive ends.

    |F(y) - ½| ≤ r   ⟺   F⁻¹(½ - r) ≤ y ≤ F⁻¹(½ + r),   F the predictive distribution function
    """

    def scores(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        return (predictive.cdf(y.double()) - 0.5).abs()

    def interval(self, predictive: Predictive, largest: Tensor, level: float) -> Ends:
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
    """The ends in the dtype of `like`, moved apart by rounding's worth."""
    # The calibration row of the threshold must not fall out, nor the many that are equal to it.
    slack = 4 * torch.finfo(like.dtype).eps * torch.maximum(low.abs(), high.abs())
    slack = slack.nan_to_num(posinf=0.0)
    return (low - slack).to(like.dtype), (high + slack).to(like.dtype)


@dataclass(frozen=True)
class Intervals(Saved):
    """Intervals of numbers that hold a new target with probability `level` or more.

    The promise of `bayesdiv.calibration`: whatever the model, on average, for exchangeable rows.
    Several outputs have a threshold and a promise each.

    Examples:
        >>> held_out = Predictive(Normal(torch.zeros(1, 9), 0.5))
        >>> intervals = Intervals.fit(held_out, torch.arange(1.0, 10.0), level=0.8)
        >>> intervals(Predictive(Normal(torch.tensor([[20.0]]), 0.25)))
        (tensor([16.0000]), tensor([24.0000]))
    """

    level: float
    score: Score
    thresholds: Tensor  # one per group, (groups, …outputs)

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
        """Choose the thresholds on held-out rows; the usual score is `Scaled()`.

        `groups`, a number from 0 per row, makes the promise hold within each group.
        """
        if predictive.discrete:
            raise ValueError("intervals need targets that are numbers, got classes: use Sets")
        score = score or Scaled()
        y = one_per_row(predictive, y)
        found = score.scores(predictive, y, level) if len(y) else y.double()
        return cls(level, score, thresholds_of(found, level, groups))

    def __call__(self, predictive: Predictive, groups: Tensor | None = None) -> Ends:
        """Both ends for each new row; infinite in a group with too few calibration rows."""
        largest = chosen(self.thresholds, groups, predictive.mean.device)
        return self.score.interval(predictive, largest, self.level)


@dataclass(frozen=True)
class FoldIntervals(Saved):
    """Intervals by CV+ (Barber et al. 2021), for tables too small to hold rows out of.

    One model per fold, trained without it. With s_i the score of row i under the model that has not
    seen it, and [l_i(x), u_i(x)] what that model says has a score of at most s_i at a new x,

        [k-th largest of all l_i(x), k-th smallest of all u_i(x)],   k = ⌈(n + 1) · level⌉

    The promise is weaker than that of `Intervals`: with K equal folds of n rows, a target lies
    inside with probability 1 - 2(1 - level) - min(2(1 - 1/K)/(n/K + 1), (1 - K/n)/(K + 1)) or more.
    In practice it is near `level`; every row is both learned from and calibrated on.

    Examples:
        >>> folds = [(Predictive(Normal(torch.zeros(1, 5), 1.0)), torch.arange(5.0) + k) for k in (0, 1)]
        >>> intervals = FoldIntervals.fit(folds, level=0.8)
        >>> intervals([Predictive(Normal(torch.full((1, 1), mean), 1.0)) for mean in (0.0, 10.0)])
        (tensor([-3.0000]), tensor([14.0000]))
    """  # noqa: E501

    level: float
    score: Score  # `Scaled` or `Quantiles`
    scores: Tensor  # of all rows
    folds: Tensor  # the number of each row's fold

    @property
    def promised(self) -> float:
        """The probability that is promised whatever the models: 0 where nothing is."""
        n, k = len(self.folds), int(self.folds.max()) + 1
        less = min(2 * (1 - 1 / k) / (n / k + 1), (1 - k / n) / (k + 1))
        return max(0.0, 1 - 2 * (1 - self.level) - less)

    @classmethod
    def fit(cls, folds: Sequence[Held], level: float = 0.9, *, score: Score | None = None) -> Self:
        """Rank all rows: what the model that was trained without a fold predicts, and targets."""
        score = score or Scaled()
        if not isinstance(score, Scaled | Quantiles):
            raise TypeError(f"intervals by folds need Scaled() or Quantiles(), got {score!r}")
        found = [score.scores(each, one_per_row(each, y), level) for each, y in folds]
        if len(found) < 2:
            raise ValueError(f"there must be two folds or more, got {len(found)}")
        places = [torch.full((len(own),), k) for k, own in enumerate(found)]
        return cls(level, score, torch.cat(found), torch.cat(places))

    def __call__(self, predictives: Sequence[Predictive]) -> Ends:
        """Both ends for each new row, from what the model of each fold predicts for it."""
        pairs, count, folds = [], len(predictives), int(self.folds.max()) + 1
        if count != folds:
            raise ValueError(f"there must be {folds} predictives, one per fold, got {count}")
        for k, each in enumerate(predictives):
            largest = self.scores[self.folds == k].unsqueeze(1).to(each.mean.device)
            pairs.append(self.score.interval(each, largest, self.level))
        low, high = (torch.cat(ends) for ends in zip(*pairs, strict=True))  # (n, rows, …)
        return -threshold(-low, self.level), threshold(high, self.level)
