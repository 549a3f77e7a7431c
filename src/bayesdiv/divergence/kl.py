"""Kullback-Leibler divergence in both directions, and what divergences with a skew share."""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal, StudentT, kl_divergence

# torch offers no public way to ask whether a pair is registered without computing it.
from torch.distributions.kl import _dispatch_kl

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Points, checked_alpha
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.densities import common_shape
from bayesdiv.divergence.gaussian import OnePass, Standard, Terms, close_to_one, minus_log1p_near

_END = 1e-6  # of alpha: derivatives are right to here


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


@dataclass(frozen=True)
class Skewed(Divergence):
    """A divergence with alpha in [0, 1]: symmetric at one half, a KL at each end."""

    alpha: float | Tensor = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", checked_alpha(self.alpha))

    @property
    def symmetric(self) -> bool:
        return not isinstance(self.alpha, Tensor) and self.alpha == 0.5

    def reduced(self) -> Divergence:
        """KL at alpha = 0, the reverse KL at alpha = 1."""
        if isinstance(self.alpha, Tensor) or 0 < self.alpha < 1:
            return self
        return KL() if self.alpha == 0 else ReverseKL()


@dataclass(frozen=True)
class Unmodified(Skewed):
    """A divergence with alpha that is 0 at both of its ends, whatever q and p are."""

    @property
    def bound(self) -> float | None:
        """0 at both ends; else that of the class after this one."""
        return 0.0 if isinstance(self.reduced(), Zero) else super().bound

    @property
    def symmetric(self) -> bool:
        return super().symmetric or isinstance(self.reduced(), Zero)

    def reduced(self) -> Divergence:
        return self if super().reduced() is self else Zero()


@dataclass(frozen=True)
class Zero(Divergence):
    """What the unmodified divergences are at alpha = 0 and 1: nothing, for any pair."""

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return torch.zeros_like(at_q.log_q[0])


@closed_form.register(Zero, Distribution, Distribution)
def _(_: Zero, q: Distribution, p: Distribution) -> Tensor:
    shape = common_shape(q.batch_shape, p.batch_shape)
    given = ("loc", "scale") if hasattr(q, "loc") and hasattr(q, "scale") else ("mean", "stddev")
    loc, scale = (cast(Tensor, getattr(q, name)) for name in given)
    # Products keep dtype, device and the graph: the gradient is 0, not missing.
    return (loc * 0.0 + scale * 0.0).expand(shape)


class LearnedAlpha(nn.Module):
    """An alpha inside (0, 1), learned through its logit; call it for the alpha of a divergence.

        alpha = 1e-6 + (1 - 2e-6) sigmoid(logit)

    Minimising a loss over alpha only shrinks the divergence in it, whatever the posterior: learn
    alpha on another objective, such as the likelihood of validation data, or choose it there.

    Args:
        initial: the first alpha, one number or one per trial.

    Examples:
        >>> from torch.distributions import Normal
        >>> from bayesdiv import JSA
        >>> alpha = LearnedAlpha(0.25)
        >>> value = JSA(alpha())(Normal(1.0, 1.0), Normal(0.0, 1.0))
        >>> value.backward()
        >>> round(alpha().item(), 4), alpha.logit.grad is not None
        (0.25, True)
    """

    def __init__(self, initial: float | Tensor = 0.5) -> None:
        super().__init__()
        start = torch.as_tensor(initial, dtype=torch.float64)
        if not bool(((start > _END) & (start < 1 - _END)).all()):
            raise ValueError(f"initial must lie inside (1e-6, 1 - 1e-6), got {start.tolist()}")
        logit = ((start - _END) / (1 - 2 * _END)).logit()
        self.logit = nn.Parameter(logit.to(torch.get_default_dtype()))

    def forward(self) -> Tensor:
        """Alpha, in double precision: next to 1 a single one has no digits left."""
        return _END + (1 - 2 * _END) * self.logit.double().sigmoid()


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
