"""Panels that cover the line: where to cut it for a pair of densities, and the nodes inside."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.divergence.densities import edges, log_density, mixed, quantiles

# 0.1587 and 0.8413 are one standard deviation of a Gaussian to either side.
_LEVELS = (1e-12, 1e-6, 1e-3, 0.1587, 0.5, 0.8413, 1 - 1e-3, 1 - 1e-6, 1 - 1e-12)
# In deviations; beyond 38 a Gaussian density leaves the double range.
_OFFSETS = (2.0, 3.5, 5.5, 8.0, 12.0, 20.0, 38.0)
# Shares of a logarithmic range, each panel twice as long as the one before.
_GRADES = (0.0, *(2.0**-k for k in range(7, -1, -1)))
_CROSSINGS = 8
_FARTHEST = 1e140  # scales; its square still is a number


class Panels(NamedTuple):
    """Intervals of u, (panels, n) each, with x = u, or x = origin ± e^u where the sign is not 0."""

    # Logarithmic panels reach far tails, and the singular points of densities, in a few steps.

    low: Tensor
    high: Tensor
    origin: Tensor
    sign: Tensor

    def points(self, u: Tensor) -> Tensor:
        return torch.where(self.sign == 0, u, self.origin + self.sign * self.clamped(u).exp())

    def clamped(self, u: Tensor) -> Tensor:
        """`u` where it is a logarithm, else 0."""
        return torch.where(self.sign == 0, 0.0, u)

    def nodes(self, count: int) -> tuple[Tensor, Tensor]:
        """Gauss-Legendre points and the logarithm of what each stands for, (count · panels, n)."""
        gauss = np.polynomial.legendre.leggauss(count)
        places, shares = (self.low.new_tensor(side)[:, None, None] for side in gauss)
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        u = middle + half * places
        width = (half * shares).log() + self.clamped(u)
        return self.points(u).flatten(0, 1), width.flatten(0, 1)

    def halves(self, cut: Tensor | None = None) -> "Panels":
        """Twice as many, cut in the middle of u or at `cut`."""
        middle = (self.low + self.high) / 2 if cut is None else cut
        low, high = torch.cat([self.low, middle]), torch.cat([middle, self.high])
        return Panels(low, high, torch.cat([self.origin] * 2), torch.cat([self.sign] * 2))

    def tiny(self) -> Tensor:
        """Whether a panel is too short to be cut once more."""
        size = torch.maximum(self.low.abs(), self.high.abs())
        return self.high - self.low <= math.ulp(1.0) * 64 * size


def lay_out(q: Distribution, p: Distribution) -> tuple[Panels, Panels, Panels]:
    """Panels between the quantiles of all components, graded at edges and in both tails."""
    # After them short ones that show how an integrand fades: at every end, such as the farthest
    # point of a tail, and on the way to it. A stretch is a panel from low, beside others, to high.
    spots = [_spots(mixed(d)) for d in (q, p)]
    cuts = torch.cat([cut for cut, _ in spots]).sort(0).values
    scale, middle = torch.minimum(spots[0][1], spots[1][1]), cuts[len(cuts) // 2]
    panels = Panels(cuts[:-1], cuts[1:], torch.zeros_like(cuts[1:]), torch.zeros_like(cuts[1:]))
    stretches = []
    for sign, outermost in ((-1, cuts[0]), (1, cuts[-1])):
        start = ((outermost - middle).abs() + 1e-300).log()
        end = torch.maximum((scale * _FARTHEST).log(), start)
        stretches.append(Panels(start, end, middle, torch.full_like(middle, sign)))
    for distribution in (q, p):
        for side, sign in zip(edges(mixed(distribution)), (1, -1), strict=True):
            # One for every component, (n,) each.
            each = () if side is None else side.unbind(-1) if side.dim() > 1 else (side,)
            for edge in (one.to(cuts).expand_as(middle) for one in each):
                panels, graded = _graded(panels, edge, sign)
                panels = _logarithmic(panels, edge, sign)
                stretches.append(graded)
    tails = []
    for low, high, origin, way in stretches:
        ends = low + low.new_tensor(_GRADES)[:, None] * (high - low)
        one, two = torch.minimum(ends[:-1], ends[1:]), torch.maximum(ends[:-1], ends[1:])
        tails.append(Panels(one, two, origin.expand_as(one), way.expand_as(one)))
    panels = Panels(*(torch.cat(sides) for sides in zip(panels, *tails, strict=True)))
    far, near = _probes(Panels(*(torch.stack(side) for side in zip(*stretches, strict=True))))
    return _cut_at_crossings(q, p, panels), far, near


def _spots(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Where one distribution, or each component, has features, (cuts, n), and its least scale."""
    found = quantiles(distribution, _LEVELS)
    low, middle, high = found[3:6]
    offsets = middle.new_tensor(_OFFSETS).reshape(-1, *[1] * middle.dim())
    cuts = [found, middle - (middle - low) * offsets, middle + (high - middle) * offsets]
    cuts += [edge.expand_as(middle)[None] for edge in edges(distribution) if edge is not None]
    scale = torch.maximum(high - low, 1e-9 * (found[-1] - found[0])).clamp(min=1e-150)
    if middle.dim() == 1:
        return torch.cat(cuts), scale
    return torch.cat(cuts).movedim(-1, 0).flatten(0, 1), scale.amin(-1)


def _graded(panels: Panels, edge: Tensor, sign: int) -> tuple[Panels, Panels]:
    """The panel next to an edge, taken out and kept as a logarithmic stretch."""
    at_edge = (panels.low if sign > 0 else panels.high) == edge
    beside = at_edge & (panels.high > panels.low) & (panels.sign == 0)
    width = torch.where(beside, panels.high - panels.low, 0.0).sum(0)
    # Closer to an edge that is not 0, the distance to it has no digits.
    least = (edge.abs() * 2.0**-49).clamp(min=1e-290)
    wide = width > 2 * least
    panels = panels._replace(high=torch.where(beside & wide, panels.low, panels.high))
    start, end = (torch.where(wide, x.clamp(min=1e-290), 1.0).log() for x in (width, least))
    return panels, Panels(start, end, edge, torch.full_like(edge, sign))


def _logarithmic(panels: Panels, origin: Tensor, sign: int) -> Panels:
    """Panels that span more than a factor of eight in their distance from a point, in its log."""
    sides = torch.stack([sign * (panels.low - origin), sign * (panels.high - origin)])
    near, far = sides.amin(0), sides.amax(0)
    least = (origin.abs() * 2.0**-49).clamp(min=1e-290)
    long = (panels.sign == 0) & (near > least) & (far > 8 * near)
    near, far = (torch.where(long, side, 1.0).log() for side in (near, far))
    new = near, far, origin, torch.full_like(origin, sign)
    return Panels(*(torch.where(long, *pair) for pair in zip(new, panels, strict=True)))


def _probes(stretches: Panels) -> Iterator[Panels]:
    """Panels of width 1/16 at the end of each stretch, and on the way to it."""
    start, end, origin, sign = stretches
    length, inward = (end - start).abs(), (start - end).sign()
    width = (length / 64).clamp(max=0.0625) * inward
    for place in (end, end + (length / 2).clamp(max=50.0) * inward):
        one, two = torch.minimum(place, place + width), torch.maximum(place, place + width)
        yield Panels(one, two, origin, sign)


def _cut_at_crossings(q: Distribution, p: Distribution, panels: Panels) -> Panels:
    """Panels cut where the densities cross, at some places, by bisection."""

    def q_is_above(panels: Panels, u: Tensor) -> Tensor:
        x = panels.points(u)
        return log_density(q, x) > log_density(p, x)

    changes = q_is_above(panels, panels.low) != q_is_above(panels, panels.high)
    changes &= panels.high > panels.low
    _, index = changes.int().topk(min(_CROSSINGS, len(changes)), dim=0)
    chosen = Panels(*(side.gather(0, index) for side in panels))
    low, high = chosen.low, chosen.high
    at_low = q_is_above(chosen, low)
    for _ in range(60):
        middle = (low + high) / 2
        same = q_is_above(chosen, middle) == at_low
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    sides = zip(panels, chosen.halves(low), strict=True)
    return Panels(*(put(old, index, new) for old, new in sides))


def put(old: Tensor, index: Tensor, new: Tensor) -> Tensor:
    """`old` with the first half of `new` at `index`, and the other below."""
    return torch.cat([old.scatter(0, index, new[: len(index)]), new[len(index) :]])
