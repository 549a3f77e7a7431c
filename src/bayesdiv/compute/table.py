"""JS-A of two Gaussians from a Taylor table: for many float32 weights at a fixed alpha.

It depends on D = |μ-μ_p| / √(σ²+σ_p²) and η = log σ/σ_p alone. The one-sided rule gives values and
derivatives on a grid of these, and computes what lies outside it.
"""

import ctypes
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.compute import native
from bayesdiv.compute.devices import compiling, traced
from bayesdiv.compute.inplace import Total, TotalRule
from bayesdiv.divergence import arithmetic, closed_form
from bayesdiv.divergence.arithmetic import Arithmetic, Mixture, OneSided
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Prepared, Rule
from bayesdiv.divergence.gaussian import Standard, Terms, alpha_of, one_pass

Numbers = NDArray[np.float64]
LOWEST, HIGHEST, STEPS = -18, 18, 48  # of η, with a node at 0; beyond, it is the bound to 1e-5
FARTHEST, COLUMNS = 9.0, 384  # of D: beyond it the gap to the bound is under 1e-7
FEWEST = 2048  # values of fewer weights come from the rule: no table is made for them
NODES = ((HIGHEST - LOWEST) * STEPS + 1) * (COLUMNS + 1)
WIDEST = 1e18  # whose square is a number in float32
# What a table is built from: places along η on either side of 0 and along D, nodes of the rule.
BUILT_FROM = (200, 80, 56)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # what is kept serves training too
def of(mixture: Mixture, device: torch.device | str = "cpu") -> "Table":
    """The table of the divergence with these weights, on the device."""
    return Table(float(mixture.bound), built(mixture).to(device))


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def packed(mixture: Mixture, device: torch.device | str = "cpu") -> Tensor:
    """The same as one row of eight numbers per node, for a kernel that reads it at once."""
    return torch.nn.functional.pad(of(mixture, device).numbers.mT, (0, 2))


def offer(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> TotalRule | None:
    """The sum over a block by the table."""
    mixture = served(rule, divergence, q, p)
    return None if mixture is None else of(mixture).total


def offer_native(
    rule: Rule, divergence: Divergence, q: Distribution, p: Distribution
) -> TotalRule | None:
    """The sum of JS-A over a block of many weights."""
    mixture = served(rule, divergence, q, p)
    if mixture is None or q.batch_shape[-1:].numel() < native.MANY or native.library() is None:
        return None
    return looked_up(mixture)


def looked_up(mixture: Mixture) -> TotalRule:
    """The same as the table's own rule, in one pass over the weights."""
    found = cast(ctypes.CDLL, native.library())
    rows, bound, chunk = packed(mixture), float(mixture.bound), found.chunk_size()
    sizes = [LOWEST, HIGHEST, STEPS, FARTHEST, COLUMNS]
    grid = torch.tensor(sizes, dtype=torch.float32, device="cpu")

    def total(loc: Tensor, scale: Tensor, prior_loc: Tensor, prior_scale: Tensor) -> Total:
        if loc.dim() > 1:  # trials, one after the other
            sides = (x.expand_as(loc) for x in (loc, scale, prior_loc, prior_scale))
            return Total(*map(torch.stack, zip(*map(total, *sides), strict=True)))
        each = prior_loc.dim() + prior_scale.dim() > 0
        prior = [x.expand_as(loc) if each else x for x in (prior_loc, prior_scale)]
        given = [x.float().contiguous() for x in (loc, scale, *prior)]
        by_loc, by_scale = (torch.empty_like(x) for x in given[:2])
        values = torch.empty(-(-loc.numel() // chunk), dtype=torch.float64, device="cpu")
        found.table_sums(
            *map(native.address, (grid, rows, *given)),
            int(each),
            *map(native.address, (by_loc, by_scale, values)),
            ctypes.c_int64(loc.numel()),
            torch.get_num_threads(),
        )
        value = values.sum().clamp(0.0, loc.numel() * bound)
        return Total(*(x.to(loc.dtype) for x in (value, by_loc, by_scale)))

    return total


def values(
    rule: Rule, divergence: Divergence, q: Distribution, p: Distribution, fewest: int = FEWEST
) -> Prepared | None:
    """One value per weight by the table, where they are many."""
    mixture = served(rule, divergence, q, p)
    if mixture is None or max(q.batch_shape.numel(), p.batch_shape.numel()) < fewest:
        return None
    terms = of(mixture, q.mean.device).look_up
    return lambda q, p: one_pass(terms, cast(Normal, q), cast(Normal, p))


closed_form.FASTER.append(values)


def served(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> Mixture | None:
    """The mixture to tabulate: in float32, for an alpha in [0.01, 0.99] and nodes of our choice."""
    alpha = alpha_of(divergence)
    if not isinstance(rule, OneSided) or rule.nodes is not None or isinstance(alpha, Tensor):
        return None
    single = all(x.dtype == torch.float32 for one in (q, p) for x in (one.mean, one.stddev))
    known = single and 0.01 <= alpha <= 0.99
    return cast(Arithmetic, divergence).mixture(alpha) if known else None


class Table(NamedTuple):
    """Value, by η, by D, by η twice, by both and by D twice at the nodes, (6, nodes)."""

    bound: float
    numbers: Tensor

    def total(self, loc: Tensor, scale: Tensor, prior_loc: Tensor, prior_scale: Tensor) -> Total:
        """The sum over a block and its derivatives: `look_up` with fewer passes."""
        away = loc - prior_loc
        root = torch.hypot(prior_scale, scale).reciprocal_().copysign_(away)
        eta = scale.log().sub_(prior_scale.log() + LOWEST).clamp_(0, HIGHEST - LOWEST)
        distance = away.mul_(root).clamp_(max=FARTHEST)
        value, by_eta, by_distance = self._at(eta, distance)
        by_loc = by_distance.mul_(root)
        # ∂D/∂scale = -D scale / (scale² + prior_scale²), with the sign of the root twice.
        by_scale = by_eta.div_(scale).addcmul_(by_loc, distance.mul_(root.mul_(scale)), value=-1)
        return Total(value.sum(-1).clamp(0.0, loc.shape[-1] * self.bound), by_loc, by_scale)

    def look_up(self, block: Standard, _: float | Tensor) -> Terms:
        """Value and derivatives of a block, by the second-order polynomial of the nearest node."""
        delta, ratio, _excess = block
        ratio = ratio.clamp(max=WIDEST)
        # With the sign of δ on the root, |δ| and sign(δ) need no passes of their own.
        root = torch.copysign((ratio * ratio).add_(1).rsqrt(), delta)
        eta = ratio.log().clamp(LOWEST, HIGHEST).sub_(LOWEST)
        distance = (delta * root).clamp(max=FARTHEST)
        value, by_eta, by_distance = self._at(eta, distance)
        share = (ratio * root).square()  # r²/(1+r²)
        by_eta = torch.addcmul(by_eta, by_distance * distance, share, value=-1)
        return Terms(value.clamp(0.0, self.bound), by_distance.mul_(root), by_eta)

    def _at(self, eta: Tensor, distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Value and derivatives by η, which is counted from the table's edge and lost, and D."""
        row, column = (eta * STEPS).round_(), (distance * (COLUMNS / FARTHEST)).round_()
        # Of NaN any node, as what is read is multiplied by NaN.
        index = torch.add(column, row, alpha=COLUMNS + 1).int().clamp(0, NODES - 1)
        eta.sub_(row, alpha=1 / STEPS)
        off = distance.sub(column, alpha=FARTHEST / COLUMNS)
        read = self.numbers.index_select(1, index.reshape(-1)).view(6, *index.shape)
        value, by_eta, by_distance, eta_twice, both, distance_twice = read
        # The mean of a derivative at the node and here, times the way, to second order. Within
        # torch.func not in place, for which it has no rule and warns.
        add = Tensor.addcmul if traced() and not compiling() else Tensor.addcmul_
        value = add(add(value, eta, by_eta, value=0.5), off, by_distance, value=0.5)
        by_eta = add(add(by_eta, eta_twice, eta), both, off)
        by_distance = add(add(by_distance, both, eta), distance_twice, off)
        value = add(add(value, eta, by_eta, value=0.5), off, by_distance, value=0.5)
        return value, by_eta, by_distance


@lru_cache(maxsize=8)  # once, however the device is named
def built(mixture: Mixture) -> Tensor:
    """The numbers of a table: Chebyshev polynomials through values of the one-sided rule."""
    # One for either sign of η, since all that bends sharply does so around 0, where their places
    # are dense. They give every derivative, at a tenth of the cost of the rule at every node.
    # Through NumPy, so that no default of torch decides on the dtype and the device.
    along_eta, along_distance, count = BUILT_FROM
    columns = np.linspace(0, FARTHEST, COLUMNS + 1)
    distance, by_distance = _chebyshev(columns, 0, FARTHEST, along_distance)
    nodes, parts = arithmetic.equally_spaced(count, arithmetic.window(count, mixture)), []
    for low, high in ((LOWEST, 0), (0, HIGHEST)):
        rows = np.linspace(low, high, HIGHEST * STEPS + 1)[low == 0 :]
        eta, by_eta = _chebyshev(rows, low, high, along_eta)
        # The divergence at all pairs of a column of η and a row of D.
        ratio = np.exp(eta)[:, None]
        excess = np.expm1(eta)[:, None]
        sides = np.broadcast_arrays(distance * np.sqrt(1 + ratio**2), ratio, excess)
        flat = [torch.from_numpy(side.reshape(-1)).split(4096) for side in sides]
        blocks = map(Standard, *flat)
        pieces = [arithmetic.one_sided(block, mixture, nodes).value for block in blocks]
        values = torch.cat(pieces).reshape(sides[0].shape).numpy()
        orders = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
        parts.append([by_eta[one] @ values @ by_distance[two].T for one, two in orders])
    whole = [np.concatenate(halves).reshape(-1) for halves in zip(*parts, strict=True)]
    return torch.from_numpy(np.stack(whole).astype(np.float32))


def _chebyshev(
    points: Numbers, low: float, high: float, count: int
) -> tuple[Numbers, list[Numbers]]:
    """Places between the ends, and matrices from values there to 0 to 2 derivatives at points."""
    places = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    fitted = np.linalg.inv(chebyshev.chebvander(places, count - 1))
    half, at = (high - low) / 2, (points - low) / (high - low) * 2 - 1
    one = np.eye(count)
    return low + half * (1 + places), [
        chebyshev.chebvander(at, count - 1 - k) @ chebyshev.chebder(one, k, 1 / half) @ fitted
        for k in range(3)
    ]
