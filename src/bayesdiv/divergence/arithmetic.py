"""Jensen-Shannon divergences around the arithmetic mean, and the one-sided rule for Gaussians.

Both divergences of this file have the form

    w KL(q ‖ A) + (1-w) KL(p ‖ A),   A = m q + (1-m) p

with (w, m) = (1-α, α) for JSA and (1-α, 1-α) for UnmodifiedJSA. With z = log q - log p +
log(m/(1-m)), h(z) = e^(-z) softplus(z) and c = (1-w) m/(1-m) it is one expectation, under q alone:

    bound - E_q[w softplus(-z) + c h(z)],   bound = -w log m - (1-w) log(1-m)

because E_q[p/q f(z)] = E_p[f(z)]. The one-sided rule integrates it on equally spaced nodes where
the narrower of two Gaussians has its mass: if that is p, q and p change places, and so do w and m.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, Uniform
from torch.nn.functional import softplus

from bayesdiv.divergence import closed_form, gaussian
from bayesdiv.divergence.base import Divergence, Number, Points, compiling, on_gpu
from bayesdiv.divergence.closed_form import NodeRule, Prepared
from bayesdiv.divergence.gaussian import BLOCK, Standard, Terms, log_number, one_pass
from bayesdiv.divergence.kl import Skewed, Zero

NODES = 40
UNIFORM_NODES = 96
FARTHEST = 1e3  # scales of the wider side: beyond, no alpha lets the sides meet
Nodes = tuple[tuple[float, ...], tuple[float, ...]]


class Arithmetic(Skewed):
    """What both divergences of this file share."""

    averaged: ClassVar[str] = ""  # what it averages has all moments
    leans: ClassVar[float] = 1.0
    """dm/dα: 1 for a mean that leans the other way than the sum, -1 for one that leans alike."""

    @classmethod
    def mixture(cls, alpha: Number) -> "Mixture":
        """The weights w and m at this alpha, which is kept where its reciprocal is finite."""
        alpha = alpha if isinstance(alpha, Tensor) else max(alpha, 1e-290)
        inner = (alpha, 1 - alpha) if cls.leans > 0 else (1 - alpha, alpha)
        return Mixture(1 - alpha, alpha, *inner, -1.0, cls.leans)

    @property
    def bound(self) -> float | None:
        """-w log m - (1-w) log(1-m): theorem 1 for JSA, the entropy of alpha for UnmodifiedJSA."""
        whole = self.reduced() is self
        return _largest(self.mixture(self.alpha).bound) if whole else super().bound

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
class JSA(Arithmetic):
    """Bounded Jensen-Shannon divergence, arithmetic mean (paper, "JS-A", eq. 8).

        (1-α) KL(q ‖ A) + α KL(p ‖ A),   A = α q + (1-α) p

    Never above -(1-α) log α - α log(1-α) per weight (theorem 1). KL(q ‖ p) at alpha = 0, KL(p ‖ q)
    at alpha = 1. It has no closed form; for two Gaussians the one-sided rule computes it to 1e-6.

    Examples:
        >>> JSA(alpha=0.5)(Normal(100.0, 1.0), Normal(0.0, 1.0))
        tensor(0.6931)
    """


@dataclass(frozen=True)
class UnmodifiedJSA(Arithmetic):
    """The generalised Jensen-Shannon divergence before the paper's modification (eq. 1).

        (1-α) KL(q ‖ M) + α KL(p ‖ M),   M = (1-α) q + α p

    Never above the entropy -α log α - (1-α) log(1-α). It vanishes at alpha = 0 and alpha = 1.

    Examples:
        >>> UnmodifiedJSA(alpha=0.25)(Normal(100.0, 1.0), Normal(0.0, 1.0))
        tensor(0.5623)
    """

    ends: ClassVar[tuple[Divergence, Divergence]] = Zero(), Zero()
    leans: ClassVar[float] = -1.0


class Mixture(NamedTuple):
    """The weights of w KL(q ‖ A) + (1-w) KL(p ‖ A), A = m q + (1-m) p, with their complements."""

    # The complements are kept because 1 - (1 - m) is 0 for m < 1e-16.

    outer: Number  # w = 1-α
    outer_rest: Number  # 1-w = α
    inner: Number  # m
    inner_rest: Number  # 1-m
    outer_slope: float  # dw/dα
    inner_slope: float  # dm/dα

    @property
    def bound(self) -> Number:
        """-w log m - (1-w) log(1-m) (theorem 1)."""
        return -self.outer * log_number(self.inner) - self.outer_rest * log_number(self.inner_rest)

    @property
    def odds(self) -> Number:
        return self.inner / self.inner_rest

    @property
    def tilt(self) -> Number:
        """C = (1-w) m/(1-m)."""
        return self.outer_rest * self.odds

    @property
    def weights(self) -> tuple[Number, Number, Number, Number]:
        """What a pass reads: the bound, log m/(1-m), w and c."""
        return self.bound, log_number(self.odds), self.outer, self.tilt

    @property
    def swapped(self) -> "Mixture":
        """The weights when q and p change places."""
        w, rest, m, inner_rest, slope, inner_slope = self
        return Mixture(rest, w, inner_rest, m, -slope, -inner_slope)


class OneSided(NodeRule):
    """JS-A of two Gaussians by the one-sided rule."""

    #     z(ε) = log m/(1-m) - log r + δ²/2 + δ r ε - (1-r²) ε²/2,   r ≤ 1
    #     JS-A = bound - Σ_k s_k [w softplus(-z_k) + c h(z_k)]
    # Within 1e-6 with 40 nodes and 1e-10 with 96 for alpha in [0.01, 0.99], five times that down to
    # 1e-6 from either end, at scale ratios from 1e-6 to 1e3 and any distance.

    def prepare(self, divergence: Divergence, q: Distribution, p: Distribution) -> Prepared:
        kind = cast(Arithmetic, divergence)
        alpha, mixture = kind.alpha, kind.mixture
        count = self.nodes or NODES
        moves = isinstance(alpha, Tensor) and alpha.requires_grad
        # What is traced keeps its nodes while alpha may go as far as `LearnedAlpha` lets it.
        laid_out = equally_spaced(count, window(count, mixture(alpha), 1e6 if moves else 1.0))

        def compute(q: Distribution, p: Distribution) -> Tensor:
            nodes = laid_out
            if moves and not compiling():  # an alpha that nears an end needs a wider window
                nodes = equally_spaced(count, window(count, mixture(alpha)))

            def rule(block: Standard, alpha: Number) -> Terms:
                return one_sided(block, mixture(alpha), nodes)

            return one_pass(rule, cast(Normal, q), cast(Normal, p), alpha, BLOCK // count)

        return compute


class UniformPrior(NodeRule):
    """JS-A of a Gaussian against a uniform prior, by Gauss-Legendre nodes inside the support."""

    #     JS-A = bound - ∫ [w q softplus(-z) + (1-w) p softplus(z)] dx
    # Outside the support both terms vanish. The nodes stay put while q moves, so the gradient is
    # right where that of a sample is not: a reparametrised draw never sees the edge of the support.

    def prepare(self, divergence: Divergence, q: Distribution, p: Distribution) -> Prepared:
        kind = cast(Arithmetic, divergence)
        alpha, mixture = kind.alpha, kind.mixture
        gauss = np.polynomial.legendre.leggauss(self.nodes or UNIFORM_NODES)
        nodes = tuple(gauss[0].tolist()), tuple(gauss[1].tolist())
        # q's density times the odds exceeds p's beyond 9 scales when alpha is near 1.
        odds = max(1.0, _largest(mixture(alpha).odds))
        reach = math.sqrt(81 + 2 * math.log(odds))

        def rule(block: Standard, alpha: Number) -> Terms:
            return _uniform(block, mixture(alpha), nodes, reach)

        def compute(q: Distribution, p: Distribution) -> Tensor:
            low, high = cast(Uniform, p).low, cast(Uniform, p).high
            unit = Normal((low + high) / 2, (high - low) / 2, validate_args=False)
            return one_pass(rule, cast(Normal, q), unit, alpha, BLOCK // len(nodes[0]))

        return compute


def window(count: int, mixture: Mixture, least: float = 1.0) -> float:
    """How far the nodes reach, in scales of the narrower side."""
    # The share of the last node, exp(-E²/2), is to be as small beside 1/c as it is at c = 1; c of
    # either side counts, since some weights may have q and p swapped, and `least` at least.
    tilt = max(least, *(_largest(m.tilt) for m in (mixture, mixture.swapped)))
    return math.sqrt(_base_window(count) ** 2 + 2 * math.log(max(1.0, 1.5 * tilt)))


def _largest(number: Number) -> float:
    return float(number.detach().max()) if isinstance(number, Tensor) else number


def _base_window(count: int) -> float:
    """5.6 scales for 40 nodes, 7.0 for 96: cut-off and spacing then err alike."""
    return float(5.6 * (count / NODES) ** 0.25)


@lru_cache(maxsize=64)
def equally_spaced(count: int, reach: float) -> Nodes:
    """Nodes ε_k and shares s_k of N(0, 1); more than `count` where the window is wide."""
    spacing = 2 * _base_window(count) / (count - 1)
    points = np.linspace(-reach, reach, math.ceil(2 * reach / spacing) + 1)
    shares = np.exp(-0.5 * points**2)
    shares /= shares.sum()
    # With unit variance the KL part of the sum is exact, and the gradient at q = p is 0.
    points /= np.sqrt((shares * points**2).sum())
    return tuple(points.tolist()), tuple(shares.tolist())


def one_sided(block: Standard, mixture: Mixture, nodes: Nodes) -> Terms:
    """Value and derivatives of a block of weights by the one-sided rule."""
    ratio = block.ratio
    if ratio.dtype == torch.float32 and nodes[0][-1] > 9:
        # A window this wide means an alpha next to 0 or 1: c s_k spans more than float32 holds.
        return gaussian.in_double(lambda block, _: one_sided(block, mixture, nodes), block, 0.0)
    learned = mixture if isinstance(mixture.inner, Tensor) else None
    swap = ratio > 1
    if not gaussian.any_of(swap):
        return _narrow(block, mixture.weights, learned, nodes)
    weights = tuple(_either(swap, mixture.weights, mixture.swapped.weights, ratio))
    if learned is not None:
        learned = Mixture(*_either(swap, mixture, mixture.swapped, ratio))  # type: ignore[arg-type]
    return gaussian.from_narrower(lambda narrow: _narrow(narrow, weights, learned, nodes), block)


def _either(
    swap: Tensor, ones: Sequence[Number], twos: Sequence[Number], like: Tensor
) -> Iterator[Tensor]:
    """Each of `twos` where swapped, else of `ones`, in the dtype and on the device of `like`."""
    for pair in zip(twos, ones, strict=True):
        two, one = (x if isinstance(x, Tensor) else like.new_full((), x) for x in pair)
        yield torch.where(swap, two, one)


def _narrow(
    block: Standard, weights: Sequence[Number], learned: Mixture | None, nodes: Nodes
) -> Terms:
    """The sums over the nodes where q is the narrower side."""
    (delta, ratio, excess), (bound, log_odds, outer, tilt) = block, weights
    points, shares = _columns(nodes, ratio)  # (K, 1)
    delta, deficit = delta.clamp(-FARTHEST, FARTHEST), -excess * (excess + 2)  # 1 - r² ≥ 0
    slope = delta * ratio
    base = log_odds - ratio.log() + 0.5 * delta * delta
    z = base + (-0.5 * points * deficit + slope).mul_(points)  # (K, n)
    softplus, sigmoid, tilted = _bends(z)
    tilted.mul_(tilt)
    # W(z) = -d/dz of the gap: the derivatives need nothing but its first three moments.
    moments = sigmoid.mul_(outer - tilt).add_(tilted).mul_(shares)
    m0 = moments.sum(0)
    m1 = moments.mul_(points).sum(0)
    m2 = moments.mul_(points).sum(0)
    fall, rise = softplus.mul_(shares).sum(0), tilted.mul_(shares).sum(0)
    value = (bound - outer * fall - rise).clamp(min=0.0).clamp(max=bound)  # as theorem 1 says
    by_alpha = learned and _by_alpha(learned, fall, rise, m0 - rise)
    d_delta, d_log_ratio = delta * m0 + ratio * m1, slope * m1 + ratio.square() * m2 - m0
    # Where every z is cut off, e^-z is too large: nothing, but for a prior of a tiny scale.
    reach = nodes[0][-1]
    apart = base - slope.abs() * reach - 0.5 * reach**2 > _limit(base.dtype)
    d_delta, d_log_ratio = (x.masked_fill(apart, 0.0) for x in (d_delta, d_log_ratio))
    return Terms(value, d_delta, d_log_ratio, by_alpha)


def _columns(nodes: Nodes, like: Tensor) -> Tensor:
    """Points and shares as columns, (2, K, 1), in the dtype and on the device of `like`."""
    # Kept on a GPU: a copy from the host could not be part of a recorded graph.
    made = _kept if on_gpu(like) and not compiling() else torch.tensor
    return made(nodes, dtype=like.dtype, device=like.device).unsqueeze(-1)


_kept = lru_cache(maxsize=32)(torch.tensor)


def _limit(dtype: torch.dtype) -> float:
    """Where z is cut off, so that e^-|z| is a normal number."""
    return 700.0 if dtype == torch.float64 else 80.0


def _bends(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Softplus(-z), sigmoid(-z) and h(z) = e^-z softplus(z), by one exp and one log."""
    limit = _limit(z.dtype)
    z = z.clamp(-limit, limit)
    positive = z >= 0
    small = z.abs().neg_().exp_()  # e^-|z|
    log = small.log1p()
    sigmoid = torch.where(positive, small, 1.0).div_(1 + small)
    tilted = torch.where(positive, (z + log).mul_(small), log / small)
    return z.neg_().relu_().add_(log), sigmoid, tilted


def _by_alpha(mixture: Mixture, fall: Tensor, rise: Tensor, inner: Tensor) -> Tensor:
    """∂/∂α from E_q[softplus(-z)], c E_q[h(z)] and what moves with the log odds."""
    by_outer = rise / mixture.outer_rest - fall - log_number(mixture.odds)
    by_inner = mixture.outer_rest / mixture.inner_rest - mixture.outer / mixture.inner
    by_inner = by_inner + inner / (mixture.inner * mixture.inner_rest)
    return mixture.outer_slope * by_outer + mixture.inner_slope * by_inner


def _uniform(block: Standard, mixture: Mixture, nodes: Nodes, reach: float) -> Terms:
    """Value and derivatives against U(-1, 1), nodes where q and the support overlap."""
    delta, ratio, _ = block
    bound, log_odds, outer, tilt = mixture.weights
    low, high = ((delta + sign * reach * ratio).clamp(-1, 1) for sign in (-1, 1))
    points, shares = _columns(nodes, ratio)  # (K, 1)
    half = 0.5 * (high - low)
    epsilon = (0.5 * (low + high) + half * points - delta) / ratio  # (K, n)
    log_q = -0.5 * epsilon.square() - ratio.log() - 0.5 * math.log(2 * math.pi)
    z = (log_q + math.log(2) + log_odds).clamp(-600.0, 600.0)
    softplus, sigmoid, _ = _bends(z.clone())
    q = log_q.exp() * shares * half
    p = 0.5 * shares * half
    fall = (q * softplus).sum(0)
    rise = mixture.outer_rest * (p * (z + softplus)).sum(0)
    push = q * (outer * softplus - (outer - tilt) * sigmoid)
    value = (bound - outer * fall - rise).clamp(min=0.0).clamp(max=bound)
    by_alpha = None
    if isinstance(mixture.inner, Tensor):
        right = mixture.outer_rest * (p * (1 - sigmoid)).sum(0)
        inner = outer * (q * sigmoid).sum(0) - right
        by_alpha = _by_alpha(mixture, fall, rise, inner)
    d_delta = -(push * epsilon).sum(0) / ratio
    return Terms(value, d_delta, (push * (1 - epsilon.square())).sum(0), by_alpha)


for _divergence in (JSA, UnmodifiedJSA):
    closed_form.register(_divergence, Normal, Normal)(OneSided())
    closed_form.register(_divergence, Normal, Uniform)(UniformPrior())
