"""How a divergence is computed: what an estimator is, exact forms, and samples."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Points
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.densities import (
    at_least_single,
    check_pair,
    common_shape,
    log_density,
    whole_line,
)
from bayesdiv.divergence.gaussian import any_of, check_learned

Computation = Callable[[Distribution, Distribution, Tensor | None], Tensor]


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
        """One value per weight, in nats, not summed."""
        return self.prepare(divergence, q, p)(q, p, weights)

    def prepare(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """A function of q, p and weights (or None) for pairs like this one."""
        # All that does not depend on values is done here, once: checks, the look-up of the rule,
        # its nodes or its table. The function itself compiles into one graph where the rule is
        # exact.
        if not isinstance(divergence, Divergence):
            raise TypeError(f"divergence must be a Divergence such as KL(), got {divergence!r}")
        check_pair(q, p)
        return self.prepared(divergence.reduced(), q, p)

    @abstractmethod
    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """What `prepare` returns, for a checked pair and a reduced divergence."""

    def rule(self, divergence: Divergence, q: Distribution, p: Distribution) -> Rule | None:
        """The exact rule that `prepared` uses, which a backend may add up faster; None if none."""
        return None


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
            raise NoExactForm(divergence, q, p)
        compute = closed_form.prepare(rule, divergence, q, p)
        return lambda q, p, _: compute(at_least_single(q), at_least_single(p))

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
        alpha = getattr(divergence, "alpha", None)
        if isinstance(alpha, Tensor) and alpha.requires_grad:
            check_learned(alpha)
        q, p = at_least_single(q), at_least_single(p)
        shape = common_shape(q.batch_shape, p.batch_shape)
        missing = self.samples - (0 if weights is None else len(weights))
        if missing > 0:
            more = _draws(q, shape, missing)
            weights = more if weights is None else torch.cat([weights.to(more.dtype), more])
        weights = cast(Tensor, weights)
        if weights.requires_grad and not whole_line(p):
            raise ValueError(
                f"samples give a wrong gradient against {type(p).__name__}, whose density has an "
                "edge: use Quadrature(), or Exact() with JSA"
            )
        at_p = _Later(lambda: _drawn(q, p, _draws(p, shape, self.samples)))
        points = _drawn(q, p, weights), cast(Points, at_p)
        # Where q has the larger scale, or standard deviation if one of them has no scale.
        sides = [getattr(d, "scale", None) for d in (q, p)]
        if not (whole_line(q) and whole_line(p)) or None in sides:
            sides = [d.stddev for d in (q, p)]
        one, two = (cast(Tensor, side).detach() for side in sides)
        wider = one > two
        if type(divergence).estimate_wide is Divergence.estimate_wide or not any_of(wider):
            return divergence.estimate(*points)
        return torch.where(wider, divergence.estimate_wide(*points), divergence.estimate(*points))


def _draws(distribution: Distribution, shape: torch.Size, count: int) -> Tensor:
    """So many, through which gradients go where they can."""
    wide = distribution.expand(shape)
    draw = wide.rsample if wide.has_rsample and torch.is_grad_enabled() else wide.sample
    return cast(Tensor, draw(torch.Size([count])))


def _drawn(q: Distribution, p: Distribution, weights: Tensor) -> Points:
    log_q, log_p = log_density(q, weights), log_density(p, weights)
    return Points(log_q, log_p, log_q.new_full((), -math.log(weights.shape[0])))


class _Later:
    """Points that are drawn when a divergence first reads them, which most never do."""

    def __init__(self, make: Callable[[], Points]) -> None:
        self._points = cache(make)

    def __getattr__(self, name: str) -> object:
        return getattr(self._points(), name)
