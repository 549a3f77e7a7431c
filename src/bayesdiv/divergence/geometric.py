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
from bayesdiv.divergence.kl import (
    KL,
    ReverseKL,
    Skewed,
    Unmodified,
    kl_terms,
    reverse_kl_terms,
)

Number = float | Tensor


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

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """Both expectations as means over points (algorithm 2 sums them, which changes λ)."""
        forward, reverse = KL().estimate(at_q, at_p), ReverseKL().estimate(at_q, at_p)
        return (1 - self.alpha) ** 2 * forward + self.alpha**2 * reverse

    @property
    def parts(self) -> tuple[tuple[float | Tensor, Divergence], ...]:
        return ((1 - self.alpha) ** 2, KL()), (self.alpha**2, ReverseKL())

    def derived_rule(self, q: Distribution, p: Distribution) -> Rule | None:
        forward, reverse = closed_form.find(KL(), q, p), closed_form.find(ReverseKL(), q, p)
        if forward is None or reverse is None:
            return None
        square, other = (1 - self.alpha) ** 2, self.alpha**2
        return lambda _, q, p: square * forward(KL(), q, p) + other * reverse(ReverseKL(), q, p)


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
class UnmodifiedJSG(Unmodified):
    """The skew geometric divergence before its mean was reversed, normalised (eq. 2).

        (1-α) KL(q ‖ G) + α KL(p ‖ G),   G = q^(1-α) p^α / Z

    It vanishes at alpha = 0 and alpha = 1, whatever q and p are.

    Examples:
        >>> UnmodifiedJSG(alpha=0.25)(Normal(5.0, 1.0), Normal(0.0, 1.0))
        tensor(2.3438)
    """

    linear: ClassVar[bool] = False

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """α(1-α) times the sum of both KLs, plus log Z."""
        both = KL().estimate(at_q, at_p) + ReverseKL().estimate(at_q, at_p)
        return self.alpha * (1 - self.alpha) * both + at_q.log_mean_ratio(self.alpha)


class _Parts(NamedTuple):
    """What all three are made of: f² KL(q ‖ p) + g² KL(p ‖ q) + log Z of q^β p^(1-β), and d/dα."""

    forward: Number  # f
    reverse: Number  # g
    slopes: tuple[Number, Number, float]  # of f², g² and β by alpha
    beta: Number | None = None  # None without the normaliser
    rest: Number = 0.0  # 1-β, given because 1 - (1 - α) is 0 for α < 1e-16


def weighted_kl_terms(block: Standard, alpha: Number) -> Terms:
    """(1-α)² KL(q ‖ p) + α² KL(p ‖ q)."""
    a, b = alpha, 1 - alpha
    return _terms(block, _Parts(b, a, (-2 * b, 2 * a, 0.0)))


def jsg_terms(block: Standard, alpha: Number) -> Terms:
    """½[v²/r² - 1 + 2α log r - log v + δ² c], c = ((1-α)³ r² + α³/r²)/v, v = (1-α) r² + α."""
    a, b = alpha, 1 - alpha
    return _terms(block, _Parts(b, a, (-2 * b, 2 * a, -1.0), b, a))


def unmodified_jsg_terms(block: Standard, alpha: Number) -> Terms:
    """½[α(1-α)((r - 1/r)² + δ² c) + 2α log r - log v], c = (α r² + (1-α)/r²)/v."""
    # With v = α r² + 1 - α.
    a, b = alpha, 1 - alpha
    root = (a * b) ** 0.5
    return _terms(block, _Parts(root, root, (b - a, b - a, 1.0), a, b))


def _terms(block: Standard, parts: _Parts) -> Terms:
    """With ρ = r², y = ρ - 1 and m(y) = y - log(1+y), a KL at δ = 0 is m(y)/2 or m(1/ρ - 1)/2."""
    delta, ratio, excess = block
    f, g, slopes, beta, rest = parts
    near, log_square, far = close_to_one(excess), ratio.log().mul_(2), delta / ratio
    # Two factors of y, and of 1/ρ - 1, as either may overflow.
    factors, inverses = (excess, excess + 2), (-excess / ratio, (excess + 2) / ratio)
    value = _rest(f, factors, log_square, near) + _rest(g, inverses, -log_square, near)
    # f² y and g² (1/ρ - 1), which need not overflow where y does.
    d_log_ratio = (f * factors[0]) * (f * factors[1]) - (g * inverses[0]) * (g * inverses[1])
    if beta is None:
        value = value + (0.5 * f * delta) * (f * delta) + (0.5 * g * far) * (g * far)
        d_delta, d_log_ratio = f**2 * delta + g**2 * far / ratio, d_log_ratio - (g * far).square()
        return Terms(value, d_delta, d_log_ratio, _by_alpha(block, parts))
    # The variance v = β ρ + 1 - β of the geometric mean, with r cut off where its square still is a
    # number: beyond, other terms are all.
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
    share, weights = square * inverse, (f**2 * beta, g**2 * rest)
    one, two = delta * share, far * inverse
    push, pull = (0.5 * weights[0] * delta) * one, (0.5 * weights[1] * far) * two
    d_delta = weights[0] * one + weights[1] * two / ratio
    half = rest * inverse * push - (1 + beta * share) * pull
    d_log_ratio = d_log_ratio - (beta * rest) * (y * inverse) + 2 * half
    d_alpha = _by_alpha(block, parts)
    if d_alpha is not None:
        near_by = delta * inverse
        by_beta = log_square - y * inverse - (rest - beta) * (near_by * delta)
        d_alpha = d_alpha + (0.5 * slopes[2]) * (by_beta + (beta * rest) * near_by * (near_by * y))
    return Terms(value + 0.5 * log_z + push + pull, d_delta, d_log_ratio, d_alpha)


def _by_alpha(block: Standard, parts: _Parts) -> Tensor | None:
    """What the two KLs add to the derivative by alpha, where that is a tensor."""
    one, two, _ = parts.slopes
    if not isinstance(parts.forward, Tensor):
        return None
    return one * kl_terms(block, 0.0).value + two * reverse_kl_terms(block, 0.0).value


def _rest(
    weight: Number, factors: tuple[Tensor, Tensor], log1p: Tensor, near: Tensor | None
) -> Tensor:
    """weight² (y - log(1+y))/2 for the y that is the product of the factors."""
    half = 0.5 * weight**2
    # Each factor is made small first: y may overflow where the result does not.
    direct = (0.5 * weight * factors[0]) * (weight * factors[1]) - half * log1p
    if near is None:
        return direct
    return torch.where(near, half * minus_log1p_near(factors[0] * factors[1]), direct)


closed_form.register(WeightedKL, Normal, Normal)(OnePass(weighted_kl_terms))
closed_form.register(JSG, Normal, Normal)(OnePass(jsg_terms))
closed_form.register(UnmodifiedJSG, Normal, Normal)(OnePass(unmodified_jsg_terms))
