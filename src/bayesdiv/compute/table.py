"""JS-A of two Gaussians from a Taylor table: for many float32 weights at a fixed alpha.

The divergence depends on two numbers, D = |μ-μ_p| / √(σ²+σ_p²) and η = log σ/σ_p. It is tabulated
on a grid of these with its derivatives up to the second, and read off by a polynomial around the
nearest node. The one-sided rule builds the table, stays its definition, and computes what lies
outside it.
"""

from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.compute.reference import Total, TotalRule
from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Prepared, Rule
from bayesdiv.divergence.densities import places
from bayesdiv.divergence.gaussian import Standard, Terms, one_pass
from bayesdiv.divergence.one_sided import (
    Mixture,
    Number,
    OneSided,
    equally_spaced,
    one_sided,
    weights_of,
    window,
)

LOWEST, HIGHEST, STEPS = -18, 18, 48  # of η, with a node at 0; beyond, it is the bound to 1e-5
FARTHEST, COLUMNS = 9.0, 384  # of D: beyond it the gap to the bound is under 1e-7
FEWEST = 2048  # below, the rule costs less than the table
NODES = ((HIGHEST - LOWEST) * STEPS + 1) * (COLUMNS + 1)
WIDEST = 1e18  # whose square is a number in float32
MARGIN = 3  # extra rows and columns for the differences that give second derivatives
BUILD_NODES = 56


def fits(alpha: Number, q: Distribution, p: Distribution) -> bool:
    """Whether the table serves: float32, many weights, a number in [0.01, 0.99]."""
    if isinstance(alpha, Tensor) or not 0.01 <= alpha <= 0.99:
        return False
    parameters = (*places(q)[0], *places(p)[0])
    single = all(x.dtype == torch.float32 for x in parameters)
    return single and max(x.numel() for x in parameters) >= FEWEST


@lru_cache(maxsize=8)
def of(mixture: Mixture, device: torch.device | str = "cpu") -> "Table":
    """The table of the divergence with these weights, on the device."""
    return Table(mixture, *(array.to(device) for array in _built(mixture)[1:]))


@lru_cache(maxsize=8)
def _built(mixture: Mixture) -> "Table":
    """Built once, which takes a second, however the device is named."""
    return Table.built(mixture)


@lru_cache(maxsize=8)
def packed(mixture: Mixture, device: torch.device | str = "cpu") -> Tensor:
    """The same table as one row of eight numbers per node, for a kernel that reads it at once."""
    arrays = of(mixture, device)[1:]
    return torch.stack([*arrays, *(torch.zeros_like(arrays[0]) for _ in range(2))], 1)


def offer(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> TotalRule | None:
    """The sum over a block by the table."""
    mixture = served(rule, divergence, q, p)
    return None if mixture is None else of(mixture).total


@closed_form.offer
def look_up(
    rule: Rule, divergence: Divergence, q: Distribution, p: Distribution
) -> Prepared | None:
    """One value per weight by the table."""
    mixture = served(rule, divergence, q, p)
    if mixture is None:
        return None
    terms = of(mixture, places(q)[0][0].device).look_up
    return lambda q, p: one_pass(terms, cast(Normal, q), cast(Normal, p))


def served(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> Mixture | None:
    """The mixture to tabulate for the one-sided rule; None where its nodes are chosen."""
    if not isinstance(rule, OneSided) or rule.nodes is not None:
        return None
    alpha, mixture = weights_of(divergence)
    return mixture(alpha) if fits(alpha, q, p) else None


class Table(NamedTuple):
    """Value and derivatives at the nodes, one flat array each."""

    mixture: Mixture
    value: Tensor
    by_eta: Tensor
    by_distance: Tensor
    by_eta_twice: Tensor
    by_both: Tensor
    by_distance_twice: Tensor

    @classmethod
    def built(cls, mixture: Mixture) -> "Table":
        """Computed by the one-sided rule and by differences of its derivatives."""
        rows = np.arange(LOWEST * STEPS - MARGIN, HIGHEST * STEPS + MARGIN + 1) / STEPS
        columns = np.arange(-MARGIN, COLUMNS + MARGIN + 1) * (FARTHEST / COLUMNS)
        # Through NumPy, so that no default of torch decides on the dtype and the device.
        eta, distance = map(torch.from_numpy, np.meshgrid(rows, columns, indexing="ij"))
        ratio = eta.exp()
        root = (1 + ratio.square()).sqrt()
        flat = Standard((distance * root).reshape(-1), ratio.reshape(-1), eta.expm1().reshape(-1))
        nodes = equally_spaced(BUILD_NODES, window(BUILD_NODES, mixture))
        parts = [
            one_sided(Standard(*piece), mixture, nodes)[:3]
            for piece in zip(*(x.split(4096) for x in flat), strict=True)
        ]
        value, d_delta, d_eta = (
            torch.cat(pieces).reshape(eta.shape) for pieces in zip(*parts, strict=True)
        )
        # From (δ, η) to (D, η): δ = D √(1+r²) moves with η too.
        by_distance = d_delta * root
        by_eta = d_eta + d_delta * distance * ratio.square() / root
        steps = (1 / STEPS, FARTHEST / COLUMNS)
        arrays = (
            _inner(value),
            _inner(by_eta),
            _inner(by_distance),
            _difference(by_eta, 0) / steps[0],
            _difference(by_distance, 0) / steps[0],
            _difference(by_distance, 1) / steps[1],
        )
        return cls(mixture, *(array.float().flatten().contiguous() for array in arrays))

    def total(self, loc: Tensor, scale: Tensor, prior_loc: Tensor, prior_scale: Tensor) -> Total:
        """The sum over a block and its derivatives: `look_up` with fewer passes."""
        away = loc - prior_loc
        root = _inverse_length(prior_scale, scale).copysign_(away)
        distance = away.mul_(root).clamp_(max=FARTHEST)
        eta = scale.log().sub_(prior_scale.log() + LOWEST).clamp_(0, HIGHEST - LOWEST)
        row = (eta * STEPS).round_()
        column = (distance * (COLUMNS / FARTHEST)).round_()
        index = _index(row, column)
        eta.sub_(row, alpha=1 / STEPS)
        off = torch.sub(distance, column, alpha=FARTHEST / COLUMNS, out=column)
        node, by_eta, by_distance, eta_twice, both, distance_twice = (
            array.index_select(0, index) for array in self[1:]
        )
        # `dot` loses a digit over many weights, which in these small corrections does no harm.
        first = eta.dot(by_eta) + off.dot(by_distance)
        by_eta.addcmul_(eta_twice, eta).addcmul_(both, off)
        by_distance.addcmul_(both, eta).addcmul_(distance_twice, off)
        # The mean of a derivative at the node and here, times the way, to second order.
        value = node.sum() + 0.5 * (first + eta.dot(by_eta) + off.dot(by_distance))
        by_loc = by_distance.mul_(root)
        # ∂D/∂scale = -D scale / (scale² + prior_scale²), with the sign of the root twice.
        by_scale = by_eta.div_(scale).addcmul_(by_loc, distance.mul_(root.mul_(scale)), value=-1)
        return Total(value.clamp(0.0, loc.numel() * self.mixture.bound), by_loc, by_scale)  # type: ignore[arg-type]

    def look_up(self, block: Standard, _: Number) -> Terms:
        """Value and derivatives of a block, by the second-order polynomial of the nearest node."""
        delta, ratio, _excess = block
        ratio = ratio.clamp(max=WIDEST)
        # With the sign of δ on the root, |δ| and sign(δ) need no passes of their own.
        root = torch.copysign((ratio * ratio).add_(1).rsqrt(), delta)
        distance = (delta * root).clamp(max=FARTHEST)
        eta = ratio.log().clamp(LOWEST, HIGHEST).sub_(LOWEST)
        row = (eta * STEPS).round_()
        column = (distance * (COLUMNS / FARTHEST)).round_()
        index = _index(row, column)
        eta.sub_(row, alpha=1 / STEPS)
        distance_off = distance.sub(column, alpha=FARTHEST / COLUMNS)
        value, by_eta, by_distance, eta_twice, both, distance_twice = (
            array.index_select(0, index) for array in self[1:]
        )
        # Half of the second-order step on each derivative gives the value, the whole the
        # derivative.
        # Within torch.func not in place, for which it has no rule and warns.
        add = Tensor.addcmul if _transformed() else Tensor.addcmul_
        eta_step = add(eta_twice * eta, both, distance_off)
        distance_step = add(both * eta, distance_twice, distance_off)
        value = add(value, eta, by_eta.add(eta_step, alpha=0.5))
        value = add(value, distance_off, by_distance.add(distance_step, alpha=0.5))
        by_eta.add_(eta_step)
        by_distance.add_(distance_step)
        share = (ratio * root).square()  # r²/(1+r²)
        by_eta = add(by_eta, by_distance * distance, share, value=-1)
        bound = self.mixture.bound
        return Terms(value.clamp(0.0, bound), by_distance.mul_(root), by_eta)  # type: ignore[arg-type]


def _index(row: Tensor, column: Tensor) -> Tensor:
    """The nearest node; that of NaN is any, as what is read there is multiplied by NaN."""
    return torch.add(column, row, alpha=COLUMNS + 1).int().clamp(0, NODES - 1)


def _transformed() -> bool:
    """Whether a transform of torch.func, such as `vmap`, is at work."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None


def _inverse_length(prior_scale: Tensor, scale: Tensor) -> Tensor:
    """1/√(σ²+σ_p²)."""
    if prior_scale.min() > 1 / WIDEST and scale.max() < WIDEST and prior_scale.max() < WIDEST:
        return torch.addcmul(prior_scale.square(), scale, scale).rsqrt_()
    # Some squares would leave the range of float32.
    return torch.hypot(prior_scale, scale).reciprocal_()


def _inner(array: Tensor) -> Tensor:
    return array[MARGIN:-MARGIN, MARGIN:-MARGIN]


def _difference(array: Tensor, axis: int) -> Tensor:
    """Sixth-order central difference along an axis, a step of 1, without the margin."""
    array = array.movedim(axis, 0)
    size = array.shape[0] - 2 * MARGIN
    parts = [
        c * (array[MARGIN + k : MARGIN + k + size] - array[MARGIN - k : MARGIN - k + size])
        for k, c in ((1, 45 / 60), (2, -9 / 60), (3, 1 / 60))
    ]
    inner = torch.stack(parts).sum(0).movedim(0, axis)
    other = [slice(MARGIN, -MARGIN), slice(MARGIN, -MARGIN)]
    other[axis] = slice(None)
    return inner[tuple(other)]
