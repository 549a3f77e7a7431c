"""Predictions averaged over weight draws, with their uncertainty split into its two parts."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    StudentT,
    TransformedDistribution,
)


@dataclass(frozen=True)
class Predictive:
    """What a set of weight draws says about targets: a mixture of one distribution a draw.

        p(y | x, data) ≈ 1/S Σ_s p(y | x, w_s)

    Args:
        conditional: p(y | x, w_s), batch shape (samples, batch), such as a likelihood returns.

    Examples:
        >>> from torch.distributions import Normal
        >>> predictive = Predictive(Normal(torch.tensor([[0.0], [2.0]]), 1.0))
        >>> predictive.mean, predictive.epistemic, predictive.aleatoric
        (tensor([1.]), tensor([1.]), tensor([1.]))
    """

    conditional: Distribution

    def __post_init__(self) -> None:
        shape = tuple(self.conditional.batch_shape)
        if len(shape) < 2 or shape[0] == 0:
            raise ValueError(f"conditional must have batch shape (samples, batch), got {shape}")

    @property
    def samples(self) -> int:
        """How many draws are averaged."""
        return self.conditional.batch_shape[0]

    @property
    def discrete(self) -> bool:
        """Whether the targets are classes."""
        return isinstance(self.conditional, Categorical | Bernoulli)

    def log_prob(self, y: Tensor) -> Tensor:
        """Log density of each target: the logarithm of the mean over draws, never its reverse."""
        y = self.checked(y)
        if isinstance(self.conditional, Bernoulli):
            y = y.to(self.conditional.logits.dtype)
        each = self.conditional.log_prob(y)  # (S, B)
        return each.logsumexp(0) - math.log(self.samples)

    @cached_property
    def probabilities(self) -> Tensor:
        """Mean class probabilities, (batch, classes); a binary target has two classes."""
        return self._each_probability.mean(0)

    @property
    def mean(self) -> Tensor:
        """Mean of the targets; the class probabilities where targets are classes.

        NaN where no mean exists: Student's t with one degree of freedom or fewer.
        """
        return self.probabilities if self.discrete else self.conditional.mean.mean(0)

    @property
    def aleatoric(self) -> Tensor:
        """Variance that more data would not remove: the mean over draws of the noise.

        Infinite for Student's t with two degrees of freedom or fewer, NaN without a mean.
        """
        return self._variance_of_each.mean(0)

    @property
    def epistemic(self) -> Tensor:
        """Variance that comes from not knowing the weights: of the means of the draws."""
        means = self._each_probability if self.discrete else self.conditional.mean
        return means.var(0, correction=0)

    @property
    def variance(self) -> Tensor:
        """Total variance of each target: aleatoric plus epistemic."""
        return self.aleatoric + self.epistemic

    @property
    def entropy(self) -> Tensor:
        """Entropy of the mean class probabilities, in nats: the whole uncertainty of a class."""
        return _entropy(self.probabilities)

    @property
    def mutual_information(self) -> Tensor:
        """Entropy less the mean entropy of the draws: the part that comes from the weights."""
        each = _entropy(self._each_probability).mean(0)
        return (self.entropy - each).clamp(min=0.0)

    def sample(self, count: int) -> Tensor:
        """Targets drawn from the mixture, (count, batch, …), in random order.

        One draw of weights serves a whole row; all serve equally often, as far as count allows.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        rounds = torch.Size([math.ceil(count / self.samples)])
        flat = self.conditional.sample(rounds).flatten(0, 1)  # (≥ count, B, …)
        return flat[torch.randperm(flat.shape[0], device=flat.device)[:count]]

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Central interval that holds a target with probability `level`, by its two quantiles."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie inside (0, 1), got {level}")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def quantile(self, probability: float) -> Tensor:
        """Where the distribution function of the mixture reaches `probability`."""
        if not 0 < probability < 1:
            raise ValueError(f"probability must lie inside (0, 1), got {probability}")
        if self.discrete:
            raise ValueError("a quantile needs targets that are numbers, got classes")
        base = self.conditional
        while isinstance(base, Independent):
            base = base.base_dist
        return _quantile(base, probability)

    def checked(self, y: Tensor) -> Tensor:
        """The targets themselves (classes as integers), or an error where they cannot be ours."""
        wanted = self.conditional.batch_shape[1:] + self.conditional.event_shape
        if y.shape != wanted:
            raise ValueError(f"targets must have shape {tuple(wanted)}, got {tuple(y.shape)}")
        if not self.discrete:
            if y.isnan().any():
                raise ValueError(f"targets must be numbers, got {int(y.isnan().sum())} NaN")
            return y
        classes = self._each_probability.shape[-1]
        wrong = y[(y < 0) | (y >= classes) | (y != y.floor())] if y.dtype != torch.bool else y[:0]
        if wrong.numel():
            raise ValueError(f"labels must be integers from 0 to {classes - 1}, got {wrong[0]}")
        return y.long()

    @cached_property
    def _each_probability(self) -> Tensor:  # (S, B, C)
        if isinstance(self.conditional, Bernoulli):
            one = self.conditional.probs
            return torch.stack([1 - one, one], -1)
        if isinstance(self.conditional, Categorical):
            # Kept normalised, so that a softmax, twenty times the work, would find no more.
            given = "probs" in vars(self.conditional)
            return self.conditional.probs if given else self.conditional.logits.exp()
        raise ValueError("class probabilities need targets that are classes, got numbers")

    @property
    def _variance_of_each(self) -> Tensor:
        if self.discrete:
            return self._each_probability * (1 - self._each_probability)
        return self.conditional.variance


def _entropy(probabilities: Tensor) -> Tensor:
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(-1)


@torch.no_grad()
def _quantile(distribution: Distribution, probability: float) -> Tensor:
    """Quantile of the mixture over the first axis: Newton's steps, or halves of the bracket."""
    low, high = _bracket(distribution, probability)
    value, last = _between(low, high), high - low
    for _ in range(100):
        excess = _cdf(distribution, value).mean(0) - probability
        done = (excess.abs() <= 1e-10 * min(probability, 1 - probability)) | (low == high)
        if done.all():
            break
        low, high = torch.where(excess < 0, value, low), torch.where(excess < 0, high, value)
        step = -excess / distribution.log_prob(value).exp().mean(0)
        # Steps that do not shrink would walk down a tail for ever.
        good = (low - value <= step) & (step <= high - value) & (step.abs() < 0.5 * last)
        after = torch.where(good, value + step, _between(low, high)).where(~done, value)
        value, last = after, (after - value).abs()
    return value.to(distribution.mean.dtype)


def _bracket(distribution: Distribution, probability: float) -> tuple[Tensor, Tensor]:
    """Bounds of the mixture's quantile: the least and the greatest quantile of a draw.

    Student's t has no quantile in torch; J falls with s (see `_upper_tail`), so that
    P(T > t) ≤ ½ (1 + t²/df)^(-df/2), which is solved for t.
    """
    if isinstance(distribution, StudentT):
        outside, df = 2 * min(probability, 1 - probability), distribution.df.double()
        farthest = (df * torch.expm1(-2 * math.log(outside) / df)).sqrt().clamp(max=1e150)
        reach = distribution.scale * farthest
        return (distribution.loc - reach).amin(0), (distribution.loc + reach).amax(0)
    if not _has_icdf(distribution):
        name = type(distribution).__name__
        raise ValueError(f"a quantile needs a distribution with icdf, got {name}")
    wanted = distribution.mean.double().new_full(distribution.batch_shape, probability)
    each = distribution.icdf(wanted)
    return each.amin(0), each.amax(0)


def _has_icdf(distribution: Distribution) -> bool:
    """Whether its class, or that of what it transforms, has a quantile function of its own."""
    while isinstance(distribution, TransformedDistribution):
        distribution = distribution.base_dist
    return type(distribution).icdf is not Distribution.icdf


def _between(low: Tensor, high: Tensor) -> Tensor:
    """Half way on a scale that is logarithmic far out: a wide bracket loses half its digits."""
    return ((low.asinh() + high.asinh()) / 2).sinh().clamp(low, high)


def _cdf(distribution: Distribution, value: Tensor) -> Tensor:
    """Distribution function; torch lacks that of Student's t."""
    if not isinstance(distribution, StudentT):
        return distribution.cdf(value)
    t = (value - distribution.loc) / distribution.scale
    df = distribution.df.double()
    if (df == df[:1, :1]).all():
        df = df[:1, :1]  # one for all, so that most of the work is done once
    tail = _upper_tail(t.abs().double(), df)
    return torch.where(t > 0, 1 - tail, tail)


def _upper_tail(t: Tensor, df: Tensor) -> Tensor:
    """P(T > t) of Student's t, t ≥ 0, after the substitution T = √df sinh(v + w), t = √df sinh v.

    P(T > t) = ½ cosh(v)^-df J(tanh v) / J(0),   J(s) = ∫ (cosh w + s sinh w)^-df dw over w > 0
    """
    slope = t / (df + t * t).sqrt()
    start = torch.exp(-0.5 * df * torch.log1p(t * t / df))
    return 0.5 * start * _decay(slope, df) / _decay(torch.zeros_like(df), df)


_NODES, _SHARES = (torch.from_numpy(side) for side in np.polynomial.legendre.leggauss(64))


def _decay(slope: Tensor, df: Tensor) -> Tensor:
    """J(s) of `_upper_tail`, by Gauss-Legendre up to where at most e^-36 is left."""
    fall = 36 / df
    reach = fall + torch.log1p((-torch.expm1(-2 * fall)).sqrt())  # arcosh(e^fall)
    total = slope.new_zeros(())
    # A few nodes at a time: all would need 64 times the memory, single ones many small steps.
    for nodes, shares in zip(_NODES.to(df).split(8), _SHARES.to(df).split(8), strict=True):
        w = 0.5 * reach.unsqueeze(-1) * (1 + nodes)
        log_base = w + torch.log1p(0.5 * (1 - slope.unsqueeze(-1)) * torch.expm1(-2 * w))
        total = total + torch.exp(-df.unsqueeze(-1) * log_base) @ shares
    return total * reach
