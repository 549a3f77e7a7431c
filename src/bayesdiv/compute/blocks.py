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
from bayesdiv.compute.noise import MANY, Dtype, Seed, fresh_seed, in_rows, standard_normal
from bayesdiv.compute.reference import TotalRule, prior_serves
from bayesdiv.divergence.gaussian import BLOCK, SoftplusNormal, refuse_second

# Below, trials one after the other cost more than the passes over all of them that they spare.
FEWEST_PER_TRIAL = 1 << 14
# A few blocks' worth fits the last cache, where one piece is faster than several.
ONE_PIECE = 4 * BLOCK
# Above, a lever beside the gradients of a total would be one number per weight too many.
LARGE = 1 << 24
_DTYPES = (torch.float32, torch.float64)
_Gradients = tuple[Tensor, Tensor]  # by loc, and by rho or the scale


@dataclass(frozen=True, eq=False)
class Blocks:
    """A backend for Gaussians on a CPU: a rule that adds up a block at a time."""

    rule: TotalRule
    piece: int = ONE_PIECE
    stack: int = ONE_PIECE  # weights of small trials that the rule takes at once, row by row

    def serves(self, q: Distribution, p: Distribution) -> bool:
        """Whether q is one vector per trial, of one dtype with a prior that is not learned."""
        if not isinstance(q, Normal) or not isinstance(p, Normal) or traced() or not on_cpu(q.loc):
            return False
        shape = q.batch_shape
        whole = len(shape) == 1 or (
            len(shape) > 1 and (_many(q.loc) or shape.numel() <= self.stack)
        )
        known = q.loc.dtype in _DTYPES and _raw(q).dtype == q.loc.dtype
        return whole and known and shape.numel() > 0 and prior_serves(q, p)

    def total(self, q: Distribution, p: Distribution) -> Tensor:
        q, p = cast(Normal, q), cast(Normal, p)
        plan = _Plan(isinstance(q, SoftplusNormal), self.rule, piece=self.piece)
        sides = q.loc, _raw(q)
        if q.loc.dim() == 1 or not _many(q.loc):
            return cast(Tensor, _through(plan, *sides, p.loc, p.scale)[1])
        prior = p.expand(q.batch_shape)
        shape = (-1, q.loc.shape[-1])
        rows = zip(*(x.reshape(shape) for x in (*sides, prior.loc, prior.scale)), strict=True)
        each = [_through(plan, *row)[1] for row in rows]
        return torch.stack(cast(list[Tensor], each)).reshape(q.loc.shape[:-1])

    def draw_and_total(
        self, q: Distribution, p: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        """Draws and the total: each block is read, and its scale computed, once for both."""
        q, p = cast(Normal, q), cast(Normal, p)
        if q.loc.dim() > 1 and (_many(q.loc) or samples * q.loc.numel() >= MANY):
            return draw(q, samples, dtype, seed), self.total(q, p)
        noise = _noise(q.loc, samples, seed)
        plan = _Plan(isinstance(q, SoftplusNormal), self.rule, noise, dtype or q.loc.dtype)
        return cast(tuple[Tensor, Tensor], _through(plan, q.loc, _raw(q), p.loc, p.scale))


def draw(q: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
    """Draws of Gaussians, (samples, …, weights): many on a CPU block by block, else at once."""
    loc = q.mean
    few = samples * loc.numel() < MANY or loc.dtype not in _DTYPES
    if few or not isinstance(q, Normal) or traced() or not on_cpu(loc):
        # Operations of torch, which a compiler and `vmap` take; the noise is kept. One draw without
        # its own axis: its backward pass then copies and sums nothing.
        shape = loc.shape if samples == 1 else (samples, *loc.shape)
        noise = standard_normal(shape, loc, None if seed is None else int(seed))
        made = torch.addcmul(loc, q.stddev, noise).to(dtype or loc.dtype)
        return made.unsqueeze(0) if samples == 1 else made
    again = _noise(loc, samples, seed)
    plan = _Plan(isinstance(q, SoftplusNormal), None, again, dtype or loc.dtype)
    if isinstance(q, SoftplusNormal) and q.known_scale is not None:
        plan = plan._replace(scale=q.known_scale.detach().reshape(-1))
    drawn, _ = _through(plan, loc.reshape(-1), _raw(q).reshape(-1))
    return cast(Tensor, drawn).reshape(samples, *loc.shape)


def _many(loc: Tensor) -> bool:
    """Whether trials have so many weights each that they are added up one after the other."""
    return loc.shape[-1] >= FEWEST_PER_TRIAL


def _raw(q: Normal) -> Tensor:
    """What the scale is computed from: rho, or the scale itself."""
    return q.rho if isinstance(q, SoftplusNormal) else q.scale


class _Noise(NamedTuple):
    """Noise of several draws: stored for few weights, made again on request for many."""

    samples: int
    few: Tensor | None  # (samples, …, weights), less than a block's worth
    seed: int = 0

    def rows(self, start: int, like: Tensor) -> Iterator[tuple[int, Tensor]]:
        """That of a block, some draws at a time, after the number of draws before them."""
        # From one generator, so that the first draws are the same however many there are.
        words, count = np.random.SFC64(self.seed + (start << 96)), len(like)
        if like.dtype == torch.float64:
            double = torch.Generator("cpu").manual_seed(int(words.random_raw()) >> 1)
            for sample in range(self.samples):
                made = torch.randn(count, generator=double, dtype=like.dtype, device="cpu")
                yield sample, made.unsqueeze(0)
            return
        some = max(1, ONE_PIECE // count)
        for before in range(0, self.samples, some):
            yield before, in_rows(words, min(some, self.samples - before), count)


def _noise(loc: Tensor, samples: int, seed: Tensor | None) -> _Noise:
    number = None if seed is None else int(seed)
    if samples * loc.numel() < MANY:
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
        if self.noise is None or not self.learned or (self.rule is not None and len(loc) > LARGE):
            return False
        few = self.noise.few is not None
        return few or self.noise.samples == 1 or self.dtype == loc.dtype


class _Found(NamedTuple):
    """What a pass gives, and what it keeps for the gradients to overwrite."""

    drawn: Tensor | None = None
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
        found = _computed(plan, *sides)
        ctx.plan, ctx.found = plan, (found.derivatives, found.lever)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(found.drawn if found.lever is not None else None, *sides)
        return found.drawn, found.total

    @staticmethod
    def backward(
        ctx: Any, by_drawn: Tensor | None, by_total: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        plan, (drawn, loc, raw, *prior) = ctx.plan, ctx.saved_tensors
        # Handed on, to be overwritten by the gradients; a second backward pass computes them again.
        (kept, lever), ctx.found = ctx.found, (None, None)
        own = None
        with torch.no_grad() if torch.is_grad_enabled() else nullcontext():
            if by_total is not None and kept is None:
                kept = _computed(plan._replace(noise=None), loc, raw, *prior).derivatives
            if by_total is not None:
                each = by_total.unsqueeze(-1) if by_total.dim() else by_total
                own = kept[0].mul_(each), kept[1].mul_(each)
            if by_drawn is not None:
                own = _with_draws(plan, own, by_drawn, loc, raw, drawn, lever)
        if own is not None and torch.is_grad_enabled():
            own = refuse_second(own[0], loc, raw), refuse_second(own[1], loc, raw)
        return (None, *(own or (None, None)), *(None for _ in prior))


def _computed(plan: _Plan, loc: Tensor, raw: Tensor, *prior: Tensor) -> _Found:
    samples = 0 if plan.noise is None else plan.noise.samples
    drawn = loc.new_empty((samples, *loc.shape), dtype=plan.dtype)
    # Noise is always cut alike: the backward pass may have to make it again. A stack is one block.
    if loc.dim() > 1 or len(loc) <= (plan.piece if plan.noise is None else ONE_PIECE):
        found = _of_block(plan, 0, drawn, loc, raw, *prior)
    else:
        found = _in_blocks(plan, drawn, loc, raw, *prior)
    return found._replace(drawn=drawn if samples else None)


def _of_block(
    plan: _Plan, start: int, drawn: Tensor, loc: Tensor, raw: Tensor, *prior: Tensor
) -> _Found:
    """Draws written into their place, the total of a block, and what is kept."""
    scale, noise = raw, plan.noise
    if plan.by_rho:
        known = plan.scale
        scale = softplus(raw) if known is None else known[start : start + len(raw)]
    value, derivatives, slope = None, None, None
    keeps = plan.keeps_lever(loc)
    if plan.learned and (keeps or plan.rule is not None):
        slope = plan.slope(raw)
    if plan.rule is not None:
        value, d_loc, d_scale = plan.rule(loc, scale, *prior)
        derivatives = d_loc, d_scale if slope is None else d_scale.mul_(slope)
    if noise is not None and noise.few is not None:
        _put(drawn, loc, scale, noise.few)
        return _Found(None, value, derivatives, slope)
    rows = loc.unsqueeze(0)
    for before, rows in noise.rows(start, loc) if noise is not None else ():
        _put(drawn[before : before + len(rows)], loc, scale, rows)
    if not keeps:
        return _Found(None, value, derivatives)
    one = rows[0]
    if len(drawn) > 1:  # the reciprocal of the scale, 0 where it is
        one = scale.clamp(min=torch.finfo(scale.dtype).tiny).reciprocal_()
    return _Found(None, value, derivatives, one if slope is None else one.mul_(slope))


def _put(place: Tensor, loc: Tensor, scale: Tensor, noise: Tensor) -> None:
    if place.dtype == loc.dtype:
        torch.addcmul(loc, scale, noise, out=place)
    else:
        place.copy_(torch.addcmul(loc, scale, noise))


def _in_blocks(plan: _Plan, drawn: Tensor, loc: Tensor, raw: Tensor, *prior: Tensor) -> _Found:
    """Written in place block by block, so that the pieces never exist beside the whole."""
    d_loc, d_raw = (x.new_empty(len(x) if plan.rule else 0) for x in (loc, raw))
    lever = loc.new_empty(len(loc)) if plan.keeps_lever(loc) else None
    values = []
    for start, end in _cuts(len(loc), BLOCK if plan.noise is None else ONE_PIECE):
        sides = (x[start:end] if x.dim() else x for x in (loc, raw, *prior))
        found = _of_block(plan, start, drawn[:, start:end], *sides)
        if found.total is not None and found.derivatives is not None:
            values.append(found.total)
            d_loc[start:end], d_raw[start:end] = found.derivatives
        if lever is not None and found.lever is not None:
            lever[start:end] = found.lever
    if not values:
        return _Found(lever=lever)
    # The sums of blocks are added up in double precision.
    value = torch.stack(values).sum(dtype=torch.float64).to(loc.dtype)
    return _Found(None, value, (d_loc, d_raw), lever)


def _with_draws(
    plan: _Plan,
    found: _Gradients | None,
    by_drawn: Tensor,
    loc: Tensor,
    raw: Tensor,
    drawn: Tensor | None,
    lever: Tensor | None,
) -> _Gradients:
    """The gradients by way of the draws, added to those found: Σ g and Σ g ε σ'(rho)."""
    noise = cast(_Noise, plan.noise)
    if lever is None or noise.few is not None:
        one = len(by_drawn) == 1
        by_loc = by_drawn[0].to(raw.dtype) if one else by_drawn.sum(0, dtype=raw.dtype)
    if noise.few is not None:
        by_raw = by_drawn[0] * noise.few[0]
        for row in range(1, noise.samples):
            by_raw.addcmul_(by_drawn[row].to(by_raw.dtype), noise.few[row])
        slope = plan.slope(raw) if lever is None else lever
        by_raw = by_raw if slope is None else by_raw.mul_(slope)
    elif lever is None:  # the noise is made from its seed once more
        by_raw = torch.zeros_like(raw) if found is None else found[1]
        for start, end in _cuts(len(raw)):
            bare, by_scale = raw[start:end], torch.zeros_like(raw[start:end])
            for before, rows in noise.rows(start, bare):
                for each, g in zip(rows, by_drawn[before:, start:end], strict=False):
                    by_scale.addcmul_(each, g.to(bare.dtype))
            slope = plan.slope(bare)
            by_raw[start:end] += by_scale if slope is None else by_scale.mul_(slope)
        return by_loc if found is None else found[0].add_(by_loc), by_raw
    elif noise.samples == 1:
        by_loc = by_drawn[0].to(raw.dtype)
        by_raw = lever.mul_(by_loc)
    else:
        # The draws hold their noise, times the scale: Σ g and Σ g (w - loc) ∂ log scale / ∂ rho.
        by_loc, by_raw, drawn = loc.new_empty(len(loc)), lever, cast(Tensor, drawn)
        for start, end in _cuts(len(loc)):
            rows, own = by_drawn[:, start:end], drawn[:, start:end]
            total = torch.sum(rows, 0, out=by_loc[start:end])
            by_log_scale = (-loc[start:end]).mul_(total)
            # One by one: all of them at once would leave the cache.
            for g, w in zip(rows, own, strict=True):
                by_log_scale.addcmul_(g.to(w.dtype), w)
            lever[start:end] *= by_log_scale
    return (by_loc, by_raw) if found is None else (found[0].add_(by_loc), found[1].add_(by_raw))


def _cuts(count: int, size: int = ONE_PIECE) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, count)) for start in range(0, count, size))
