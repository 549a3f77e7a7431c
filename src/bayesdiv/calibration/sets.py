"""Conformal sets of classes, levels that are chosen later, and single numbers chosen on rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical

from bayesdiv.calibration import conformal
from bayesdiv.calibration.conformal import Central, Intervals, Saved, Scaled, Score
from bayesdiv.draws import Inputs, Weights, draw_weights
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.model.posteriors import Mixture, Posterior
from bayesdiv.prediction import predict_at
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
        scores = scores_of(predictive, y, share)
        return cls(level, share, conformal.thresholds_of(scores, level, groups))

    def __call__(self, predictive: Predictive, groups: Tensor | None = None) -> Tensor:
        """Which classes are in the set of each new row, (rows, classes).

        `groups` are those of the rows, or after `groups=y` `torch.arange(classes).unsqueeze(0)`.
        """
        if groups is not None and groups.dim() == 1:
            groups = groups.unsqueeze(-1)
        scores = _adaptive(predictive.probabilities.double(), self.share)
        return scores <= conformal.chosen(self.thresholds, groups, scores.device)


def scores_of(predictive: Predictive, y: Tensor, share: float | None) -> Tensor:
    """The score of the true class of each row, (rows,), see `Sets`."""
    y = conformal.one_per_row(predictive, y)
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
        y = conformal.one_per_row(predictive, y)
        return cls(score, score.scores(predictive, y, level=0.5))  # whatever the level

    def kept(self, level: float) -> Intervals | Sets:
        """The calibration of one level, such as `bd.export` takes."""
        thresholds = conformal.thresholds_of(self.scores, level, None)
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


@dataclass(frozen=True)
class Temperature(Saved):
    """One number that logits are divided by, of every draw alike: above 1 it makes less sure.

        p(y = c | x) = 1/S Σ_s softmax(f_s(x) / temperature)_c

    Examples:
        >>> sure = Predictive(Bernoulli(logits=torch.full((1, 4), 8.0)))
        >>> temperature = Temperature.fit(sure, torch.tensor([1, 1, 1, 0]))
        >>> temperature(sure).probabilities[0]
        tensor([0.2500, 0.7500])
    """

    value: float

    @classmethod
    def fit(cls, predictive: Predictive, y: Tensor) -> Self:
        """The temperature of least negative log-likelihood on held-out rows, from 0.01 to 100."""
        y = predictive.checked(y)
        return cls(_least(y, lambda value: _nll(cls(value)(predictive), y), 1e2, 1e-5))

    def __call__(self, predictive: Predictive) -> Predictive:
        conditional = predictive.conditional
        if not isinstance(conditional, Categorical | Bernoulli):
            raise ValueError("a temperature needs targets that are classes, got numbers")
        logits = conditional.logits / self.value
        return Predictive(type(conditional)(logits=logits, validate_args=False))


@dataclass(frozen=True)
class Spread(Saved):
    """One factor on all scales of the posterior: the Bayesian counterpart of a temperature.

        w = mean + factor · (w_drawn - mean)

    It works on draws, and so for any posterior and any likelihood; 0 is the network at its mean.

    Examples:
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        >>> halved = Spread(0.5)(net, bd.draw_weights(net, 10))
        >>> bd.predict_at(net, bd.Gaussian(), torch.zeros(5, 3), halved).samples
        10
    """

    factor: float

    @classmethod
    def fit(
        cls,
        model: nn.Module,
        likelihood: nn.Module,
        x: Inputs,
        y: Tensor,
        *,
        samples: int = 50,
        batch_size: int | None = None,
    ) -> Self:
        """The factor of least negative log-likelihood on held-out rows, from 0.01 to 10.

        Of an ensemble, so many samples or a few more, each member as often as the others.
        """
        posteriors = (module.posterior for module in bayesian_modules(model))
        members = math.lcm(*(getattr(posterior, "members", 1) for posterior in posteriors))
        with torch.no_grad():
            weights = draw_weights(model, -(-samples // members) * members)
        if not weights:
            raise ValueError("a spread needs a model with random weights, got none")

        def loss(factor: float) -> float:
            spread = cls(factor)(model, weights)
            return _nll(predict_at(model, likelihood, x, spread, batch_size=batch_size), y)

        return cls(_least(y, loss, 10.0, 1e-2))

    @torch.no_grad()
    def __call__(self, model: nn.Module, weights: Weights) -> Weights:
        """The same draws, nearer to the mean or farther from it: for `predict_at`.

        Give all that one call of `draw_weights` returned; of an ensemble, whose members take turns
        in it, a multiple of their number.
        """
        pairs = zip(bayesian_modules(model), weights, strict=True)
        return tuple(torch.lerp(_centre(m.posterior, own), own, self.factor) for m, own in pairs)


def _centre(posterior: nn.Module, drawn: Tensor) -> Tensor:
    """The mean that each draw was made around."""
    if not isinstance(posterior, Mixture):
        return cast(Posterior, posterior).mean.to(drawn)
    members, count = posterior.members, len(drawn)
    rounds, left = divmod(count, members)
    if left:
        raise ValueError(f"draws must be a multiple of the {members} members, got {count}")
    means = posterior.each.mean.movedim(-2, 0).to(drawn)  # (members, …, weights)
    return means.repeat(rounds, *(1,) * (means.dim() - 1))


def _nll(predictive: Predictive, y: Tensor) -> float:
    """The loss; one that is not finite counts as the worst of all."""
    found = -predictive.log_prob(y).double().mean().item()
    return found if math.isfinite(found) else math.inf


def _least(y: Tensor, loss: Callable[[float], float], high: float, precision: float) -> float:
    """Where a function of a positive number is least: the best of a grid, then of finer ones."""
    if y.numel() == 0:
        raise ValueError("there must be at least one held-out row to choose a number on, got 0")
    left, right = math.log(1e-2), math.log(high)
    while right - left > precision:
        grid = torch.linspace(left, right, 9, dtype=torch.float64).tolist()
        losses = [loss(math.exp(point)) for point in grid]
        best = losses.index(min(losses))
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, 8)]
    return math.exp((left + right) / 2)
