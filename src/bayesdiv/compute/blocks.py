"""One pass over Gaussians on a CPU: a total, draws, or both, in blocks that stay in cache.

All it keeps for the backward pass are the gradients; noise is made again from its seed.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal
from torch.nn.functional import softplus

from bayesdiv.compute.devices import on_cpu, traced
from bayesdiv.compute.inplace import TotalRule, prior_serves
from bayesdiv.compute.noise import MANY, Dtype, Seed, fresh_seed, in_rows, standard_normal
from bayesdiv.divergence.gaussian import BLOCK, SoftplusNormal, refuse_second

# A few blocks' worth fits the last cache, where one piece is faster than several.
ONE_PIECE = 4 * BLOCK
ROWS = 4  # pieces of noise at a time: smaller calls take a tenth longer
# Above, the lever of one draw, or beside the gradients of a total, is one vector too many.
LARGE = 1 << 24
_Gradients = tuple[Tensor, Tensor]  # by loc, and by rho or the scale


@dataclass(frozen=True, eq=False)
class Blocks:
    """A backend for Gaussians on a CPU: a rule that adds up a block, or trials row by row."""

    rule: TotalRule
    piece: int = ONE_PIECE

    def serves(self, q: Distribution, p: Distribution) -> bool:
        """Whether q is one vector per trial, of one dtype with a prior that is not learned."""
        if not isinstance(q, Normal) or not isinstance(p, Normal) or traced() or not on_cpu(q.loc):
            return False
        known = q.loc.dtype in (torch.float32, torch.float64) and _raw(q).dtype == q.loc.dtype
        return known and q.loc.dim() > 0 and q.loc.numel() > 0 and prior_serves(q, p)

    def total(self, q: Distribution, p: Distribution) -> Tensor:
        """The sum over each trial's weights."""
        q, p = cast(Normal, q), cast(Normal, p)
        plan = _Plan(isinstance(q, SoftplusNormal), self.rule, piece=self.piece)
        return cast(Tensor, _through(plan, q.loc, _raw(q), p.loc, p.scale)[1])

    def draw_and_total(
        self, q: Distribution, p: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        """Draws and the total: each block is read, and its scale computed, once for both."""
        q, p = cast(Normal, q), cast(Normal, p)
        if q.loc.dim() > 1 and samples * q.loc.numel() >= MANY:
            return draw(q, samples, dtype, seed), self.total(q, p)
        noise = _noise(q.loc, samples, seed)
        plan = _Plan(isinstance(q, SoftplusNormal), self.rule, noise, dtype or q.loc.dtype)
        return cast(tuple[Tensor, Tensor], _through(plan, q.loc, _raw(q), p.loc, p.scale))


def draw(q: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
    """Draws of Gaussians, (samples, …, weights): many on a CPU block by block, else at once."""
    loc = q.mean
    few = samples * loc.numel() < MANY or loc.dtype != torch.float32
    if few or not isinstance(q, Normal) or traced() or not on_cpu(loc):
        # Operations of torch, which a compiler and `vmap` take; the noise is kept. One draw without
        # its own axis: its backward pass then copies and sums nothing.
        shape = loc.shape if samples == 1 else (samples, *loc.shape)
        noise = standard_normal(shape, loc, None if seed is None else int(seed))
        made = torch.addcmul(loc, q.stddev, noise).to(dtype or loc.dtype)
        return made.unsqueeze(0) if samples == 1 else made
    again, by_rho = _noise(loc, samples, seed), isinstance(q, SoftplusNormal)
    known = q.known_scale if isinstance(q, SoftplusNormal) else None
    scale = None if known is None else known.detach().reshape(-1)
    plan = _Plan(by_rho, None, again, dtype or loc.dtype, scale=scale)
    drawn, _ = _through(plan, loc.reshape(-1), _raw(q).reshape(-1))
    return cast(Tensor, drawn).reshape(samples, *loc.shape)


def _raw(q: Normal) -> Tensor:
    """What the scale is computed from: rho, or the scale itself."""
    return q.rho if isinstance(q, SoftplusNormal) else q.scale


class _Noise(NamedTuple):
    """Noise of several draws: stored for few weights, made again on request for many."""

    samples: int
    few: Tensor | None  # (samples, …, weights), less than a block's worth
    seed: int = 0

    def rows(self, start: int, count: int) -> Iterator[tuple[int, Tensor]]:
        """That of a block, some draws at a time, after the number of draws before them."""
        # From one generator, so that the first draws are the same however many there are.
        words, some = np.random.SFC64(self.seed + (start << 96)), max(1, ROWS * ONE_PIECE // count)
        for before in range(0, self.samples, some):
            yield before, in_rows(words, min(some, self.samples - before), count)


def _noise(loc: Tensor, samples: int, seed: Tensor | None) -> _Noise:
    number = None if seed is None else int(seed)
    if samples * loc.numel() < MANY or loc.dtype != torch.float32:
        return _Noise(samples, standard_normal((samples, *loc.shape), loc, number))
    return _Noise(samples, None, fresh_seed() if number is None else number)


class _Plan(NamedTuple):
    """What a pass computes: a total by the rule, draws with the noise, or both."""

    by_rho: bool
    rule: TotalRule | None = None
    noise: _Noise | None = None
    dtype: Dtype = None
    piece: int = ONE_PIECE
    learned: bool = True  # whether a backward pass may come
    scale: Tensor | None = None  # where it was computed from rho before

    def slope(self, raw: Tensor) -> Tensor | None:
        """∂ scale / ∂ rho; None where the scale itself is given."""
        return raw.sigmoid() if self.by_rho else None

    def keeps_lever(self, loc: Tensor) -> bool:
        """Whether the backward pass may do without making the noise of many weights again."""
        # It reads that of several draws off them, which then must be exact.
        if self.noise is None or not self.learned:
            return False
        few, one = self.noise.few is not None, self.noise.samples == 1
        if len(loc) > LARGE and (one or self.rule is not None):
            return False
        return few or one or self.dtype == loc.dtype


class _Found(NamedTuple):
    """What a pass gives, and what it keeps for the gradients to overwrite."""

    total: Tensor | None = None
    derivatives: _Gradients | None = None
    # ∂ scale / ∂ rho of few weights; of many ε times it, or of several draws ∂ log scale / ∂ rho.
    lever: Tensor | None = None


def _through(
    plan: _Plan, loc: Tensor, raw: Tensor, *prior: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    sides = (x.reshape(()) if x.numel() == 1 and x.dim() else x for x in prior)
    if not (torch.is_grad_enabled() and (loc.requires_grad or raw.requires_grad)):
        plan = plan._replace(learned=False)
    found = _Pass.apply(plan, loc, raw, *sides)  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor | None, Tensor | None], found)


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, *sides: Tensor) -> tuple[Tensor | None, Tensor | None]:
        drawn = None
        if plan.noise is not None:
            drawn = sides[0].new_empty((plan.noise.samples, *sides[0].shape), dtype=plan.dtype)
        found = _computed(plan, drawn, *sides)
        ctx.plan, ctx.found = plan, found
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(drawn if found.lever is not None else None, *sides)
        return drawn, found.total

    @staticmethod
    def backward(
        ctx: Any, by_drawn: Tensor | None, by_total: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        plan, (drawn, loc, raw, *prior) = ctx.plan, ctx.saved_tensors
        # Handed on, to be overwritten by the gradients; a second backward pass computes them again.
        (_, kept, lever), ctx.found = ctx.found, _Found()
        own = None
        with torch.no_grad() if torch.is_grad_enabled() else nullcontext():
            if by_total is not None:
                if kept is None:
                    again = _computed(plan._replace(noise=None), None, loc, raw, *prior)
                    kept = cast(_Gradients, again.derivatives)
                each = by_total.unsqueeze(-1) if by_total.dim() else by_total
                own = kept[0].mul_(each), kept[1].mul_(each)
            if by_drawn is not None:
                own = _with_draws(plan, own, by_drawn, loc, raw, drawn, lever)
        if own is not None and torch.is_grad_enabled():
            own = refuse_second(own[0], loc, raw), refuse_second(own[1], loc, raw)
        return (None, *(own or (None, None)), *(None for _ in prior))


def _computed(plan: _Plan, drawn: Tensor | None, *sides: Tensor) -> _Found:
    """Written in place block by block, so that the pieces never exist beside the whole."""
    loc = sides[0]
    # Noise is always cut alike: the backward pass may have to make it again. A stack is one block.
    if loc.dim() > 1 or len(loc) <= (plan.piece if plan.noise is None else ONE_PIECE):
        return _of_block(plan, 0, drawn, *sides)
    derivatives = [torch.empty_like(loc) for _ in range(2 if plan.rule else 0)]
    lever = torch.empty_like(loc) if plan.keeps_lever(loc) else None
    size = BLOCK if plan.noise is None else ONE_PIECE
    # In one tensor: between small ones of their own, what a block frees would not be used again.
    values = loc.new_empty(len(range(0, len(loc), size)) if plan.rule else 0)
    for number, cut in enumerate(_cuts(len(loc), size)):
        place = None if drawn is None else drawn[:, cut]
        found = _of_block(plan, cut.start, place, *(x[cut] if x.dim() else x for x in sides))
        if found.total is not None:
            values[number] = found.total
        for whole, piece in zip(derivatives, found.derivatives or (), strict=True):
            whole[cut] = piece
        if lever is not None:
            lever[cut] = cast(Tensor, found.lever)
    if plan.rule is None:
        return _Found(lever=lever)
    # The sums of blocks are added up in double precision.
    value = values.sum(dtype=torch.float64).to(loc.dtype)
    return _Found(value, (derivatives[0], derivatives[1]), lever)


def _of_block(
    plan: _Plan, start: int, drawn: Tensor | None, loc: Tensor, raw: Tensor, *prior: Tensor
) -> _Found:
    """Draws written into their place, the total of a block, and what is kept."""
    scale, noise, keeps = raw, plan.noise, plan.keeps_lever(loc)
    if plan.by_rho:
        known = plan.scale
        scale = softplus(raw) if known is None else known[start : start + len(raw)]
    value, derivatives, slope = None, None, None
    if plan.learned and (keeps or plan.rule is not None):
        slope = plan.slope(raw)
    if plan.rule is not None:
        value, d_loc, d_scale = plan.rule(loc, scale, *prior)
        derivatives = d_loc, d_scale if slope is None else d_scale.mul_(slope)
    if noise is None or drawn is None:
        return _Found(value, derivatives)
    if noise.few is not None:
        torch.addcmul(loc, scale, noise.few, out=drawn)
        return _Found(value, derivatives, slope)
    for before, rows in noise.rows(start, len(loc)):
        torch.addcmul(loc, scale, rows, out=drawn[before : before + len(rows)])
    if not keeps:
        return _Found(value, derivatives)
    one = rows[0]
    if noise.samples > 1:  # the reciprocal of the scale, 0 where it is
        one = scale.clamp(min=torch.finfo(scale.dtype).tiny).reciprocal_()
    return _Found(value, derivatives, one if slope is None else one.mul_(slope))


def _with_draws(
    plan: _Plan,
    own: _Gradients | None,
    by_drawn: Tensor,
    loc: Tensor,
    raw: Tensor,
    drawn: Tensor | None,
    lever: Tensor | None,
) -> _Gradients:
    """The gradients by way of the draws, added to their own: Σ g and Σ g ε σ'(rho)."""
    noise = cast(_Noise, plan.noise)
    if noise.few is not None or (lever is not None and noise.samples == 1):
        by_loc = (by_drawn[0] if noise.samples == 1 else by_drawn.sum(0)).to(raw.dtype)
        if noise.few is not None:
            slope = plan.slope(raw) if lever is None else lever
            by_raw = (by_drawn * noise.few).sum(0)
            by_raw = by_raw if slope is None else by_raw.mul_(slope)
        else:
            by_raw = cast(Tensor, lever).mul_(by_loc)
        return (by_loc, by_raw) if own is None else (own[0].add_(by_loc), own[1].add_(by_raw))
    given = own is None and noise.samples == 1  # the gradient by loc is that by the draw
    if given:
        own = by_drawn[0].to(loc.dtype), torch.zeros_like(raw)
    by_loc, by_raw = own or (torch.zeros_like(loc), torch.zeros_like(raw))
    for cut in _cuts(len(loc)):
        rows = by_drawn[:, cut]
        total = rows.sum(0, dtype=loc.dtype)
        if not given:
            by_loc[cut] += total
        if lever is None or drawn is None:  # the noise is made from its seed once more
            by_scale, slope = torch.zeros_like(total), plan.slope(raw[cut])
            made = (each for _, some in noise.rows(cut.start, len(total)) for each in some)
        else:
            # The draws hold their noise, times the scale: Σ g (w - loc) ∂ log scale / ∂ rho.
            by_scale, slope, made = total.mul_(-loc[cut]), lever[cut], iter(drawn[:, cut])
        # One by one: all of them at once would leave the cache.
        for g, each in zip(rows, made, strict=True):
            by_scale.addcmul_(g.to(each.dtype), each)
        by_raw[cut] += by_scale if slope is None else by_scale.mul_(slope)
    return by_loc, by_raw


def _cuts(count: int, size: int = ONE_PIECE) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
