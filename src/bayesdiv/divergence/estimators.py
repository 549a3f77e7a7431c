"""How a divergence is computed: exactly, by dense integration, from samples, or as fits best."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils.checkpoint import checkpoint

from bayesdiv.compute.fused import Summed, draw, has_kernels
from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Points
from bayesdiv.divergence.densities import (
    check_pair,
    common_shape,
    edges,
    log_density,
    part,
    places,
    whole_line,
)

Computation = Callable[[Distribution, Distribution, Tensor | None], Tensor]


@dataclass(frozen=True)
class Sum:
    """A divergence summed over the weights, the last axis; what `Estimator.prepare_total` returns.

    Args:
        each: one value a weight.
        total: a faster way to the sum, if there is one.
    """

    each: Computation
    total: closed_form.Total | None = None

    def __call__(self, q: Distribution, p: Distribution, weights: Tensor | None) -> Tensor:
        """The sum."""
        found = None if self.total is None else self.total(q, p)
        return self.each(q, p, weights).sum(-1) if found is None else found

    def drawn(
        self,
        q: Distribution,
        p: Distribution,
        samples: int,
        dtype: torch.dtype | None = None,
        seed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draws of a Gaussian q, (samples, weights), and the sum.

        On a GPU both come from one pass over the parameters, and their gradients from another.

        Args:
            q: the posterior.
            p: the prior.
            samples: how many draws.
            dtype: of the draws; None is that of the parameters.
            seed: of the noise; None takes one from torch's generator.
        """
        found = None
        if isinstance(self.total, Summed):
            found = self.total.drawn(q, p, samples, dtype, seed)
        if found is not None:
            return found
        weights = draw(q, samples, dtype, seed)
        return weights, self(q, p, weights)


class NoExactForm(LookupError):
    """Raised by `Exact` for a divergence and pair that have no closed form and no rule."""

    def __init__(self, divergence: Divergence, q: Distribution, p: Distribution) -> None:
        super().__init__(
            f"{divergence} has no exact form for {type(q).__name__} against {type(p).__name__}: "
            "use Quadrature() or MonteCarlo(), or register one with closed_form.register"
        )


class Estimator(ABC):
    """A way to compute a divergence. Subclasses are frozen dataclasses."""

    def __call__(
        self,
        divergence: Divergence,
        q: Distribution,
        p: Distribution,
        *,
        weights: Tensor | None = None,
    ) -> Tensor:
        """One value a weight, in nats, not summed.

        Args:
            divergence: what to measure.
            q: the posterior.
            p: the prior; the two must broadcast.
            weights: draws of q, shape (samples, *weights), that an estimator which samples uses in
                the place of its own, such as those of the forward pass.
        """
        return self.prepare(divergence, q, p)(q, p, weights)

    def prepare(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """A function of q, p and weights (or None) for pairs like this one.

        All that does not depend on values is done here, once: checks, the look-up of the rule, its
        nodes or its table. The function itself compiles into one graph where the rule is exact.
        """
        if not isinstance(divergence, Divergence):
            raise TypeError(f"divergence must be a Divergence such as KL(), got {divergence!r}")
        check_pair(q, p)
        return self.prepared(divergence.reduced(), q, p)

    def prepare_total(self, divergence: Divergence, q: Distribution, p: Distribution) -> "Sum":
        """Like `prepare`, of a function that sums over the weights, the last axis."""
        each = self.prepare(divergence, q, p)
        total = self.total(divergence.reduced(), q, p)
        has_kernels(q)  # tries them now, since a compiler or a recording could not
        return Sum(each, total)

    @abstractmethod
    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """What `prepare` returns, for a checked pair and a reduced divergence."""

    def total(
        self, divergence: Divergence, q: Distribution, p: Distribution
    ) -> closed_form.Total | None:
        """A faster way to the sum than the sum of `prepared`, if there is one."""
        return None


@dataclass(frozen=True)
class Exact(Estimator):
    """The closed form, or a rule with a stated accuracy; no noise. Raises `NoExactForm` if neither.

    Args:
        nodes: for rules that sum over nodes, how many. None chooses the fastest way to about 1e-5;
            96 is the reference, good to 1e-9.

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
        """The registered rule, with its nodes."""
        rule = closed_form.find(divergence, q, p)
        if rule is None:
            raise NoExactForm(divergence, q, p)
        if isinstance(rule, closed_form.NodeRule):
            rule = rule if self.nodes is None else replace(rule, nodes=self.nodes)
            compute = rule.prepare(divergence, q, p)
        else:
            compute = partial(rule, divergence)
        return lambda q, p, _: compute(q, p)

    def total(
        self, divergence: Divergence, q: Distribution, p: Distribution
    ) -> closed_form.Total | None:
        """The registered one; none where the nodes are chosen."""
        return closed_form.find_total(divergence, q, p) if self.nodes is None else None


@dataclass(frozen=True)
class MonteCarlo(Estimator):
    """The mean over draws of q, and of p where the formula needs them (paper, algorithm 2, mended).

    JS-A needs no draws of p: see `bayesdiv.divergence.arithmetic`. The draws of the forward pass
    may be used again. The gradient goes through the draws, which is wrong where p has an edge: a
    prior of bounded support is refused as soon as q is learned.

    Args:
        samples: how many draws; the noise falls with the square root.

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
        """The divergence's estimate from equally weighted draws."""
        return partial(self._compute, divergence)

    def _compute(
        self, divergence: Divergence, q: Distribution, p: Distribution, weights: Tensor | None
    ) -> Tensor:
        shape = common_shape(q.batch_shape, p.batch_shape)
        learned = torch.is_grad_enabled() and q.has_rsample
        if weights is None:
            draw = q.expand(shape).rsample if learned else q.expand(shape).sample
            weights = draw(torch.Size([self.samples]))
        if weights.requires_grad and not whole_line(p):
            raise ValueError(
                f"samples give a wrong gradient against {type(p).__name__}, whose density has an "
                "edge: use Quadrature(), or Exact() with JSA"
            )
        return divergence.estimate(_drawn(q, p, weights), _later(lambda: self._at_p(q, p)))

    def _at_p(self, q: Distribution, p: Distribution) -> Points:
        wide = p.expand(common_shape(q.batch_shape, p.batch_shape))
        draw = wide.rsample if wide.has_rsample and torch.is_grad_enabled() else wide.sample
        return _drawn(q, p, draw(torch.Size([self.samples])))


def _drawn(q: Distribution, p: Distribution, weights: Tensor) -> Points:
    log_q, log_p = log_density(q, weights), log_density(p, weights)
    return Points(log_q, log_p, log_q.new_full((), -math.log(weights.shape[0])))


class _Later:
    """Points that are drawn when a divergence first reads them, which most never do."""

    def __init__(self, make: Callable[[], Points]) -> None:
        self._make = make

    @cached_property
    def _points(self) -> Points:
        return self._make()

    def __getattr__(self, name: str) -> object:
        return getattr(self._points, name)


def _later(make: Callable[[], Points]) -> Points:
    return cast(Points, _Later(make))


# Half-scales to 6, then wider steps to 38 scales, where a Gaussian density leaves the double range.
_OFFSETS = (*np.arange(0.5, 6.1, 0.5), 7, 8, 9, 10, 12, 14, 18, 25, 38, *(10.0 ** np.arange(2, 11)))
# Common to q and p, so that the last two panels of each side span a factor of ten each.
_TAILS = 10.0 ** np.arange(2, 21)
_CROSSINGS = 8
_NODES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Quadrature(Estimator):
    """Dense integration over panels on the scales of q and of p: the oracle, for any such pair.

    Panels are cut at multiples of every scale, at the edges of the supports, at kinks and where
    the densities cross, and carry Gauss-Legendre nodes; the work is in double precision. The nodes
    stay put while q moves, so gradients are right for priors with edges too. Some 3,000 nodes a
    weight: made for checking, for figures and for small networks. Memory has a ceiling whatever
    the number of weights.

    Args:
        points: nodes a panel.

    Examples:
        >>> from torch.distributions import Normal, Uniform
        >>> from bayesdiv import JSA
        >>> Quadrature()(JSA(0.25), Normal(4.5, 1.0), Uniform(-5.0, 5.0))
        tensor(0.6672)
    """

    points: int = 20

    def __post_init__(self) -> None:
        if self.points < 2:
            raise ValueError(f"points must be at least 2, got {self.points}")

    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """The divergence's estimate from the nodes of all panels, some weights at a time."""
        return lambda q, p, _: self._compute(divergence, q, p)

    def _compute(self, divergence: Divergence, q: Distribution, p: Distribution) -> Tensor:
        shape = common_shape(q.batch_shape, p.batch_shape)
        q, p = q.expand(shape), p.expand(shape)
        anchors = len(places(q)) + len(places(p))
        panels = (2 * len(_OFFSETS) + 1) * anchors + 2 * len(_TAILS)
        step = max(1, _NODES_AT_ONCE // (panels * self.points))

        def block(start: int) -> Tensor:
            cut = slice(start, start + step)
            return self._integrate(divergence, part(q, cut), part(p, cut))

        values = [
            # Recomputed in the backward pass: what a block of nodes holds is never kept.
            cast(Tensor, checkpoint(block, start, use_reentrant=False))
            for start in range(0, shape.numel(), step)
        ]
        return torch.cat(values).reshape(shape).to(places(q)[0][0].dtype)

    def _integrate(self, divergence: Divergence, q: Distribution, p: Distribution) -> Tensor:
        with torch.no_grad():
            ends = _panel_ends(q, p)  # (E, n)
            gauss = np.polynomial.legendre.leggauss(self.points)
            nodes, shares = (ends.new_tensor(side)[:, None, None] for side in gauss)
            middle, half = (ends[1:] + ends[:-1]) / 2, (ends[1:] - ends[:-1]) / 2
            x = (middle + half * nodes).flatten(0, 1)  # (points · panels, n)
            log_width = (half * shares).log().flatten(0, 1)
        log_q, log_p = log_density(q, x), log_density(p, x)
        at_q, at_p = (
            _Panels(log_q, log_p, side + log_width, log_width, on_p, self.points)
            for on_p, side in enumerate((log_q, log_p))
        )
        return divergence.estimate(at_q, at_p)


@dataclass(frozen=True)
class _Panels(Points):
    """Points on panels: an integral whose last panels do not shrink towards infinity diverges."""

    log_width: Tensor
    on_p: int  # 1 for points spread like p, 0 like q
    points: int

    def mean(self, values: Tensor) -> Tensor:
        total = super().mean(values)
        last, before = self._last_two(self._terms(values).abs(), torch.Tensor.sum)
        return torch.where(((last > 0) & (last > 0.99 * before)).any(0), math.inf, total)

    def log_mean_ratio(self, power: float | Tensor) -> Tensor:
        total = super().log_mean_ratio(power)
        last, before = self._last_two(self._exponents(power), torch.Tensor.logsumexp)
        return torch.where(((last > -math.inf) & (last > before - 0.01)).any(0), math.inf, total)

    def _exponents(self, power: float | Tensor) -> Tensor:
        # Far out log q is -1e40, and a sum in which it cancels keeps no digit: collect its factor.
        on_p = self.on_p + power
        sides = ((1 - on_p, self.log_q), (on_p, self.log_p))
        parts = [factor * side for factor, side in sides if isinstance(factor, Tensor) or factor]
        return torch.where(self.log_weight == -math.inf, -math.inf, sum(parts) + self.log_width)

    def _last_two(
        self, terms: Tensor, add: Callable[[Tensor, int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Sums over the outermost panel of each side and over its neighbour, (2, n) each."""
        panels = add(terms.detach().reshape(self.points, -1, *terms.shape[1:]), 0)
        return panels[[0, -1]], panels[[1, -2]]


def _panel_ends(q: Distribution, p: Distribution) -> Tensor:
    """Where to cut the line, ascending, shape (ends, n)."""
    anchors = [(loc.double(), scale.double()) for loc, scale in (*places(q), *places(p))]
    centre = anchors[0][0]
    reach = sum(scale + (loc - centre).abs() for loc, scale in anchors)
    offsets, tails = (centre.new_tensor(np.array(x))[:, None] for x in (_OFFSETS, _TAILS))
    cuts = [loc + sign * scale * offsets for loc, scale in anchors for sign in (-1, 1)]
    cuts += [centre + sign * reach * tails for sign in (-1, 1)]
    points = [loc for loc, _ in anchors] + [end.to(centre) for end in edges(q) + edges(p)]
    cuts += [point.expand_as(centre)[None] for point in points]
    ends = torch.cat(cuts).sort(0).values
    return torch.cat([ends, _crossings(q, p, ends)]).sort(0).values


def _crossings(q: Distribution, p: Distribution, ends: Tensor) -> Tensor:
    """Where the densities cross, by bisection of the panels in which their order changes."""

    def q_is_above(x: Tensor) -> Tensor:
        return log_density(q, x) > log_density(p, x)

    above = q_is_above(ends)
    found, changes = (above[1:] != above[:-1]).int().topk(_CROSSINGS, dim=0)
    low, high = ends[:-1].gather(0, changes), ends[1:].gather(0, changes)
    at_low = above[:-1].gather(0, changes)
    for _ in range(60):
        middle = (low + high) / 2
        same = q_is_above(middle) == at_low
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    # Where nothing crosses the cut goes to the middle: next to an outermost panel, whose size tells
    # whether the integral converges, a panel without width would pass for one that does not shrink.
    return torch.where(found == 1, low, ends[len(ends) // 2])


@dataclass(frozen=True)
class Auto(Estimator):
    """The exact form where there is one, else the fallback; the default everywhere.

    `Quadrature` takes the place of a fallback that samples where samples mislead: for a divergence
    that is not a mean over points (JS-G without a closed form), and for a learned q against a
    prior with an edge.

    Examples:
        >>> from torch.distributions import Laplace, Normal
        >>> from bayesdiv import JSG
        >>> Auto()(JSG(0.5), Normal(0.0, 1.0), Laplace(0.0, 1.0))
        tensor(0.0489)
    """

    fallback: Estimator = field(default_factory=MonteCarlo)

    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """The way of the estimator that fits."""
        return self.choose(divergence, q, p).prepared(divergence, q, p)

    def total(
        self, divergence: Divergence, q: Distribution, p: Distribution
    ) -> closed_form.Total | None:
        """That of the estimator that fits."""
        return self.choose(divergence, q, p).total(divergence, q, p)

    def choose(self, divergence: Divergence, q: Distribution, p: Distribution) -> Estimator:
        """The estimator that fits this divergence and pair."""
        if closed_form.find(divergence, q, p) is not None:
            return Exact()
        misled = not divergence.linear or not whole_line(p)
        return Quadrature() if misled and isinstance(self.fallback, MonteCarlo) else self.fallback
