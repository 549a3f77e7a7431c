"""Jensen-Shannon divergences around the arithmetic mean, and the one-sided rule for Gaussians.

Both divergences of this file have the form

    w KL(q ‖ A) + (1-w) KL(p ‖ A),   A = m q + (1-m) p

with (w, m) = (1-α, α) for JSA and (1-α, 1-α) for UnmodifiedJSA. With z = log q - log p +
log(m/(1-m)), h(z) = e^(-z) softplus(z) and c = (1-w) m/(1-m) it is one expectation, under q alone:

    bound - E_q[w softplus(-z) + c h(z)],   bound = -w log m - (1-w) log(1-m)

because E_q[p/q f(z)] = E_p[f(z)]. Nothing is ever sampled from, or integrated over, the wider side.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, Uniform
from torch.nn.functional import softplus

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Points
from bayesdiv.divergence.densities import common_shape
from bayesdiv.divergence.gaussian import log_number
from bayesdiv.divergence.kl import Skewed, Zero
from bayesdiv.divergence.one_sided import Mixture, OneSided, UniformPrior


class _Arithmetic(Skewed):
    @staticmethod
    @abstractmethod
    def mixture(alpha: float | Tensor) -> Mixture:
        """The weights w and m at this alpha."""

    @property
    def bound(self) -> float | None:
        """-w log m - (1-w) log(1-m): theorem 1 for JSA, the entropy of alpha for UnmodifiedJSA."""
        if isinstance(self.alpha, Tensor):
            return max(type(self)(a).bound or 0.0 for a in self.alpha.flatten().tolist())
        whole = self.reduced() is self
        return float(self.mixture(self.alpha).bound) if whole else super().bound

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """The single expectation under q; the points of p are not read."""
        mixture = self.mixture(self.alpha)
        # Where p vanishes z is infinite, and e^-z · softplus(z) would be 0 · inf.
        z = (at_q.log_q - at_q.log_p + log_number(mixture.odds)).clamp(max=80.0)
        # Below the floor h(z) is 1 to the last digit, and e^-z would overflow further down.
        floor = -30.0 if z.dtype == torch.float64 else -15.0
        tilted = (-z.clamp(min=floor)).exp() * softplus(z.clamp(min=floor), threshold=30)
        gap = mixture.outer * softplus(-z, threshold=30) + mixture.tilt * tilted
        return mixture.bound - at_q.mean(gap)

    def averaged(self, q: Distribution, p: Distribution) -> tuple[Distribution, ...]:
        """Neither: what it averages has all moments."""
        return ()

    def estimate_wide(self, at_q: Points, at_p: Points) -> Tensor:
        """Bound - w E_q[softplus(-z)] - (1-w) E_p[softplus(z)], the paper's two expectations."""
        # Where q is the wider side, the single expectation has up to 30 times the spread.
        mixture = self.mixture(self.alpha)
        sides = []
        for points, sign in ((at_q, -1), (at_p, 1)):
            z = points.log_q - points.log_p + log_number(mixture.odds)
            sides.append(points.mean(softplus((sign * z).clamp(max=1e4), threshold=30)))
        return mixture.bound - mixture.outer * sides[0] - mixture.outer_rest * sides[1]


@dataclass(frozen=True)
class JSA(_Arithmetic):
    """Bounded Jensen-Shannon divergence, arithmetic mean (paper, "JS-A", eq. 8).

        (1-α) KL(q ‖ A) + α KL(p ‖ A),   A = α q + (1-α) p

    Never above -(1-α) log α - α log(1-α) per weight (theorem 1). KL(q ‖ p) at alpha = 0, KL(p ‖ q)
    at alpha = 1. It has no closed form; for two Gaussians the one-sided rule computes it to 1e-6.

    Examples:
        >>> JSA(alpha=0.5)(Normal(100.0, 1.0), Normal(0.0, 1.0))
        tensor(0.6931)
    """

    @staticmethod
    def mixture(alpha: float | Tensor) -> Mixture:
        """(1-α, α): the mean leans the other way than the sum."""
        alpha = _not_denormal(alpha)
        return Mixture(1 - alpha, alpha, alpha, 1 - alpha, -1.0, 1.0)


@dataclass(frozen=True)
class UnmodifiedJSA(_Arithmetic):
    """The generalised Jensen-Shannon divergence before the paper's modification (eq. 1).

        (1-α) KL(q ‖ M) + α KL(p ‖ M),   M = (1-α) q + α p

    Never above the entropy -α log α - (1-α) log(1-α). It vanishes at alpha = 0 and alpha = 1.

    Examples:
        >>> UnmodifiedJSA(alpha=0.25)(Normal(100.0, 1.0), Normal(0.0, 1.0))
        tensor(0.5623)
    """

    ends: ClassVar[tuple[Divergence, Divergence]] = Zero(), Zero()

    @staticmethod
    def mixture(alpha: float | Tensor) -> Mixture:
        alpha = _not_denormal(alpha)
        return Mixture(1 - alpha, alpha, 1 - alpha, alpha, -1.0, -1.0)


def _not_denormal(alpha: float | Tensor) -> float | Tensor:
    """`alpha`, kept where its reciprocal is a finite double."""
    return alpha if isinstance(alpha, Tensor) else max(alpha, 1e-290)


for _divergence in (JSA, UnmodifiedJSA):
    closed_form.register(_divergence, Normal, Normal)(OneSided())
    closed_form.register(_divergence, Normal, Uniform)(UniformPrior())


def joint_jsa(alpha: float, q: Distribution, p: Distribution, *, samples: int = 100_000) -> Tensor:
    """JS-A of the product densities of all weights, by Monte Carlo: bounded for the whole network.

        bound - E_q[(1-α) softplus(-z) + α²/(1-α) h(z)]
        z = Σ_i (log q_i - log p_i) + log(α/(1-α))

    It explains why `JSA` is summed over weights: the joint form saturates. Not an objective.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> many, prior = Normal(torch.full((100,), 0.5), 1.0), Normal(0.0, 1.0)
        >>> joint_jsa(0.5, many, prior) / JSA(0.5).bound
        tensor(0.975...)
    """
    divergence = JSA(alpha)
    q = q.expand(common_shape(q.batch_shape, p.batch_shape))
    weights = q.sample(torch.Size([samples]))  # (S, *weights)
    log_q, log_p = (d.log_prob(weights).flatten(1).sum(1) for d in (q, p))  # (S,)
    points = Points(log_q, log_p, torch.full_like(log_q, 1 / samples).log())
    return divergence.estimate(points, points)
