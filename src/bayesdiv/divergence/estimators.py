"""How a divergence is computed: exact forms, samples, and what chooses between them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from operator import add
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.divergence import closed_form, densities
from bayesdiv.divergence.base import Computation, Divergence, Estimator, Points, checked_alpha
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.gaussian import alpha_of, any_of
from bayesdiv.divergence.quadrature import Quadrature

_NEAR, _FAR = 1e30, 1e60  # so far out that location and scale no longer count


class NoExactForm(LookupError):
    """Raised by `Exact` for a divergence and pair that have no closed form and no rule."""


@dataclass(frozen=True)
class Exact(Estimator):
    """The closed form or a rule of stated accuracy, without noise; `NoExactForm` if neither.

    Args:
        nodes: number of nodes of a rule that sums. None is the fastest that reaches about 1e-5; 96
            is the reference, accurate to 1e-9.

    Examples:
        >>> from torch.distributions import Normal
        >>> from bayesdiv import JSA
        >>> Exact(nodes=96)(JSA(0.5), Normal(1.0, 1.0), Normal(0.0, 1.0))
        tensor(0.1114)
    """

    nodes: int | None = None

    def __post_init__(self) -> None:
        if self.nodes is not None and not 8 <= self.nodes <= 4096:
            raise ValueError(f"nodes must lie between 8 and 4096, got {self.nodes}")

    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        rule = self.rule(divergence, q, p)
        if rule is None:
            told = f"no exact form for {type(q).__name__} against {type(p).__name__}"
            remedy = "use Quadrature() or MonteCarlo(), or register one with closed_form.register"
            raise NoExactForm(f"{divergence} has {told}: {remedy}")
        compute = closed_form.prepare(rule, divergence, q, p)
        return lambda q, p, _: compute(densities.at_least_single(q), densities.at_least_single(p))

    def rule(self, divergence: Divergence, q: Distribution, p: Distribution) -> Rule | None:
        rule = closed_form.find(divergence, q, p)
        if self.nodes is None or not isinstance(rule, closed_form.NodeRule):
            return rule
        return replace(rule, nodes=self.nodes)


@dataclass(frozen=True)
class MonteCarlo(Estimator):
    """The mean over draws of q, and of p where needed (paper, algorithm 2, corrected).

    JS-A needs draws of p only where q has the larger scale: see `bayesdiv.divergence.arithmetic`.
    It reuses the draws of the forward pass and adds more up to `samples`. The gradient goes through
    the draws, which is wrong where p has an edge, so a prior of bounded support is refused when q
    is learned.

    Args:
        samples: the least number of draws; the noise falls with its square root.

    Examples:
        >>> from torch.distributions import Laplace, Normal
        >>> from bayesdiv import JSA
        >>> _ = torch.manual_seed(0)
        >>> MonteCarlo(samples=100_000)(JSA(0.5), Normal(0.0, 1.0), Laplace(0.0, 1.0))
        tensor(0.0219)
    """

    samples: int = 1

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")

    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        return partial(self._compute, divergence)

    def _compute(
        self, divergence: Divergence, q: Distribution, p: Distribution, weights: Tensor | None
    ) -> Tensor:
        alpha = alpha_of(divergence)
        if isinstance(alpha, Tensor):  # which an optimizer may have moved
            checked_alpha(alpha)
        q, p = densities.at_least_single(q), densities.at_least_single(p)
        shape = densities.common_shape(q.batch_shape, p.batch_shape)
        missing = self.samples - (0 if weights is None else len(weights))
        if missing > 0:
            more = draws(q, shape, missing)
            weights = more if weights is None else torch.cat([weights.to(more.dtype), more])
        weights = cast(Tensor, weights)
        if weights.requires_grad and not densities.whole_line(p):
            told = f"a wrong gradient against {type(p).__name__}, whose density has an edge"
            raise ValueError(f"samples give {told}: use Quadrature(), or Exact() with JSA")
        at_p = _Later(lambda: _drawn(q, p, draws(p, shape, self.samples)))
        points = _drawn(q, p, weights), cast(Points, at_p)
        # Where q has the larger scale, or standard deviation if one of them has no scale.
        sides = [getattr(d, "scale", None) for d in (q, p)]
        if not (densities.whole_line(q) and densities.whole_line(p)) or None in sides:
            sides = [d.stddev for d in (q, p)]
        one, two = (cast(Tensor, side).detach() for side in sides)
        wider = one > two
        if type(divergence).estimate_wide is Divergence.estimate_wide or not any_of(wider):
            return divergence.estimate(*points)
        return torch.where(wider, divergence.estimate_wide(*points), divergence.estimate(*points))


def draws(distribution: Distribution, shape: torch.Size, count: int) -> Tensor:
    """So many of this batch shape, through which gradients go where they can."""
    wide = distribution.expand(shape)
    draw = wide.rsample if wide.has_rsample and torch.is_grad_enabled() else wide.sample
    return cast(Tensor, draw(torch.Size([count])))


def _drawn(q: Distribution, p: Distribution, weights: Tensor) -> Points:
    log_q, log_p = densities.log_density(q, weights), densities.log_density(p, weights)
    return Points(log_q, log_p, log_q.new_full((), -math.log(weights.shape[0])))


class _Later:
    """Points that are drawn when a divergence first reads them, which most never do."""

    def __init__(self, make: Callable[[], Points]) -> None:
        self._points = cache(make)

    def __getattr__(self, name: str) -> object:
        return getattr(self._points(), name)


@dataclass(frozen=True)
class Auto(Estimator):
    """The exact form if there is one, else the fallback; the default everywhere.

    It chooses for each term of a sum, such as `WeightedKL`. `Quadrature` replaces a fallback that
    samples where samples would mislead: for a divergence that is not a mean over points (JS-G
    without a closed form), for a prior with an edge, and where the mean or the variance of a sample
    does not exist, as with the tails of a Cauchy prior.

    Examples:
        >>> from torch.distributions import Cauchy, Laplace, Normal
        >>> from bayesdiv import JSG, WeightedKL
        >>> Auto()(JSG(0.5), Normal(0.0, 1.0), Laplace(0.0, 1.0))
        tensor(0.0489)
        >>> Auto()(WeightedKL(0.3), Normal(0.0, 1.0), Cauchy(0.0, 1.0))
        tensor(inf)
    """

    fallback: Estimator = field(default_factory=MonteCarlo)

    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        way = self.choose(divergence, q, p)
        if way is not self:
            return way.prepared(divergence, q, p)
        ways = [(f, self.prepared(each, q, p)) for f, each in divergence.parts]
        return lambda q, p, weights: reduce(add, (f * way(q, p, weights) for f, way in ways))

    def rule(self, divergence: Divergence, q: Distribution, p: Distribution) -> Rule | None:
        way = self.choose(divergence, q, p)
        return None if way is self else way.rule(divergence, q, p)

    def choose(self, divergence: Divergence, q: Distribution, p: Distribution) -> Estimator:
        """The estimator that fits this divergence and pair; itself where each part has its own."""
        if closed_form.find(divergence, q, p) is not None:
            return Exact()
        if divergence.parts:
            return self
        # Whether samples give a right value and gradient, and a spread.
        led = divergence.linear and densities.whole_line(p)
        led = led and all(fair({"q": q, "p": p}[one], q, p) for one in divergence.averaged)
        return self.fallback if led or not isinstance(self.fallback, MonteCarlo) else Quadrature()


def tail_index(distribution: Distribution) -> float:
    """The tail index ν of |x|^-(1+ν), the least over all weights and both sides; inf if lighter."""
    # Moments below ν exist. It is read off the density itself, far out.
    near, far = _logs(distribution)
    slope = (near - far) / math.log(_FAR / _NEAR) - 1
    # Where both are 0 there is no tail at all; a difference of two infinities says the same.
    return float(torch.where(far < -1e4, math.inf, slope).nan_to_num(math.inf, math.inf).min())


def tail_growth(distribution: Distribution) -> float:
    """The power of |x| with which the log density falls, the largest of all weights."""
    # 2 for a Gaussian, 1 for Laplace, about 0 for a power of |x|, inf beyond any power.
    near, far = (logs.abs().clamp(min=1.0) for logs in _logs(distribution))
    power = (far / near).log() / math.log(_FAR / _NEAR)
    return float(torch.where(near == math.inf, math.inf, power).max())


def fair(source: Distribution, q: Distribution, p: Distribution) -> bool:
    """Whether log q - log p has four moments under draws of `source`."""
    # Two make the variance of a mean finite, four that of its estimate.
    power = max(tail_growth(q), tail_growth(p))
    return power < math.inf and tail_index(source) > 4 * (power if power > 0.1 else 0.0)


def _logs(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Log densities at both far points of either side, (2, n) each."""
    with torch.no_grad():
        flat = densities.part(distribution, slice(None))
        signs = densities.parameter(flat).new_tensor([[-1.0], [1.0]])
        x = [signs.expand(-1, *flat.batch_shape) * place for place in (_NEAR, _FAR)]
        return densities.log_density(flat, x[0]), densities.log_density(flat, x[1])


Divergence.default = Auto()
