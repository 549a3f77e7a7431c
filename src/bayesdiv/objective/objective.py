"""What is minimised: the paper's loss F = λ D(q ‖ p) - E_q[log p(data | w)], for one example."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution

from bayesdiv.compute.backend import prepare
from bayesdiv.divergence import KL, Divergence, joint
from bayesdiv.divergence.auto import Auto
from bayesdiv.divergence.estimators import Computation, Estimator
from bayesdiv.draws import Over, Weights, draw_weights, draws
from bayesdiv.likelihoods.base import Likelihood
from bayesdiv.model.bayesian import bayesian_modules

# What the choice of a rule depends on: the types of q and p, dtype and device of the weights.
_Kind = tuple[type, type, torch.dtype, torch.device]


class Loss(NamedTuple):
    """A loss and its two parts: nll for one example, divergence for all weights, in nats."""

    total: Tensor
    nll: Tensor
    divergence: Tensor


@dataclass(frozen=True)
class WarmUp:
    """A strength that rises from 0 to its value, linearly over the first epochs.

    Args:
        epochs: in how many.
        strength: the value it reaches.
    """

    epochs: int
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or not self.strength >= 0:
            raise ValueError(
                f"epochs must be at least 1 and strength not negative, got {self.epochs} and "
                f"{self.strength}"
            )

    def value(self, epoch: int) -> float:
        """The strength in an epoch, counted from 0."""
        return self.strength * min(1.0, (epoch + 1) / self.epochs)


class Constraint(nn.Module):
    """The constraint that the paper's loss comes from, kept instead of a fixed strength.

        max E_q[log p(data | w)]   subject to   D(q ‖ p) ≤ ε · weights      (paper, eq. const_obj)

    The strength λ is the multiplier, learned by dual ascent along with the weights: it grows while
    the divergence is above its limit and falls below. Give its parameter to the optimizer, which
    `objective.parameters()` does.

    Args:
        epsilon: the limit, in nats a weight.
        initial: λ to begin with.
    """

    def __init__(self, epsilon: float, initial: float = 1.0) -> None:
        super().__init__()
        if not epsilon > 0 or not initial > 0:
            raise ValueError(f"epsilon and initial must be positive, got {epsilon} and {initial}")
        self.epsilon = epsilon
        self.log_strength = nn.Parameter(torch.tensor(float(initial)).log())

    @property
    def strength(self) -> Tensor:
        """The multiplier λ as it stands."""
        return self.log_strength.exp()

    def ascent(self, divergence: Tensor, weights: int) -> Tensor:
        """A term of value 0 whose gradient by log λ is the violation, with the sign of ascent."""
        violation = divergence.detach() / weights - self.epsilon
        term = -self.strength * violation
        return term - term.detach()

    def extra_repr(self) -> str:
        """The limit and λ."""
        return f"epsilon={self.epsilon:.4g}, strength={self.strength.item():.4g}"


class Objective(nn.Module):
    """Mean negative log-likelihood over the batch and the draws, plus strength/num_data · D(q ‖ p).

        total = -1/(S|b|) Σ_s Σ_i log p(y_i | x_i, w_s) + λ/N · Σ_weights D(q ‖ p)

    This is the paper's minibatch loss divided by the batch size: learning rates do not depend on
    the batch, and the mean over the batches of an epoch is the loss of the whole data.

    Args:
        likelihood: from outputs to a distribution of the targets.
        divergence: what holds the posterior near the prior.
        num_data: how many training examples there are.
        strength: λ, a number, a `WarmUp` or a `Constraint`; with 1 and KL the negative ELBO. A
            tensor gives each trial of a stack its own.
        samples: weight draws for the likelihood.
        estimator: how the divergence is computed.
        over: how several draws are run, see `draws`.
    """

    def __init__(
        self,
        likelihood: nn.Module,
        divergence: Divergence | None = None,
        *,
        num_data: int,
        strength: float | Tensor | WarmUp | Constraint = 1.0,
        samples: int = 1,
        estimator: Estimator | None = None,
        over: Over | None = None,
    ) -> None:
        super().__init__()
        self._warmed: Tensor
        self._strengths: Tensor | None
        if divergence is not None and not isinstance(divergence, Divergence):
            raise TypeError(f"divergence must be a Divergence such as KL(), got {divergence!r}")
        if num_data < 1:
            raise ValueError(f"num_data must be at least 1, got {num_data}")
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}")
        if isinstance(strength, int | float | Tensor):
            each = torch.as_tensor(strength)
            if not bool(((each >= 0) & each.isfinite()).all()):
                raise ValueError(f"strength must be finite and not negative, got {strength}")
        self.likelihood = likelihood
        self.divergence = KL() if divergence is None else divergence
        self.num_data = num_data
        self.strength = strength
        self.samples = samples
        self.estimator = Auto() if estimator is None else estimator
        self.over = over
        self.register_buffer("_warmed", torch.tensor(0.0), persistent=False)
        own = strength if isinstance(strength, Tensor) else None
        self.register_buffer("_strengths", own, persistent=False)
        self.epoch = 0
        self._prepared: list[tuple[_Kind, Computation]] = []

    def forward(self, model: nn.Module, x: Tensor, y: Tensor) -> Loss:
        """The loss of one batch."""
        # Computed once, for the draws and for the divergence.
        posteriors = [module.q() for module in bayesian_modules(model)]
        weights = draw_weights(model, self.samples, posteriors)
        return self.given(model, weights, x, y, posteriors)

    def given(
        self,
        model: nn.Module,
        weights: Weights,
        x: Tensor,
        y: Tensor,
        posteriors: Sequence[Distribution] | None = None,
    ) -> Loss:
        """The loss of one batch for given weight draws, which likelihood and divergence share."""
        each = self.each(model, weights, x, y, posteriors)
        total, nll, divergence = (part.sum() for part in each)
        count = sum(drawn[0].numel() for drawn in weights)
        if isinstance(self.strength, Constraint) and count > 0:
            total = total + self.strength.ascent(divergence, count)
        return Loss(total, nll, divergence)

    def each(
        self,
        model: nn.Module,
        weights: Weights,
        x: Tensor,
        y: Tensor,
        posteriors: Sequence[Distribution] | None = None,
    ) -> Loss:
        """The loss of each trial of a stack by itself, (trials…); of a single model, a number."""
        if posteriors is None:
            posteriors = [module.q() for module in bayesian_modules(model)]
        conditional = self.likelihood(draws(model, x, weights, self.over))
        trials = weights[0].dim() - 2 if weights else 0
        nll = self._nll(conditional, y, trials)
        divergence = self._divergence(model, posteriors, weights, trials)
        total = nll + self._strength(divergence) / self.num_data * divergence
        return Loss(total, nll, divergence)

    def _strength(self, divergence: Tensor) -> float | Tensor:
        if isinstance(self.strength, WarmUp):
            return self._warmed.to(divergence)
        if isinstance(self.strength, Constraint):
            return self.strength.strength.detach()
        return self.strength if self._strengths is None else self._strengths.to(divergence)

    @property
    def epoch(self) -> int:
        """The epoch that a `WarmUp` is in, counted from 0; told by `fit`."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch = epoch
        if isinstance(self.strength, WarmUp):
            # Kept in a tensor: a compiled step would be compiled anew for every other number.
            self._warmed.fill_(self.strength.value(epoch))

    def prepare(self, model: nn.Module) -> None:
        """Look up the rules for this model's posteriors and priors, once, before compiling."""
        pairs = [(module.q(), module.p()) for module in bayesian_modules(model)]
        self._prepared = [(_kind(q, p), self._rule(q, p)) for q, p in pairs]

    def _divergence(
        self, model: nn.Module, posteriors: Sequence[Distribution], weights: Weights, trials: int
    ) -> Tensor:
        """Summed over all weights of all Bayesian modules; 0 for a deterministic model."""
        first = next(model.parameters(), None)
        total = torch.zeros((), device=None if first is None else first.device)
        modules = bayesian_modules(model)
        for index, (q, drawn) in enumerate(zip(posteriors, weights, strict=True)):
            p = modules[index].p()
            own = self._computation(index, q, p)(q, p, drawn)
            total = total + (own if trials else own.sum())
        return total

    def _computation(self, index: int, q: Distribution, p: Distribution) -> Computation:
        """The rule looked up before, unless it was for another kind of model."""
        if index < len(self._prepared) and self._prepared[index][0] == _kind(q, p):
            return self._prepared[index][1]
        return self._rule(q, p)

    def _rule(self, q: Distribution, p: Distribution) -> Computation:
        """The sum over the weights of a product, by the estimator; else all weights together."""
        if q.event_shape:
            return partial(joint.total, self.divergence)
        return prepare(self.estimator, self.divergence, q, p).total

    def _nll(self, conditional: Distribution, y: Tensor, trials: int) -> Tensor:
        return -self._log_likelihoods(conditional, y, trials).mean(0)

    def _log_likelihoods(self, conditional: Distribution, y: Tensor, trials: int) -> Tensor:
        """The mean over the examples of the batch, (draws, trials…)."""
        wanted = conditional.batch_shape[1:] + conditional.event_shape
        if y.shape != wanted:
            raise ValueError(
                f"targets must have shape {tuple(wanted)}, one a prediction, got {tuple(y.shape)}"
            )
        if isinstance(conditional, Bernoulli):
            y = y.to(conditional.logits.dtype)
        each = conditional.log_prob(y)  # (S, trials…, B, …)
        if isinstance(self.likelihood, Likelihood):
            weight = self.likelihood.example_weight(y)
            each = each if weight is None else each * weight
        # Examples are averaged, and what one example has several of, such as the words of a
        # sentence, is added up; so are the trials by `given`: each then learns as it would alone.
        each = each.mean(trials + 1)
        return each.flatten(trials + 1).sum(-1) if each.dim() > trials + 1 else each

    def extra_repr(self) -> str:
        """What the loss is made of."""
        strength = "" if isinstance(self.strength, nn.Module) else f", strength={self.strength}"
        return f"{self.divergence}, num_data={self.num_data}, samples={self.samples}{strength}"


def _kind(q: Distribution, p: Distribution) -> _Kind:
    return type(q), type(p), q.mean.dtype, q.mean.device
