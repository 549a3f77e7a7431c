"""Rival objectives: bounds on the evidence from several draws (Rényi-VI, χ-VI) and TV-VI.

Each is a function of ℓ_s, the log ratio of the joint density to the posterior at a draw w_s ~ q:

    ℓ_s = (N/|b|) Σ_i log p(y_i | x_i, w_s) + log p(w_s) - log q(w_s)

They are what the paper's regression tables compare with. As measures of two densities, to stand in
front of a strength, the same names are in `bayesdiv.divergence`.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.func import functional_call

from bayesdiv.divergence import KL
from bayesdiv.draws import Inputs, Over, Weights, draw_weights, draws
from bayesdiv.model.bayesian import Bayesian, bayesian_modules
from bayesdiv.model.posteriors import Posterior
from bayesdiv.objective.objective import Loss, Objective


class Ratios(NamedTuple):
    """The log ratios ℓ of the draws along the first axis, with three kinds of gradient."""

    full: Tensor  # hangs on the posterior's parameters through the draws and through log q
    path: Tensor  # the same value, through the draws alone
    score: Tensor  # log q, through its parameters alone


class Method(ABC):
    """What is minimised, as a function of the log ratios of several draws."""

    lower_bound: ClassVar[bool] = True
    """Whether minus the loss is a lower bound on the evidence, which may then learn the noise."""

    @abstractmethod
    def value(self, log_ratio: Tensor) -> Tensor:
        """The loss in nats for all the data, from ℓ along the first axis."""

    def loss(self, ratios: Ratios) -> Tensor:
        """The value with the gradient to follow; that of the value by default."""
        return self.value(ratios.full)


@dataclass(frozen=True)
class ELBO(Method):
    """The usual lower bound, KL-VI with the divergence sampled: -mean_s ℓ_s.

    Examples:
        >>> import torch
        >>> ELBO().value(torch.tensor([-1.0, -3.0]))
        tensor(2.)
    """

    def value(self, log_ratio: Tensor) -> Tensor:
        return -log_ratio.mean(0)


@dataclass(frozen=True)
class RenyiVI(Method):
    """Rényi-α variational inference (Li & Turner 2016).

        -1/(1-α) [logsumexp_s((1-α) ℓ_s) - log S]   →  -log p(data) + Renyi_α(q ‖ posterior)

    The ELBO at α = 1. The mean inside a logarithm makes it biased for few draws; with thousands of
    weights one draw dominates the sum.

    Examples:
        >>> import torch
        >>> RenyiVI(alpha=0.5).value(torch.tensor([-2.0, -2.0]))
        tensor(2.)
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < math.inf:
            raise ValueError(f"alpha must be finite and at least 0, got {self.alpha}")

    def value(self, log_ratio: Tensor) -> Tensor:
        power = 1 - self.alpha
        # Around the mean, or near α = 1 a difference of like numbers would be divided by 1-α.
        centre = log_ratio.mean(0)
        away = log_ratio - centre
        if abs(power) < 1e-6:
            return -(centre + 0.5 * power * away.square().mean(0))
        return -(centre + _log_mean_exp(power * away) / power)


@dataclass(frozen=True)
class ChiVI(Method):
    """χ variational inference (Dieng et al. 2017): an upper bound on the evidence, CUBO.

        1/m [logsumexp_s(m ℓ_s) - log S]   →  log p(data) + (m-1)/m · Renyi_m(posterior ‖ q)

    The gradient of this estimate pushes the few draws that hit the posterior out of it again, since
    those it misses are not in the sum. The same gradient in expectation, reparametrised twice,
    pulls towards them, and is what we follow: (1-m) Σ_s v_s ∂ℓ_s/∂w_s, v = softmax(m ℓ).

    Args:
        order: m, above 1; 2 is χ².

    Examples:
        >>> import torch
        >>> ChiVI().value(torch.tensor([-2.0, -2.0]))
        tensor(-2.)
    """

    lower_bound: ClassVar[bool] = False
    order: float = 2.0

    def __post_init__(self) -> None:
        if not 1 < self.order < math.inf:
            raise ValueError(f"order must be finite and above 1, got {self.order}")

    def value(self, log_ratio: Tensor) -> Tensor:
        return _log_mean_exp(self.order * log_ratio) / self.order

    def loss(self, ratios: Ratios) -> Tensor:
        """The bound with the doubly reparametrised gradient."""
        shares = (self.order * ratios.path.detach()).softmax(0)
        pull = (1 - self.order) * (shares * ratios.path).sum(0)
        return self.value(ratios.path.detach()) + (pull - pull.detach())


@dataclass(frozen=True)
class TotalVariationVI(Method):
    """Total variation between q and the posterior, self-normalised over the draws.

        mean_s ½ |S ω_s - 1|,   ω = softmax(ℓ)   →  ½ ∫ |posterior - q|

    Consistent as S → ∞. This estimator is ours: the works the paper cites rescale in a way they do
    not state. Through the draws it has hardly a gradient once one of them dominates, so the one
    that is followed goes through log q: -½ mean_s sign(S ω_s - 1) ∂ log q(w_s), which is bounded.

    Examples:
        >>> import torch
        >>> TotalVariationVI().value(torch.tensor([-2.0, -2.0]))
        tensor(0.)
    """

    lower_bound: ClassVar[bool] = False

    def value(self, log_ratio: Tensor) -> Tensor:
        return 0.5 * (_relative(log_ratio) - 1).abs().mean(0)

    def loss(self, ratios: Ratios) -> Tensor:
        """The value with the gradient through log q, less its mean over the draws."""
        signs = (_relative(ratios.full.detach()) - 1).sign()
        # The mean of ∂ log q is 0: taking the signs' mean off leaves the gradient, and less noise.
        pull = -0.5 * ((signs - signs.mean(0)) * ratios.score).mean(0)
        return self.value(ratios.full.detach()) + (pull - pull.detach())


def _relative(log_ratio: Tensor) -> Tensor:
    """S ω_s: how much more the posterior has at each draw than q, on the scale of 1."""
    return log_ratio.softmax(0) * len(log_ratio)


def _log_mean_exp(values: Tensor) -> Tensor:
    return values.logsumexp(0) - math.log(len(values))


class Evidence(Objective):
    """An objective over log ratios of several draws, instead of `Objective`.

        total = method(ℓ_1 … ℓ_S) / num_data

    The parts it reports are the mean nll and log q - log p at the draws. What the likelihood
    learns, such as the noise level, follows the method only where it bounds the evidence from
    below; an upper bound or a distance would make the noise large, so there it follows the mean
    nll.

    Args:
        likelihood: from outputs to a distribution of the targets.
        method: `RenyiVI(0.5)`, `ChiVI(2)`, `TotalVariationVI()` or `ELBO()`.
        num_data: how many training examples there are.
        samples: weight draws, at least 2.
        over: how several draws are run.

    Examples:
        >>> from bayesdiv import Gaussian
        >>> Evidence(Gaussian(), RenyiVI(0.5), num_data=100, samples=10).method
        RenyiVI(alpha=0.5)
    """

    def __init__(
        self,
        likelihood: nn.Module,
        method: Method,
        *,
        num_data: int,
        samples: int = 10,
        over: Over | None = None,
    ) -> None:
        if not isinstance(method, Method):
            raise TypeError(f"method must be a Method such as RenyiVI(0.5), got {method!r}")
        if samples < 2 and not isinstance(method, ELBO):
            raise ValueError(f"samples must be at least 2 for {method}, got {samples}")
        super().__init__(likelihood, KL(), num_data=num_data, samples=samples, over=over)
        self.method = method

    def each(
        self,
        model: nn.Module,
        weights: Weights,
        x: Inputs,
        y: Tensor,
        divergence: Tensor | None = None,
    ) -> Loss:
        """The loss of each trial of a stack by itself; of a single model, a number."""
        modules = bayesian_modules(model)
        if not modules:
            raise ValueError("the model must be Bayesian: a bound on the evidence needs its draws")
        outputs = draws(model, x, weights, self.over, self.outputs)  # (S, trials…, B, …)
        trials = weights[0].dim() - 2
        own: dict[str, Tensor] = dict(self.likelihood.named_parameters())
        if not self.method.lower_bound:
            own = {name: value.detach() for name, value in own.items()}
        conditional = functional_call(self.likelihood, own, (outputs,))
        log_likelihood = self._log_likelihoods(conditional, y, trials)  # (S, trials…)
        ratios = _ratios(modules, weights, self.num_data * log_likelihood)
        loss = self.method.loss(ratios) / self.num_data
        if not self.method.lower_bound:
            free = -self._log_likelihoods(self.likelihood(outputs.detach()), y, trials).mean(0)
            loss = loss + (free - free.detach())
        surplus = (self.num_data * log_likelihood - ratios.full).mean(0)
        return Loss(loss, -log_likelihood.mean(0), surplus)

    def _counts(self, model: nn.Module, x: Inputs) -> list[int]:
        """Nothing, all together: a bound is not a sum over draws."""
        return []

    def _drawn(self, model: nn.Module) -> tuple[Weights, Tensor | None]:
        """Draws in the precision of the parameters, since their densities are compared."""
        return draw_weights(model, self.samples), None


def _ratios(modules: Sequence[Bayesian], weights: Weights, log_likelihood: Tensor) -> Ratios:
    path, full = log_likelihood, log_likelihood
    score = torch.zeros_like(log_likelihood)
    for module, drawn in zip(modules, weights, strict=True):
        log_p = module.p().log_prob(drawn).sum(-1)
        posterior, fixed = cast(Posterior, module.posterior), _fixed(module.q())
        log_q = fixed.log_prob(drawn)
        path = path + (log_p - (log_q if fixed.event_shape else log_q.sum(-1)))
        full = full + (log_p - posterior.log_prob(drawn))
        score = score + posterior.log_prob(drawn.detach())
    return Ratios(full, path, score)


def _fixed(q: Distribution) -> Distribution:
    """The distribution with parameters that no gradient reaches."""
    fixed = copy.copy(q)
    for name, value in vars(q).items():
        if isinstance(value, Tensor):
            vars(fixed)[name] = value.detach()
        elif isinstance(value, Distribution):
            vars(fixed)[name] = _fixed(value)
    return fixed
