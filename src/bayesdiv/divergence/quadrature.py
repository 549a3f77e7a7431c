"""Dense integration of a divergence, refined until it converges, for any pair of densities."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils.checkpoint import checkpoint

from bayesdiv.divergence.base import Computation, Divergence, Estimator, Points
from bayesdiv.divergence.densities import common_shape, inside, log_density, parameter, part
from bayesdiv.divergence.gaussian import alpha_of
from bayesdiv.divergence.panels import Panels, lay_out, put

ACCURACY = 1e-7  # of a value up to 1, relative beyond: what is worse is refused
_TARGET = 1e-10  # what panels are refined to
_ROUNDS = 60
_AT_A_TIME = 8  # panels cut per weight and round
_NODES_AT_ONCE = 1 << 22
_USUAL_PANELS = 250
_FLOOR = -1e300  # of a logarithm that overflows inside the support
_LARGEST = 1e250


class NotConverged(ArithmeticError):
    """Raised by `Quadrature` where an integral is not known well enough."""


@dataclass(frozen=True)
class Quadrature(Estimator):
    """Dense integration on panels that follow both densities, for any pair: the reference.

    Panels lie between the quantiles of q, of p and of their components, are cut at the edges of the
    supports and where q = p, become logarithmic towards edges and in tails, and are halved until
    that changes nothing; the masses of q and p must come out as 1. If not, `NotConverged` reports
    the error reached; if an integral diverges, the value is infinite. The nodes do not move with q,
    so gradients are right for priors with edges too. Some 4,000 nodes per weight in double
    precision: for checks, figures and small networks. Memory is bounded for any number of weights.

    Args:
        points: nodes per panel.

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
        return lambda q, p, _: self._compute(divergence, q, p)

    def _compute(self, divergence: Divergence, q: Distribution, p: Distribution) -> Tensor:
        alpha = alpha_of(divergence)
        settings = alpha.shape if isinstance(alpha, Tensor) else torch.Size()
        shape = common_shape(q.batch_shape, p.batch_shape, settings)
        q, p = q.expand(shape), p.expand(shape)
        # Now, and not inside a block, whose second run would find a scale that the first computed.
        like, _ = parameter(q), parameter(p)
        step = max(1, _NODES_AT_ONCE // (_USUAL_PANELS * self.points))

        def block(start: int) -> Tensor:
            cut = slice(start, start + step)
            own = divergence
            if isinstance(alpha, Tensor):  # one for each weight
                each = alpha.double().expand(shape).reshape(-1)[cut]
                own = replace(divergence, alpha=each)  # type: ignore[type-var]
            return _Pair(own, part(q, cut), part(p, cut), self.points).value()

        starts = range(0, shape.numel(), step)
        # Recomputed in the backward pass: what a block of nodes holds is never kept.
        values = [checkpoint(block, start, use_reentrant=False) for start in starts]
        dtype = torch.promote_types(like.dtype, torch.float32)
        return torch.cat(values).reshape(shape).to(dtype)


class _Record(NamedTuple):
    """One integral of a divergence, by panels, (panels, n): sums, or logarithms of sums."""

    sums: Tensor
    logarithmic: bool
    change: Tensor = torch.empty(0)  # by halving

    def total(self) -> Tensor:
        return self.sums.logsumexp(0) if self.logarithmic else self.sums.sum(0)

    def relative(self, sums: Tensor, total: Tensor) -> Tensor:
        """In units of what counts: 1, or the integral where that is larger or a logarithm."""
        if self.logarithmic:
            return (sums - total).clamp(max=700.0).exp()
        return sums.abs() / total.abs().clamp(min=1.0)

    def compared(self, halves: "_Record") -> "_Record":
        """The halves, with the difference that they make for each; a logarithm where sums are."""
        one, two = halves.sums.chunk(2)
        if self.logarithmic:
            both = torch.logaddexp(one, two)
            high, low = torch.maximum(both, self.sums), torch.minimum(both, self.sums)
            gone = torch.where(high > -math.inf, high + (-(low - high).exp()).log1p(), -math.inf)
            change = gone.nan_to_num(-math.inf, math.inf, -math.inf)
        else:
            change = (one + two - self.sums).abs().nan_to_num(0.0, 0.0, 0.0)
        return halves._replace(change=torch.cat([change, change]))

    def with_halves(self, halves: "_Record", index: Tensor) -> "_Record":
        new = self._replace(sums=self.sums.gather(0, index)).compared(halves)
        sums, change = put(self.sums, index, new.sums), put(self.change, index, new.change)
        return _Record(sums, self.logarithmic, change)


@dataclass(frozen=True)
class _Nodes(Points):
    """Nodes of panels, which keep what each integral is made of."""

    log_width: Tensor
    on_p: int  # 1 for points spread like p, 0 like q
    panels: int
    records: list[_Record] = field(default_factory=list)
    diverging: list[Tensor] = field(default_factory=list)  # per integral, where it has no value

    def mean(self, values: Tensor) -> Tensor:
        return self._entered(self._terms(values), torch.Tensor.sum, logarithmic=False)

    def log_mean_ratio(self, power: float | Tensor) -> Tensor:
        # Finite, as the sum of a panel without any mass would have no gradient.
        terms = self._exponents(power).clamp(min=_FLOOR)
        return self._entered(terms, torch.Tensor.logsumexp, logarithmic=True)

    def _entered(
        self, terms: Tensor, add: Callable[[Tensor, int], Tensor], *, logarithmic: bool
    ) -> Tensor:
        number = len(self.records)
        record = _Record(add(terms.reshape(-1, self.panels, *terms.shape[1:]), 0), logarithmic)
        self.records.append(record)
        total = record.total()
        if number >= len(self.diverging):
            return total
        return torch.where(self.diverging[number], math.inf, total)

    def _exponents(self, power: float | Tensor) -> Tensor:
        # Far out log q is -1e40, and a sum in which it cancels keeps no digit: collect its factor.
        on_p = self.on_p + power
        found = torch.zeros_like(self.log_q)
        for factor, side in ((1 - on_p, self.log_q), (on_p, self.log_p)):
            if isinstance(factor, Tensor) or factor:
                found = found + factor * side
        # 0 · inf: a density of 0 with a power above 0 wins over one with a power below 0.
        nothing = found.isnan() | (self.log_weight == -math.inf) & ~(found == math.inf)
        return torch.where(nothing, -math.inf, found) + self.log_width


@dataclass(frozen=True)
class _Pair:
    """One block of weights, (n,), and how to integrate over it."""

    divergence: Divergence
    q: Distribution
    p: Distribution
    points: int

    def value(self) -> Tensor:
        """The divergence, differentiable, on panels that are found first."""
        with torch.no_grad():
            panels, diverging = self._settled()
            x, log_width = panels.nodes(self.points)
            # Which nodes count in any integral: every node as its own panel.
            _, found = self._estimate(self._logs(x), log_width, len(x))
            used = torch.stack([r.relative(r.sums, r.total()) > 0 for r in found]).any(0)
            # What counts for nothing may have a derivative that is no number.
            best = used.int().argmax(0, keepdim=True)
            x = torch.where(used, x, x.gather(0, best))
            log_width = torch.where(used, log_width, -math.inf)
            known = self._logs(x)
        one, two = (_learned(d, x, log) for d, log in zip((self.q, self.p), known, strict=True))
        return self._estimate((one, two), log_width, len(panels.low), diverging)[0]

    def _logs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log densities; one that overflows inside the support is finite, so that it is not 0."""
        found = []
        for distribution in (self.q, self.p):
            log = log_density(distribution, x)
            low = (log == -math.inf) & inside(distribution, x)
            log = torch.where(low, _FLOOR, log)
            found.append(torch.where(log.isnan() | (log == math.inf), -math.inf, log))
        return found[0], found[1]

    def _estimate(
        self,
        logs: tuple[Tensor, Tensor],
        log_width: Tensor,
        panels: int,
        diverging: list[Tensor] | None = None,
    ) -> tuple[Tensor, list[_Record]]:
        records: list[_Record] = []
        at_q, at_p = (
            _Nodes(*logs, log + log_width, log_width, on_p, panels, records, diverging or [])
            for on_p, log in enumerate(logs)
        )
        value = self.divergence.estimate(at_q, at_p)
        if diverging is None:  # the two masses, which must be 1
            for points in (at_q, at_p):
                points.mean(torch.ones_like(points.log_q))
        return value, records

    def _over(self, panels: Panels) -> tuple[Tensor, list[_Record]]:
        x, log_width = panels.nodes(self.points)
        return self._estimate(self._logs(x), log_width, len(panels.low))

    def _settled(self) -> tuple[Panels, list[Tensor]]:
        """Panels good enough for every integral, and where an integral diverges."""
        panels, far, near = lay_out(self.q, self.p)
        panels = self._refined(panels)
        (coarse, _), (fine, records) = self._over(panels), self._over(panels.halves())
        diverging, remaining = self._ends(far, near, records)
        change = ((coarse - fine).abs() / coarse.abs().clamp(min=1.0)).nan_to_num(0.0)
        masses = ((mass.total() - 1).abs() for mass in records[-2:])
        error = torch.stack([change, *remaining, *masses]).amax(0)
        infinite = torch.stack(diverging[:-2]).any(0) if diverging[:-2] else error < 0
        error = torch.where(infinite | ~coarse.isfinite(), 0.0, error)
        if bool((error > ACCURACY).any()):
            what = f"{self.divergence} of {type(self.q).__name__} from {type(self.p).__name__}"
            why = "because the densities are too singular or their tails too heavy"
            told = f"is known to {error.max().item():.1e} only, and not to {ACCURACY:.0e}, {why}"
            raise NotConverged(f"{what} {told}: use MonteCarlo() or other parameters")
        return panels, diverging

    def _ends(
        self, far: Panels, near: Panels, records: list[_Record]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Where each integral diverges, and what is left of it beyond the last panels."""
        at_far, at_near = self._over(far)[1], self._over(near)[1]
        width = far.high - far.low
        way = ((near.low - far.low).abs()).clamp(min=1e-9)
        diverging, remaining = [], []
        for one, two, whole in zip(at_far, at_near, records, strict=True):
            logs = [r.sums if r.logarithmic else r.sums.abs().log() for r in (one, two)]
            decay = (logs[1] - logs[0]) / way
            total = whole.total()
            # What begins between the two places, or is 1e-40 of the whole, shows no divergence.
            some = (logs[0] > -_LARGEST) & (logs[1] > -_LARGEST) & (width > 0)
            some &= ~(whole.relative(one.sums, total) <= 1e-40)
            over = (some & ~(decay > 1e-3)).any(0) | (total.abs() > _LARGEST) & (total > 0)
            share = whole.relative(one.sums, total) / width.clamp(min=1e-9) / decay
            left = torch.where(some & (decay > 1e-3), share, 0.0).sum(0)
            diverging.append(over | (total == math.inf))
            remaining.append(torch.where(over, 0.0, left))
        return diverging, remaining

    def _refined(self, panels: Panels) -> Panels:
        """Panels, cut in halves where that changes an integral."""
        parents, panels = self._over(panels)[1], panels.halves()
        halves = zip(parents, self._over(panels)[1], strict=True)
        records = [parent.compared(both) for parent, both in halves]
        for _ in range(_ROUNDS):
            worst = _worst(records, panels.tiny())
            if not bool((worst.sum(0) > _TARGET).any()):
                break
            index = worst.topk(min(_AT_A_TIME, len(worst)), dim=0).indices
            cut = Panels(*(side.gather(0, index) for side in panels)).halves()
            made = zip(records, self._over(cut)[1], strict=True)
            records = [record.with_halves(both, index) for record, both in made]
            panels = Panels(*(put(old, index, new) for old, new in zip(panels, cut, strict=True)))
        return panels


def _learned(distribution: Distribution, x: Tensor, log: Tensor) -> Tensor:
    """The log density at x with its gradient, a constant where it has no derivative."""
    usual = log > _FLOOR
    best = torch.where(usual, log, -math.inf).argmax(0, keepdim=True)
    kept = torch.where(usual, x, x.gather(0, best))
    return torch.where(usual, log_density(distribution, kept), log)


def _worst(records: list[_Record], done: Tensor) -> Tensor:
    """The largest error of each panel over all integrals, each in its own unit."""
    found = torch.zeros_like(records[0].sums)
    for record in records:
        total = record.total()
        relative = record.relative(record.change, total).nan_to_num(0.0, 0.0, 0.0)
        found = torch.maximum(found, torch.where(total.isfinite(), relative, 0.0))
    return torch.where(done, 0.0, found)
