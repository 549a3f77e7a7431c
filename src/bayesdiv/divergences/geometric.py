"""Jensen-Shannon divergences around the geometric mean, and the weighted sum of the two KLs."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv import closed_form
from bayesdiv.closed_form import Rule, Total
from bayesdiv.densities import common_shape, places
from bayesdiv.divergences.base import Divergence, Points, checked_alpha
from bayesdiv.divergences.kl import KL, ReverseKL, _kl, _reverse_kl
from bayesdiv.fused import Kernel, Sums, in_blocks, summed, total
from bayesdiv.fused import Rule as FusedRule
from bayesdiv.gaussian import Standard, Terms, any_of, close_to_one, minus_log1p, one_pass


@dataclass(frozen=True)
class _Skewed(Divergence):
    """What the two families share: alpha in [0, 1], symmetric at one half, a KL at each end."""

    alpha: float | Tensor = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", checked_alpha(self.alpha))

    @property
    def symmetric(self) -> bool:
        """True at alpha = ½ alone."""
        return not isinstance(self.alpha, Tensor) and self.alpha == 0.5

    def reduced(self) -> Divergence:
        """KL at alpha = 0, the reverse KL at alpha = 1."""
        if isinstance(self.alpha, Tensor) or 0 < self.alpha < 1:
            return self
        return KL() if self.alpha == 0 else ReverseKL()


@dataclass(frozen=True)
class WeightedKL(_Skewed):
    """The two KLs, weighted: the paper's eq. gmex, its algorithm 2 and its theorems 2 and 3.

        (1-α)² KL(q ‖ p) + α² KL(p ‖ q)

    The paper calls this JS-G too, though it leaves the normaliser of the geometric mean out:
    JSG = WeightedKL + log Z with log Z ≤ 0.

    Examples:
        >>> from torch.distributions import Normal
        >>> WeightedKL(alpha=0.5)(Normal(5.0, 1.0), Normal(0.0, 1.0))
        tensor(6.2500)
    """

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """Both expectations as means over points (algorithm 2 sums them, which changes λ)."""
        forward, reverse = KL().estimate(at_q, at_p), ReverseKL().estimate(at_q, at_p)
        return (1 - self.alpha) ** 2 * forward + self.alpha**2 * reverse

    def derived_rule(self, q: Distribution, p: Distribution) -> Rule | None:
        """The closed forms of the two KLs, where both exist."""
        forward, reverse = closed_form.find(KL(), q, p), closed_form.find(ReverseKL(), q, p)
        if forward is None or reverse is None:
            return None
        square, other = (1 - self.alpha) ** 2, self.alpha**2
        return lambda _, q, p: square * forward(KL(), q, p) + other * reverse(ReverseKL(), q, p)


@dataclass(frozen=True)
class JSG(_Skewed):
    """Geometric Jensen-Shannon divergence around the normalised mean (paper, eq. cfjs_mod).

        (1-α) KL(q ‖ G) + α KL(p ‖ G),   G = q^α p^(1-α) / Z

    Unbounded. For two Gaussians in closed form, with the prime that the paper's first term lacks.
    KL(q ‖ p) at alpha = 0, KL(p ‖ q) at alpha = 1.

    Examples:
        >>> from torch.distributions import Normal
        >>> JSG(alpha=0.5)(Normal(5.0, 1.0), Normal(0.0, 1.0))
        tensor(3.1250)
    """

    linear: ClassVar[bool] = False

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """The weighted KLs plus log Z; refuses few points (see `Points.log_mean_ratio`)."""
        log_z = at_q.log_mean_ratio(1 - self.alpha)
        return WeightedKL(self.alpha).estimate(at_q, at_p) + log_z


@dataclass(frozen=True)
class UnmodifiedJSG(_Skewed):
    """The skew geometric divergence before its mean was reversed, normalised (eq. jsgalph).

        (1-α) KL(q ‖ G) + α KL(p ‖ G),   G = q^(1-α) p^α / Z

    It vanishes at alpha = 0 and alpha = 1, whatever q and p are.

    Examples:
        >>> from torch.distributions import Normal
        >>> UnmodifiedJSG(alpha=0.25)(Normal(5.0, 1.0), Normal(0.0, 1.0))
        tensor(2.3438)
    """

    linear: ClassVar[bool] = False

    @property
    def bound(self) -> float | None:
        """0 at both ends, none between."""
        return 0.0 if isinstance(self.reduced(), _Zero) else None

    @property
    def symmetric(self) -> bool:
        """At alpha = ½, and at the ends, where it is 0."""
        return super().symmetric or isinstance(self.reduced(), _Zero)

    def reduced(self) -> Divergence:
        """0 at both ends."""
        return self if super().reduced() is self else _Zero()

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """α(1-α) times the sum of both KLs, plus log Z."""
        both = KL().estimate(at_q, at_p) + ReverseKL().estimate(at_q, at_p)
        return self.alpha * (1 - self.alpha) * both + at_q.log_mean_ratio(self.alpha)


@dataclass(frozen=True)
class _Zero(Divergence):
    """What the unmodified divergences are at alpha = 0 and 1: nothing, for any pair."""

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """0 for each weight."""
        return torch.zeros_like(at_q.log_q[0])


@closed_form.register(_Zero, Distribution, Distribution)
def _(_: _Zero, q: Distribution, p: Distribution) -> Tensor:
    shape = common_shape(q.batch_shape, p.batch_shape)
    loc, scale = places(q)[0]
    # Products keep dtype, device and the graph: the gradient is 0, not missing.
    return (loc * 0.0 + scale * 0.0).expand(shape)


@closed_form.register(WeightedKL, Normal, Normal)
def _(divergence: WeightedKL, q: Normal, p: Normal) -> Tensor:
    return one_pass(_weighted_kl, q, p, divergence.alpha)


@closed_form.register_total(WeightedKL, Normal, Normal)
def _(divergence: WeightedKL, q: Normal, p: Normal) -> Total | None:
    if isinstance(divergence.alpha, Tensor):
        return None
    kernel = Kernel(FusedRule.WEIGHTED_KL.value, divergence.alpha)
    return total(in_blocks(summed(_weighted_kl, divergence.alpha)), kernel)


@closed_form.register(JSG, Normal, Normal)
def _(divergence: JSG, q: Normal, p: Normal) -> Tensor:
    return one_pass(_jsg, q, p, divergence.alpha)


@closed_form.register_total(JSG, Normal, Normal)
def _(divergence: JSG, q: Normal, p: Normal) -> Total | None:
    if isinstance(divergence.alpha, Tensor):
        return None
    kernel = Kernel(FusedRule.JSG.value, divergence.alpha)
    return total(in_blocks(partial(_jsg_sums, divergence.alpha)), kernel)


@closed_form.register(UnmodifiedJSG, Normal, Normal)
def _(divergence: UnmodifiedJSG, q: Normal, p: Normal) -> Tensor:
    return one_pass(_unmodified_jsg, q, p, divergence.alpha)


def _weighted_kl(block: Standard, alpha: float | Tensor) -> Terms:
    """(1-α)² KL(q ‖ p) + α² KL(p ‖ q)."""
    beta = 1 - alpha
    forward, reverse = _kl(block, alpha), _reverse_kl(block, alpha)
    value, d_delta, d_log_ratio = (
        beta**2 * one + alpha**2 * two for one, two in zip(forward[:3], reverse[:3], strict=True)
    )
    d_alpha = 2 * (alpha * reverse.value - beta * forward.value)
    return Terms(value, d_delta, d_log_ratio, d_alpha if isinstance(alpha, Tensor) else None)


class _Squares(NamedTuple):
    """Functions of ρ = r² that both geometric divergences are made of, with m(y) = y - log(1+y)."""

    square: Tensor  # ρ
    inverse: Tensor  # 1/ρ
    excess: Tensor  # y = ρ - 1
    log_square: Tensor  # log ρ
    rest: Tensor  # m(y) = 2 KL(q ‖ p) at δ = 0
    inverse_rest: Tensor  # m(1/ρ - 1) = 2 KL(p ‖ q) at δ = 0
    near: Tensor | None

    @classmethod
    def of(cls, block: Standard) -> "_Squares":
        ratio, excess = block.ratio, block.excess
        y = (excess + 2).mul_(excess)
        inverse = ratio.reciprocal().square()
        log_square, near = ratio.log().mul_(2), close_to_one(excess)
        rest = minus_log1p(y, log_square, near)
        inverse_rest = minus_log1p(-y * inverse, -log_square, near)
        return cls(ratio.square(), inverse, y, log_square, rest, inverse_rest, near)

    def log_z(self, variance: Tensor, beta: float | Tensor) -> Tensor:
        """2 log Z = β log ρ - log v at δ = 0, v = 1 + β y; near r = 1 it is m(βy) - β m(y)."""
        log_variance = variance.log()
        direct = beta * self.log_square - log_variance
        if self.near is None:
            return direct
        close = minus_log1p(beta * self.excess, log_variance, self.near) - beta * self.rest
        return torch.where(self.near, close, direct)


def _jsg(block: Standard, alpha: float | Tensor) -> Terms:
    """½[v²/r² - 1 + 2α log r - log v + δ² c], c = ((1-α)³ r² + α³/r²)/v, v = (1-α) r² + α."""
    a, b = alpha, 1 - alpha
    s = _Squares.of(block)
    v = b * s.square + a
    inverse_v = v.reciprocal()
    top, tail = b**3 * s.square, a**3 * s.inverse
    c = (top + tail) * inverse_v
    delta = block.delta
    square = delta * delta
    value = 0.5 * (b**2 * s.rest + a**2 * s.inverse_rest + s.log_z(v, b) + square * c)
    half_d_c = (top - tail - b * s.square * c) * inverse_v
    d_log_ratio = s.excess * (b**2 + a**2 * s.inverse - a * b * inverse_v) + square * half_d_c
    if not isinstance(alpha, Tensor):
        return Terms(value, delta * c, d_log_ratio)
    d_c = (3 * (a**2 * s.inverse - b**2 * s.square) + c * s.excess) / v
    d_alpha = a * s.inverse_rest - b * s.rest
    d_alpha = d_alpha + 0.5 * (s.excess / v - s.log_square + square * d_c)
    return Terms(value, delta * c, d_log_ratio, d_alpha)


def _jsg_sums(
    alpha: float, loc: Tensor, scale: Tensor, prior_loc: Tensor, prior_scale: Tensor
) -> Sums:
    """`_jsg` with fewer passes, where no ratio is near 1."""
    a, b = alpha, 1 - alpha
    inverse = prior_scale.reciprocal()
    ratio = scale * inverse
    if any_of(ratio.max() > 0.95):
        return summed(_jsg, alpha)(loc, scale, prior_loc, prior_scale)
    delta = (loc - prior_loc).mul_(inverse)
    square = ratio * ratio
    inverse_square = square.reciprocal()
    v = square.mul(b).add_(a)
    inverse_v = v.reciprocal()
    c = square.mul(b**3).add_(inverse_square, alpha=a**3).mul_(inverse_v)
    delta_square = delta * delta
    logs = 2 * a * ratio.log().sum() - v.log_().sum()
    powers = b**2 * square.sum() + a**2 * inverse_square.sum() - (a**2 + b**2) * loc.numel()
    value = 0.5 * (powers + logs + (delta_square * c).sum())
    # ½ ∂c/∂log r = ((1-α)³ r² - α³/r² - (1-α) r² c) / v = (1-α)³ r²/v·2 - c - (1-α) r² c / v
    share = square.mul_(inverse_v)  # r²/v
    half_d_c = share.mul(2 * b**3).sub_(c).addcmul_(share, c, value=-b)
    slope = inverse_v.mul_(-a * b).add_(inverse_square, alpha=a**2).add_(b**2)
    d_log_ratio = delta_square.mul_(half_d_c).addcmul_(_excess(ratio), slope)
    return Sums(value, delta.mul_(c).mul_(inverse), d_log_ratio.div_(scale))


def _excess(ratio: Tensor) -> Tensor:
    """The ratio's square less 1, from factors that lose no digits."""
    return ratio.add(1).mul_(ratio - 1)


def _unmodified_jsg(block: Standard, alpha: float | Tensor) -> Terms:
    """α(1-α)[KL(q ‖ p) + KL(p ‖ q)] + log Z, v = α r² + 1 - α."""
    a, b = alpha, 1 - alpha
    s = _Squares.of(block)
    v = a * s.square + b
    product = a * b
    c = 1 + s.inverse - 1 / v
    delta = block.delta
    square = delta * delta
    both = s.rest + s.inverse_rest
    value = 0.5 * (product * (both + square * c) + s.log_z(v, a))
    d_c = 2 * (a * s.square / v**2 - s.inverse)
    d_log_ratio = product * (s.excess * (1 + s.inverse - 1 / v) + 0.5 * square * d_c)
    if not isinstance(alpha, Tensor):
        return Terms(value, product * delta * c, d_log_ratio)
    d_alpha = (b - a) * (both + square * c) + s.log_square - s.excess / v
    d_alpha = 0.5 * (d_alpha + product * square * s.excess / v**2)
    return Terms(value, product * delta * c, d_log_ratio, d_alpha)
