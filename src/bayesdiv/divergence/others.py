"""The divergences that the paper's regression tables compare with, as measures of two densities."""

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv.divergence import closed_form, gaussian
from bayesdiv.divergence.base import Divergence, Number, Points
from bayesdiv.divergence.gaussian import OnePass, Standard, Terms, close_to_one, minus_log1p_near
from bayesdiv.divergence.kl import KL


@dataclass(frozen=True)
class Renyi(Divergence):
    """Rényi divergence of order alpha (Li & Turner 2016 in the paper's tables).

        log(∫ q^α p^(1-α)) / (α-1),   α ≥ 0;   KL(q ‖ p) at α = 1

    For two Gaussians it is infinite unless (1-α) σ_q² + α σ_p² > 0.

    Examples:
        >>> Renyi(alpha=0.5)(Normal(1.0, 1.0), Normal(0.0, 1.0))
        tensor(0.2500)
    """

    linear: ClassVar[bool] = False
    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not hasattr(self.alpha, "__float__") or isinstance(self.alpha, Tensor):
            raise TypeError(f"alpha must be a number, got {self.alpha!r}")
        if not 0 <= self.alpha < math.inf:
            raise ValueError(f"alpha must be finite and at least 0, got {self.alpha}")

    @property
    def symmetric(self) -> bool:
        return self.alpha == 0.5

    def reduced(self) -> Divergence:
        return KL() if self.alpha == 1 else self

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        rest = 1 - self.alpha
        value = at_q.log_mean_ratio(rest) / -rest
        if abs(rest) > 1e-3:
            return value
        # Next to order 1 the mean is 1, and its logarithm keeps no digit: take the 1 off first.
        ratio = rest * (at_q.log_p - at_q.log_q)
        near = at_q.mean(torch.where(ratio < 1, ratio, 0.0).expm1())
        whole = (ratio < 1) | (at_q.log_weight + ratio < -700.0)  # the rest counts for nothing
        return torch.where(whole.all(0), near.log1p() / -rest, value)


@dataclass(frozen=True)
class ChiSquared(Divergence):
    """χ² divergence in the direction of χ-VI (Dieng et al. 2017), as a logarithm.

        log ∫ p²/q = log(1 + χ²(p ‖ q)),   the Rényi divergence of order 2 of p from q

    For two Gaussians it is infinite unless 2 σ_q² > σ_p², so it cannot train a narrow posterior.

    Examples:
        >>> ChiSquared()(Normal(1.0, 1.0), Normal(0.0, 1.0))
        tensor(1.)
    """

    linear: ClassVar[bool] = False
    mirror: ClassVar[Divergence] = Renyi(2.0)

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return at_q.log_mean_ratio(2.0)


@dataclass(frozen=True)
class TotalVariation(Divergence):
    """Half the area between the two densities, at most 1 per weight.

        ½ ∫ |q - p|

    Summing it over weights is a convention: it is not additive over independent weights.

    Examples:
        >>> TotalVariation()(Normal(1.0, 1.0), Normal(0.0, 1.0))
        tensor(0.3829)
    """

    averaged: ClassVar[str] = ""
    bound = 1.0
    symmetric = True

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return at_q.mean(-(at_q.log_p - at_q.log_q).clamp(max=0.0).expm1())


def _renyi(block: Standard, alpha: Number) -> Terms:
    """Log v / 2(1-α) - log r + α δ²/2v, v = (1-α) r² + α; infinite where v ≤ 0."""
    delta, ratio, excess = block
    order = cast(float, alpha)
    rest = 1 - order
    log_square, widest = 2 * ratio.log(), torch.finfo(ratio.dtype).max ** 0.48
    # Cut off where the square still is a number; distance and logarithms follow.
    shrunk = (widest / ratio).clamp(max=1.0)
    delta, ratio = delta * shrunk, ratio.clamp(1 / widest, widest)
    excess = excess.clamp(max=widest)
    beyond = log_square - 2 * ratio.log()
    y = excess * (excess + 2)
    v = rest * ratio.square() + order
    finite = v > 0
    v = torch.where(finite, v, 1.0)
    # v = 1 + (1-α) y, of which next to order 1 a logarithm would keep no digit.
    log_v = torch.where(finite, rest * y, 0.0).log1p() if abs(rest) < 0.5 else v.log()
    log_v, near = log_v + beyond.clamp(min=0.0), close_to_one(excess)
    # log(1+εy)/ε - log(1+y) = m(y) - m(εy)/ε with m(y) = y - log(1+y), which near 0 does not
    # cancel.
    value = log_v / rest - log_square
    if order < 0.5:  # the same, free of the cancellation that a small order brings
        inverse = -y / ratio.square()
        over_square = (order * inverse).log1p() + (-beyond).clamp(min=0.0)  # log v/r²
        value = (order * log_square + over_square) / rest
    if near is not None:
        # ε > 1 stretches y out of the series' range, hence the second test.
        near = near & ((rest * y).abs() < 0.1)
        series = minus_log1p_near(y) - minus_log1p_near(rest * y) / rest
        value = torch.where(near, series, value)
    value = 0.5 * value + (0.5 * order * delta) * (delta / v)
    d_log_ratio = order * (y / v - rest * (delta * (ratio / v)).square())
    return Terms(
        torch.where(finite, value, math.inf),
        torch.where(finite, order * delta / v * shrunk, 0.0),
        torch.where(finite, d_log_ratio, 0.0),
    )


def _total_variation(block: Standard, _: Number) -> Terms:
    return gaussian.from_narrower(_mass_apart, block)


def _mass_apart(block: Standard) -> Terms:
    """Mass of the narrower side minus that of the wider between the roots of log q = log p."""
    delta, ratio, excess = block
    # A thousand scales of the wider side are as far as any distance, and have a square.
    delta, deficit = delta.clamp(-1e3, 1e3), -excess * (excess + 2)  # 1 - r² ≥ 0
    # Where ½(1-r²) ε² - δ r ε - (½δ² - log r) = 0, by the formula that does not cancel.
    slope, constant = delta * ratio, 0.5 * delta * delta - ratio.log()
    spread = (slope * slope + 2 * deficit * constant).sqrt()
    sign = torch.where(slope < 0, -1.0, 1.0).to(slope)
    sum_ = 0.5 * (slope + sign * spread)
    # Equal distributions have no root, equal scales one: beyond 40 scales no mass is left.
    far = torch.where(deficit > 0, 2 * sum_ / deficit, sign * math.inf)
    roots = (torch.where(sum_ == 0, 0.0, x).clamp(-40.0, 40.0) for x in (far, -constant / sum_))
    far, close = roots
    low, high = torch.minimum(far, close), torch.maximum(far, close)
    # In units of the narrower side ε, and of the wider one δ + r ε.
    mass = _between(low, high) - _between(delta + ratio * low, delta + ratio * high)
    bell_low, bell_high = ((-0.5 * x * x).exp() / math.sqrt(2 * math.pi) for x in (low, high))
    d_delta = (bell_low - bell_high) / ratio
    return Terms(mass.clamp(0.0, 1.0), d_delta, low * bell_low - high * bell_high)


def _between(low: Tensor, high: Tensor) -> Tensor:
    """Mass of N(0, 1) between two points, from the tail nearer to both."""
    flip = torch.where(low > 0, -1.0, 1.0).to(low)
    ends = torch.stack([flip * low, flip * high])
    below_low, below_high = (torch.special.ndtr(x) for x in (ends.amin(0), ends.amax(0)))
    return torch.sub(below_high, below_low)


closed_form.register(Renyi, Normal, Normal)(OnePass(_renyi))
closed_form.register(TotalVariation, Normal, Normal)(OnePass(_total_variation))
