"""Kullback-Leibler divergence in both directions, and the closed forms that torch lacks."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, StudentT, kl_divergence

# torch offers no public way to ask whether a pair is registered without computing it.
from torch.distributions.kl import _dispatch_kl

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Points
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.gaussian import OnePass, Standard, Terms, close_to_one, minus_log1p_near


@dataclass(frozen=True)
class KL(Divergence):
    """Kullback-Leibler divergence of q from p: with strength 1 the ELBO (paper, eq. 6).

        KL(q ‖ p) = ∫ q log(q/p)

    Examples:
        >>> KL()(Normal(0.0, 0.5), Normal(0.0, 1.0))
        tensor(0.3181)
    """

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return at_q.mean(at_q.log_q - at_q.log_p)

    def averaged(self, q: Distribution, p: Distribution) -> tuple[Distribution, ...]:
        return (q,)

    def derived_rule(self, q: Distribution, p: Distribution) -> Rule | None:
        if _dispatch_kl(type(q), type(p)) is NotImplemented:
            return None
        return lambda _, q, p: kl_divergence(q, p)


@dataclass(frozen=True)
class ReverseKL(Divergence):
    """Kullback-Leibler divergence of p from q, the limit of JS-A and JS-G at alpha = 1.

        KL(p ‖ q) = ∫ p log(p/q)          (paper, eq. 10)

    Examples:
        >>> ReverseKL()(Normal(0.0, 0.5), Normal(0.0, 1.0))
        tensor(0.8069)
    """

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return at_p.mean(at_p.log_p - at_p.log_q)

    def averaged(self, q: Distribution, p: Distribution) -> tuple[Distribution, ...]:
        return (p,)

    def derived_rule(self, q: Distribution, p: Distribution) -> Rule | None:
        rule = closed_form.find(KL(), p, q)
        return None if rule is None else lambda _, q, p: rule(KL(), p, q)


@closed_form.register(KL, StudentT, Normal)
def _(_: KL, q: StudentT, p: Normal) -> Tensor:
    """-H(q) + ½ log(2π σ²) + (Var q + (mean q - μ)²) / 2σ², infinite for df ≤ 2."""
    finite = q.df > 2
    df = torch.where(finite, q.df, 3.0)
    # In double precision: the entropy is a difference of log-gammas that nearly cancel.
    entropy = StudentT(df.double(), validate_args=False).entropy().to(df) + q.scale.log()
    variance = q.scale**2 * df / (df - 2)
    value = (
        0.5 * math.log(2 * math.pi)
        + p.scale.log()
        + (variance + (q.loc - p.loc) ** 2) / (2 * p.scale**2)
        - entropy
    )
    return torch.where(finite, value, math.inf)


def kl_terms(block: Standard, _: float | Tensor) -> Terms:
    """½(r² + δ² - 1) - log r, with y = r² - 1 kept apart from log(1+y)."""
    delta, ratio, excess = block
    more = excess + 2
    near = close_to_one(excess)
    # Halved before it is multiplied: y may overflow where the value does not.
    value = (0.5 * excess).mul_(more).sub_(ratio.log())
    y = more.mul_(excess)
    if near is not None:
        value = torch.where(near, 0.5 * minus_log1p_near(y), value)
    return Terms(value + (0.5 * delta).mul_(delta), delta, y)


def reverse_kl_terms(block: Standard, _: float | Tensor) -> Terms:
    """½((1 + δ²)/r² - 1) + log r, with y' = 1/r² - 1 kept apart from log(1+y')."""
    delta, ratio, excess = block
    far = delta / ratio
    # Each factor is divided: r² alone would leave the range of float32 beyond 1e-19 and 1e19.
    one, two = -excess / ratio, (excess + 2) / ratio
    y, near = one * two, close_to_one(excess)
    value = (0.5 * one).mul_(two).add_(ratio.log())
    if near is not None:
        value = torch.where(near, 0.5 * minus_log1p_near(y), value)
    return Terms(value + (0.5 * far) * far, far / ratio, -(y + far * far))


closed_form.register(KL, Normal, Normal)(OnePass(kl_terms))
closed_form.register(ReverseKL, Normal, Normal)(OnePass(reverse_kl_terms))
