"""Jensen-Shannon divergences around the geometric mean, and the weighted sum of the two KLs."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Points
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.gaussian import OnePass, Standard, Terms, close_to_one, minus_log1p_near
from bayesdiv.divergence.kl import KL, ReverseKL, kl_terms, reverse_kl_terms
from bayesdiv.divergence.skewed import Skewed, Unmodified


@dataclass(frozen=True)
class WeightedKL(Skewed):
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

    @property
    def parts(self) -> tuple[tuple[float | Tensor, Divergence], ...]:
        """The two KLs."""
        return ((1 - self.alpha) ** 2, KL()), (self.alpha**2, ReverseKL())

    def derived_rule(self, q: Distribution, p: Distribution) -> Rule | None:
        """The closed forms of the two KLs, where both exist."""
        forward, reverse = closed_form.find(KL(), q, p), closed_form.find(ReverseKL(), q, p)
        if forward is None or reverse is None:
            return None
        square, other = (1 - self.alpha) ** 2, self.alpha**2
        return lambda _, q, p: square * forward(KL(), q, p) + other * reverse(ReverseKL(), q, p)


@dataclass(frozen=True)
class JSG(Skewed):
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
class UnmodifiedJSG(Unmodified):
    """The skew geometric divergence before its mean was reversed, normalised (eq. jsgalph).

        (1-α) KL(q ‖ G) + α KL(p ‖ G),   G = q^(1-α) p^α / Z

    It vanishes at alpha = 0 and alpha = 1, whatever q and p are.

    Examples:
        >>> from torch.distributions import Normal
        >>> UnmodifiedJSG(alpha=0.25)(Normal(5.0, 1.0), Normal(0.0, 1.0))
        tensor(2.3438)
    """

    linear: ClassVar[bool] = False

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """α(1-α) times the sum of both KLs, plus log Z."""
        both = KL().estimate(at_q, at_p) + ReverseKL().estimate(at_q, at_p)
        return self.alpha * (1 - self.alpha) * both + at_q.log_mean_ratio(self.alpha)


class _Squares(NamedTuple):
    """Functions of ρ = r² that the three divergences are made of, as ρ and 1/ρ may overflow."""

    near: Tensor | None
    log_square: Tensor  # log ρ
    excess: tuple[Tensor, Tensor]  # two factors of y = ρ - 1
    inverse_excess: tuple[Tensor, Tensor]  # two factors of 1/ρ - 1

    @classmethod
    def of(cls, block: Standard) -> "_Squares":
        _, ratio, excess = block
        more = excess + 2
        return cls(
            close_to_one(excess),
            ratio.log().mul_(2),
            (excess, more),
            (-excess / ratio, more / ratio),
        )

    def rest(self, weight: float | Tensor) -> Tensor:
        """weight² m(y)/2, m(y) = y - log(1+y): weight² KL(q ‖ p) at δ = 0."""
        return _rest(weight, self.excess, self.log_square, self.near)

    def inverse_rest(self, weight: float | Tensor) -> Tensor:
        """weight² m(1/ρ - 1)/2: weight² KL(p ‖ q) at δ = 0."""
        return _rest(weight, self.inverse_excess, -self.log_square, self.near)


def _rest(
    weight: float | Tensor, factors: tuple[Tensor, Tensor], log1p: Tensor, near: Tensor | None
) -> Tensor:
    """weight² (y - log(1+y))/2 for the y that is the product of the factors."""
    one, two = factors
    half = 0.5 * weight**2
    # Each factor is made small first: y may overflow where the result does not.
    direct = (0.5 * weight * one) * (weight * two) - half * log1p
    return direct if near is None else torch.where(near, half * minus_log1p_near(one * two), direct)


def _product(factors: tuple[Tensor, Tensor], weight: float | Tensor = 1.0) -> Tensor:
    """weight² y, which need not overflow where y does."""
    one, two = factors
    return (weight * one) * (weight * two)


class _Mean(NamedTuple):
    """The variance v = β ρ + 1 - β of the geometric mean, and what is made of it.

    The rest 1 - β is given, because 1 - (1 - α) is 0 for α < 1e-16.
    """

    share: Tensor  # ρ/v
    inverse: Tensor  # 1/v
    excess: Tensor  # (ρ-1)/v
    log_z: Tensor  # (β log ρ - log v)/2 at δ = 0; near r = 1 it is (m(βy) - β m(y))/2

    @classmethod
    def of(
        cls, block: Standard, squares: _Squares, beta: float | Tensor, rest: float | Tensor
    ) -> "_Mean":
        """With r cut off where its square still is a number: beyond, other terms are all."""
        widest = torch.finfo(block.ratio.dtype).max ** 0.48
        square = block.ratio.clamp(1 / widest, widest).square()
        excess = block.excess.clamp(max=widest)
        y = (excess + 2).mul_(excess)
        v = beta * square + rest
        inverse = v.reciprocal()
        log_z = beta * squares.log_square - v.log()
        if squares.near is not None:
            close = minus_log1p_near(beta * y) - beta * minus_log1p_near(y)
            log_z = torch.where(squares.near, close, log_z)
        return cls(square * inverse, inverse, y * inverse, 0.5 * log_z)


class _Distance(NamedTuple):
    """What δ adds: push = A δ² ρ/2v and pull = B (δ/r)²/2v, and the derivative of their sum."""

    push: Tensor
    pull: Tensor
    d_delta: Tensor

    @classmethod
    def of(
        cls, block: Standard, mean: _Mean, push: float | Tensor, pull: float | Tensor
    ) -> "_Distance":
        """For the weights A and B, multiplied first: the squares alone would overflow."""
        delta, far = block.delta, block.delta / block.ratio
        one, two = delta * mean.share, far * mean.inverse
        d_delta = push * one + pull * two / block.ratio
        return cls((0.5 * push * delta) * one, (0.5 * pull * far) * two, d_delta)

    def d_log_ratio(self, mean: _Mean, beta: float | Tensor, rest: float | Tensor) -> Tensor:
        """2 (1-β) push/v - 2 (1 + β ρ/v) pull."""
        half = rest * mean.inverse * self.push - (1 + beta * mean.share) * self.pull
        return 2 * half


def weighted_kl_terms(block: Standard, alpha: float | Tensor) -> Terms:
    """(1-α)² KL(q ‖ p) + α² KL(p ‖ q)."""
    a, b = alpha, 1 - alpha
    s = _Squares.of(block)
    delta, far = block.delta, block.delta / block.ratio
    value = s.rest(b) + s.inverse_rest(a)
    value = value + (0.5 * b * delta) * (b * delta) + (0.5 * a * far) * (a * far)
    d_delta = b**2 * delta + a**2 * far / block.ratio
    d_log_ratio = _product(s.excess, b) - _product(s.inverse_excess, a) - (a * far).square()
    if not isinstance(alpha, Tensor):
        return Terms(value, d_delta, d_log_ratio)
    d_alpha = 2 * (a * reverse_kl_terms(block, alpha).value - b * kl_terms(block, alpha).value)
    return Terms(value, d_delta, d_log_ratio, d_alpha)


def jsg_terms(block: Standard, alpha: float | Tensor) -> Terms:
    """½[v²/r² - 1 + 2α log r - log v + δ² c], c = ((1-α)³ r² + α³/r²)/v, v = (1-α) r² + α."""
    a, b = alpha, 1 - alpha
    s = _Squares.of(block)
    mean = _Mean.of(block, s, b, a)
    away = _Distance.of(block, mean, b**3, a**3)
    value = s.rest(b) + s.inverse_rest(a) + mean.log_z + away.push + away.pull
    d_log_ratio = _product(s.excess, b) - _product(s.inverse_excess, a) - a * b * mean.excess
    d_log_ratio = d_log_ratio + away.d_log_ratio(mean, b, a)
    if not isinstance(alpha, Tensor):
        return Terms(value, away.d_delta, d_log_ratio)
    d_away = 3 * (away.pull / a - away.push / b) + (away.push + away.pull) * mean.excess
    d_alpha = 2 * (a * s.inverse_rest(1.0) - b * s.rest(1.0)) + d_away
    d_alpha = d_alpha + 0.5 * (mean.excess - s.log_square)
    return Terms(value, away.d_delta, d_log_ratio, d_alpha)


def unmodified_jsg_terms(block: Standard, alpha: float | Tensor) -> Terms:
    """½[α(1-α)((r - 1/r)² + δ² c) + 2α log r - log v], c = (α r² + (1-α)/r²)/v.

    With v = α r² + 1 - α.
    """
    a, b = alpha, 1 - alpha
    s = _Squares.of(block)
    mean = _Mean.of(block, s, a, b)
    product = a * b
    away = _Distance.of(block, mean, product * a, product * b)
    both = block.excess * (1 + block.ratio.reciprocal())  # r - 1/r
    root = product**0.5
    value = (0.5 * root * both) * (root * both) + away.push + away.pull + mean.log_z
    d_log_ratio = _product(s.excess, root) - _product(s.inverse_excess, root)
    d_log_ratio = d_log_ratio - product * mean.excess + away.d_log_ratio(mean, a, b)
    if not isinstance(alpha, Tensor):
        return Terms(value, away.d_delta, d_log_ratio)
    distance = 2 * (away.push + away.pull) / product
    d_alpha = (b - a) * (both.square() + distance) + s.log_square - mean.excess
    delta = block.delta
    d_alpha = 0.5 * (d_alpha + product * (delta * mean.inverse) * (delta * mean.excess))
    return Terms(value, away.d_delta, d_log_ratio, d_alpha)


closed_form.register(WeightedKL, Normal, Normal)(OnePass(weighted_kl_terms))
closed_form.register(JSG, Normal, Normal)(OnePass(jsg_terms))
closed_form.register(UnmodifiedJSG, Normal, Normal)(OnePass(unmodified_jsg_terms))
