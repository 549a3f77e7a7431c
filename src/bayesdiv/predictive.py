"""Predictions averaged over weight draws, with their uncertainty split into its two parts."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent

from bayesdiv import quantiles


@dataclass(frozen=True)
class Predictive:
    """What a set of weight draws says about targets: a mixture of one distribution per draw.

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
            rule = f"conditional must have batch shape (samples, batch), got {shape}"
            raise ValueError(f"{rule}: x must have rows, so give one example as x.unsqueeze(0)")

    @property
    def samples(self) -> int:
        return self.conditional.batch_shape[0]

    @property
    def discrete(self) -> bool:
        """Whether the targets are classes; counts are numbers."""
        return isinstance(self.conditional, Categorical | Bernoulli)

    @property
    def marginals(self) -> Distribution:
        """What each draw says about every single number, batch shape (samples, batch, …)."""
        if self.discrete:
            raise ValueError("a quantile needs targets that are numbers, got classes")
        base = self.conditional
        while isinstance(base, Independent):
            base = base.base_dist
        return base

    def log_prob(self, y: Tensor) -> Tensor:
        """Log density of each target: the logarithm of the mean over draws, never its reverse."""
        y = self.checked(y)
        if isinstance(self.conditional, Bernoulli):
            y = y.to(self.conditional.logits.dtype)
        return self.conditional.log_prob(y).logsumexp(0) - math.log(self.samples)

    @cached_property
    def probabilities(self) -> Tensor:
        """Mean class probabilities, (batch, classes); a binary target has two classes."""
        return self._each_probability.mean(0)

    @property
    def mean(self) -> Tensor:
        """Mean of the targets, NaN where none exists; the probabilities where they are classes."""
        return self._means.mean(0)

    @property
    def aleatoric(self) -> Tensor:
        """Variance that more data would not remove: the mean over draws of the noise."""
        if self.discrete:
            return (self._each_probability * (1 - self._each_probability)).mean(0)
        return quantiles.variance(self.conditional).mean(0)

    @property
    def epistemic(self) -> Tensor:
        """Variance that comes from not knowing the weights: of the means of the draws."""
        return self._means.var(0, correction=0)

    @property
    def variance(self) -> Tensor:
        """Total variance of each target: aleatoric plus epistemic."""
        return self.aleatoric + self.epistemic

    @property
    def entropy(self) -> Tensor:
        """Entropy of the mean class probabilities, in nats: the whole uncertainty of a class."""
        return -self.probabilities.xlogy(self.probabilities).sum(-1)

    @property
    def mutual_information(self) -> Tensor:
        """Entropy less the mean entropy of the draws: the part that comes from the weights."""
        each = -self._each_probability.xlogy(self._each_probability).sum(-1)
        return (self.entropy - each.mean(0)).clamp(min=0.0)

    def sample(self, count: int) -> Tensor:
        """Targets drawn from the mixture, (count, batch, …), by all draws of weights equally."""
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        rounds = torch.Size([math.ceil(count / self.samples)])
        flat = self.conditional.sample(rounds).flatten(0, 1)  # (≥ count, B, …)
        return flat[torch.randperm(flat.shape[0], device=flat.device)[:count]]

    @torch.no_grad()
    def cdf(self, y: Tensor) -> Tensor:
        """Distribution function of the mixture: the probability of a number of at most `y`."""
        return quantiles.cdf(self.marginals, self.checked(y)).mean(0)

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Central interval that holds a target with probability `level`, by its two quantiles."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie inside (0, 1), got {level}")
        low, high = quantiles.quantiles(self.marginals, (1 - level) / 2, (1 + level) / 2)
        return low, high

    def quantile(self, probability: float) -> Tensor:
        """Where the distribution function of the mixture reaches `probability`."""
        if not 0 < probability < 1:
            raise ValueError(f"probability must lie inside (0, 1), got {probability}")
        return quantiles.quantiles(self.marginals, probability)[0]

    def checked(self, y: Tensor) -> Tensor:
        """The targets themselves (classes as integers), or an error where they cannot be ours."""
        if y.shape != (wanted := self.conditional.batch_shape[1:] + self.conditional.event_shape):
            told = f"targets must have shape {tuple(wanted)}, got {tuple(y.shape)}"
            column, remedy = y.shape == (*wanted, 1), "squeeze them, y.squeeze(-1)"
            raise ValueError(f"{told}: {remedy if column else 'reshape them to fit the outputs'}")
        rule, most = "targets must be counts 0, 1, 2, …", math.inf
        if self.discrete:
            most = self._each_probability.shape[-1] - 1
            rule = f"labels must be integers from 0 to {most}"
        elif y.isnan().any():
            raise ValueError(f"targets must be numbers, got {int(y.isnan().sum())} NaN")
        elif not quantiles.is_discrete(self.conditional):
            return y
        if (wrong := y[(y < 0) | (y > most) | (y != y.long())]).numel():
            raise ValueError(f"{rule}, got {wrong[0]}")
        return y.long() if self.discrete else y

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
    def _means(self) -> Tensor:
        return self._each_probability if self.discrete else quantiles.mean(self.conditional)
