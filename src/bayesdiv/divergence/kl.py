"""Both Kullback-Leibler divergences, and what is made of them around the geometric mean."""

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal, StudentT, kl_divergence

# torch offers no public way to ask whether a pair is registered without computing it.
from torch.distributions.kl import _dispatch_kl

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Number, Points, checked_alpha
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

    averaged: ClassVar[str] = "q"

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return at_q.mean(at_q.log_q - at_q.log_p)

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

    averaged: ClassVar[str] = "p"
    mirror: ClassVar[Divergence] = KL()

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return at_p.mean(at_p.log_p - at_p.log_q)


@dataclass(frozen=True)
class Skewed(Divergence):
    """A divergence with alpha in [0, 1], symmetric at one half, another one at each end."""

    ends: ClassVar[tuple[Divergence, Divergence]] = KL(), ReverseKL()
    alpha: Number = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", checked_alpha(self.alpha))

    @property
    def bound(self) -> float | None:
        return None if self.reduced() is self else self.reduced().bound

    @property
    def symmetric(self) -> bool:
        if self.reduced() is not self:
            return self.reduced().symmetric
        return not isinstance(self.alpha, Tensor) and self.alpha == 0.5

    def reduced(self) -> Divergence:
        """What it is at its ends."""
        if isinstance(self.alpha, Tensor) or 0 < self.alpha < 1:
            return self
        return self.ends[int(self.alpha)]


@dataclass(frozen=True)
class Zero(Divergence):
    """What the unmodified divergences are at both ends: nothing, for any pair."""

    bound = 0.0
    symmetric = True

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return torch.zeros_like(at_q.log_q[0])


@closed_form.register(Zero, Distribution, Distribution)
def _(_: Zero, q: Distribution, p: Distribution) -> Tensor:
    given = ("loc", "scale") if hasattr(q, "loc") and hasattr(q, "scale") else ("mean", "stddev")
    loc, scale = (cast(Tensor, getattr(q, name)) for name in given)
    # Products keep dtype, device and the graph: the gradient is 0, not missing.
    return (loc * 0.0 + scale * 0.0).expand(common_shape(q.batch_shape, p.batch_shape))


@dataclass(frozen=True)
class WeightedKL(Skewed):
    """The two KLs, weighted: the paper's eq. 21, its algorithm 2 and its theorems 2 and 3.

        (1-α)² KL(q ‖ p) + α² KL(p ‖ q)

    The paper calls this JS-G too, although it omits the normaliser of the geometric mean: JSG =
    WeightedKL + log Z with log Z ≤ 0.

    Examples:
        >>> WeightedKL(alpha=0.5)(Normal(5.0, 1.0), Normal(0.0, 1.0))
        tensor(6.2500)
    """

    @property
    def parts(self) -> tuple[tuple[Number, Divergence], ...]:
        return ((1 - self.alpha) ** 2, KL()), (self.alpha**2, ReverseKL())

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """Both expectations as means over points (algorithm 2 sums them, which changes λ)."""
        return torch.stack([f * each.estimate(at_q, at_p) for f, each in self.parts]).sum(0)


@dataclass(frozen=True)
class JSG(Skewed):
    """Geometric Jensen-Shannon divergence around the normalised mean (paper, eq. 25).

        (1-α) KL(q ‖ G) + α KL(p ‖ G),   G = q^α p^(1-α) / Z

    Unbounded. It has a closed form for two Gaussians (with a prime that the paper omits). KL(q ‖ p)
    at alpha = 0, KL(p ‖ q) at alpha = 1.

    Examples:
        >>> JSG(alpha=0.5)(Normal(5.0, 1.0), Normal(0.0, 1.0))
        tensor(3.1250)
    """

    linear: ClassVar[bool] = False

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        log_z = at_q.log_mean_ratio(1 - self.alpha)
        return WeightedKL(self.alpha).estimate(at_q, at_p) + log_z


@dataclass(frozen=True)
class UnmodifiedJSG(Skewed):
    """The skew geometric divergence before its mean was reversed, normalised (eq. 2).

        (1-α) KL(q ‖ G) + α KL(p ‖ G),   G = q^(1-α) p^α / Z

    It vanishes at alpha = 0 and alpha = 1, whatever q and p are.

    Examples:
        >>> UnmodifiedJSG(alpha=0.25)(Normal(5.0, 1.0), Normal(0.0, 1.0))
        tensor(2.3438)
    """

    linear: ClassVar[bool] = False
    ends: ClassVar[tuple[Divergence, Divergence]] = Zero(), Zero()

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """α(1-α) times the sum of both KLs, plus log Z."""
        both = KL().estimate(at_q, at_p) + ReverseKL().estimate(at_q, at_p)
        return self.alpha * (1 - self.alpha) * both + at_q.log_mean_ratio(self.alpha)


class LearnedAlpha(nn.Module):
    """An alpha inside (0, 1), or one per trial, learned through its logit; call it for the alpha.

        alpha = 1e-6 + (1 - 2e-6) sigmoid(logit)

    Minimising a loss over alpha only shrinks the divergence in it, whatever the posterior: learn
    alpha on another objective, such as the likelihood of validation data, or choose it there.

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
    log_p = Normal(p.loc, p.scale, validate_args=False).log_prob(q.loc)
    value = variance / (2 * p.scale**2) - log_p - entropy
    return torch.where(finite, value, math.inf)


def kl_terms(block: Standard, _: Number = 0.0, weight: Number = 1.0) -> Terms:
    """½(r² + δ² - 1) - log r, times the square of a weight."""
    delta, ratio, excess = block
    value, y = _surplus(weight, excess, excess + 2, ratio.log().mul_(2), close_to_one(excess))
    own = weight * delta
    return Terms(value + (0.5 * own).mul_(own), weight * own, y)


def reverse_kl_terms(block: Standard, _: Number = 0.0, weight: Number = 1.0) -> Terms:
    """½((1 + δ²)/r² - 1) + log r, times the square of a weight."""
    delta, ratio, excess = block
    far, log_square = weight * (delta / ratio), ratio.log().mul_(-2)
    # Each factor is divided: r² alone would leave the range of float32 beyond 1e-19 and 1e19.
    one, two = (excess / ratio).neg_(), (excess + 2).div_(ratio)
    value, y = _surplus(weight, one, two, log_square, close_to_one(excess))
    return Terms(value + (0.5 * far).mul_(far), weight * far / ratio, -(y + far * far))


def _surplus(
    weight: Number, one: Tensor, two: Tensor, log1p: Tensor, near: Tensor | None
) -> tuple[Tensor, Tensor]:
    """w² (y - log(1+y))/2 and w² y for the y that is the product of two factors."""
    half, first, second = 0.5 * weight**2, weight * one, weight * two
    # Each factor is made small first: y may overflow where the result does not.
    y = first * second
    value = first.mul_(0.5).mul_(second).sub_(half * log1p)
    if near is not None:
        value = torch.where(near, half * minus_log1p_near(one * two), value)
    return value, y


def weighted_kl_terms(block: Standard, alpha: Number) -> Terms:
    """(1-α)² KL(q ‖ p) + α² KL(p ‖ q)."""
    one, two = kl_terms(block, weight=1 - alpha), reverse_kl_terms(block, weight=alpha)
    value, d_delta, d_log_ratio = (a + b for a, b in zip(one[:3], two[:3], strict=True))
    slopes = -2 * (1 - alpha), 2 * alpha
    return Terms(value, d_delta, d_log_ratio, _by_alpha(block, slopes))


def jsg_terms(block: Standard, alpha: Number) -> Terms:
    """½[v²/r² - 1 + 2α log r - log v + δ² c], c = ((1-α)³ r² + α³/r²)/v, v = (1-α) r² + α."""
    a, b = alpha, 1 - alpha
    return _around_mean(block, (b, a), (-2 * b, 2 * a, -1.0), b, a)


def unmodified_jsg_terms(block: Standard, alpha: Number) -> Terms:
    """½[α(1-α)((r - 1/r)² + δ² c) + 2α log r - log v], c = (α r² + (1-α)/r²)/v."""
    # With v = α r² + 1 - α.
    a, b = alpha, 1 - alpha
    root = (a * b) ** 0.5
    return _around_mean(block, (root, root), (b - a, b - a, 1.0), a, b)


def _around_mean(
    block: Standard,
    weights: tuple[Number, Number],
    slopes: tuple[Number, Number, float],
    beta: Number,
    rest: Number,
) -> Terms:
    """f² KL(q ‖ p) + g² KL(p ‖ q) + log Z of q^β p^(1-β); slopes are those of f², g² and β."""
    # `rest` is 1-β, given because 1 - (1 - α) is 0 for α < 1e-16.
    delta, ratio, excess = block
    near, far, log_square = close_to_one(excess), delta / ratio, ratio.log().mul_(2)
    one, more = _surplus(weights[0], excess, excess + 2, log_square, near)
    inverses = (excess / ratio).neg_(), (excess + 2).div_(ratio)
    two, less = _surplus(weights[1], *inverses, -log_square, near)
    # The variance v = β ρ + 1 - β of the geometric mean, with r cut off where its square ρ still is
    # a number: beyond, other terms are all.
    widest = torch.finfo(ratio.dtype).max ** 0.48
    square, excess = ratio.clamp(1 / widest, widest).square(), excess.clamp(max=widest)
    y = (excess + 2).mul_(excess)
    v = beta * square + rest
    inverse = v.reciprocal()
    log_z = beta * log_square - v.log()
    if near is not None:
        close = minus_log1p_near(beta * y) - beta * minus_log1p_near(y)
        log_z = torch.where(near, close, log_z)
    # What δ adds, in all: f² β δ² ρ/2v + g² (1-β) δ²/2ρv.
    share, f, g = square * inverse, weights[0] ** 2 * beta, weights[1] ** 2 * rest
    ahead, behind = delta * share, far * inverse
    push, pull = (0.5 * f * delta) * ahead, (0.5 * g * far) * behind
    half = rest * inverse * push - (1 + beta * share) * pull
    d_log_ratio = more - less - (beta * rest) * (y * inverse) + 2 * half
    d_alpha = _by_alpha(block, slopes)
    if d_alpha is not None:
        near_by = delta * inverse
        by_beta = log_square - y * inverse - (rest - beta) * (near_by * delta)
        d_alpha = d_alpha + (0.5 * slopes[2]) * (by_beta + (beta * rest) * near_by * (near_by * y))
    value = one + two + 0.5 * log_z + push + pull
    return Terms(value, f * ahead + g * behind / ratio, d_log_ratio, d_alpha)


def _by_alpha(block: Standard, slopes: tuple[Number, ...]) -> Tensor | None:
    """What the two KLs add to the derivative by alpha, where that is a tensor."""
    if not isinstance(slopes[0], Tensor):
        return None
    return slopes[0] * kl_terms(block).value + slopes[1] * reverse_kl_terms(block).value


closed_form.register(KL, Normal, Normal)(OnePass(kl_terms))
closed_form.register(ReverseKL, Normal, Normal)(OnePass(reverse_kl_terms))
closed_form.register(WeightedKL, Normal, Normal)(OnePass(weighted_kl_terms))
closed_form.register(JSG, Normal, Normal)(OnePass(jsg_terms))
closed_form.register(UnmodifiedJSG, Normal, Normal)(OnePass(unmodified_jsg_terms))
