"""One pass over Gaussians on a CPU: a total, draws, or both, in blocks that stay in cache.

The pass goes from loc and rho straight to its results. All it keeps for the backward pass are the
gradients themselves; noise is made again from its seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal
from torch.nn.functional import softplus

from bayesdiv.compute.noise import MANY, Dtype, Seed, fresh_seed, many, standard_normal
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
    """A backend for Gaussians on a CPU: a rule that adds up a block at a time.

    Args:
        rule: the sum over a block and its derivatives.
        piece: up to so many weights are one block, where nothing is drawn.
    """

    rule: TotalRule
    piece: int = ONE_PIECE

    def serves(self, q: Distribution, p: Distribution) -> bool:
        """Whether q is one vector per trial, of one dtype with a prior that is not learned."""
        if not isinstance(q, Normal) or not isinstance(p, Normal) or not _eager(q.loc):
            return False
        shape = q.batch_shape
        whole = len(shape) == 1 or (len(shape) > 1 and shape[-1] >= FEWEST_PER_TRIAL)
        known = q.loc.dtype in _DTYPES and _raw(q).dtype == q.loc.dtype
        return whole and known and shape.numel() > 0 and prior_serves(q, p)

    def total(self, q: Distribution, p: Distribution) -> Tensor:
        """The divergence summed over the last axis."""
        q, p = cast(Normal, q), cast(Normal, p)
        plan = _Plan(isinstance(q, SoftplusNormal), self.rule, piece=self.piece)
        sides = q.loc, _raw(q)
        if q.loc.dim() == 1:
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
        if q.loc.dim() > 1:
            return draw(q, samples, dtype, seed), self.total(q, p)
        noise = _noise(q.loc, samples, seed)
        plan = _Plan(isinstance(q, SoftplusNormal), self.rule, noise, dtype or q.loc.dtype)
        return cast(tuple[Tensor, Tensor], _through(plan, q.loc, _raw(q), p.loc, p.scale))


def draw(q: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
    """Draws of Gaussians, (samples, …, weights): many on a CPU block by block, else at once."""
    loc = q.mean
    few = samples * loc.numel() < MANY
    if few or not isinstance(q, Normal) or not _eager(loc) or loc.dtype not in _DTYPES:
        return _at_once(loc, q.stddev, samples, dtype, seed)
    noise = _noise(loc, samples, seed)
    plan = _Plan(isinstance(q, SoftplusNormal), None, noise, dtype or loc.dtype)
    drawn, _ = _through(plan, loc.reshape(-1), _raw(q).reshape(-1))
    return cast(Tensor, drawn).reshape(samples, *loc.shape)


def _at_once(loc: Tensor, scale: Tensor, samples: int, dtype: Dtype, seed: Seed) -> Tensor:
    """Operations of torch, which a compiler and `vmap` take; the noise is kept."""
    # One draw without an axis of its own: its backward pass then copies and sums nothing.
    shape = loc.shape if samples == 1 else (samples, *loc.shape)
    noise = standard_normal(shape, loc, None if seed is None else int(seed))
    drawn = torch.addcmul(loc, scale, noise)
    drawn = drawn if dtype is None else drawn.to(dtype)
    return drawn.unsqueeze(0) if samples == 1 else drawn


def _eager(loc: Tensor) -> bool:
    """On a CPU, not traced by a compiler, and no transform of torch.func at work."""
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return loc.device.type == "cpu" and not traced


def _raw(q: Normal) -> Tensor:
    """What the scale is computed from: rho, or the scale itself."""
    return q.rho if isinstance(q, SoftplusNormal) else q.scale


# --- the noise -----------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """Noise of a few weights, less than a block's worth."""

    noise: Tensor  # (samples, weights)

    @property
    def samples(self) -> int:
        return len(self.noise)


class _Seeded(NamedTuple):
    """Noise of many weights, made anew whenever it is asked for."""

    seed: int
    samples: int

    def block(self, sample: int, start: int, like: Tensor) -> Tensor:
        """That of a block of one draw; the first draws are the same however many there are."""
        seed = self.seed + (sample << 64) + (start << 96)
        if like.dtype == torch.float32:
            return many(len(like), seed)
        word = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1
        generator = torch.Generator("cpu").manual_seed(word)
        return torch.randn(len(like), generator=generator, dtype=like.dtype, device="cpu")

    def whole(self, like: Tensor) -> Tensor:
        """All of it, (samples, weights)."""
        rows = [
            torch.cat([self.block(s, start, like[start:end]) for start, end in _cuts(len(like))])
            for s in range(self.samples)
        ]
        return torch.stack(rows)


def _noise(loc: Tensor, samples: int, seed: Tensor | None) -> "_Kept | _Seeded":
    number = None if seed is None else int(seed)
    if samples * loc.numel() < MANY:
        return _Kept(standard_normal((samples, loc.numel()), loc, number).reshape(samples, -1))
    return _Seeded(fresh_seed() if number is None else number, samples)


# --- the pass ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a pass computes: a total by the rule, draws with the noise, or both."""

    by_rho: bool
    rule: TotalRule | None = None
    noise: _Kept | _Seeded | None = None
    dtype: Dtype = None
    piece: int = ONE_PIECE

    def scale(self, raw: Tensor) -> Tensor:
        return softplus(raw) if self.by_rho else raw

    def chained(self, by_scale: Tensor, raw: Tensor) -> Tensor:
        """From the derivative by the scale to that by rho, in its place."""
        return by_scale.mul_(raw.sigmoid()) if self.by_rho else by_scale

    def chained_log(self, raw: Tensor, scale: Tensor) -> Tensor:
        """∂ log scale / ∂ rho, or by the scale itself; 0 where the scale is."""
        inverse = scale.clamp(min=torch.finfo(scale.dtype).tiny).reciprocal_()
        return self.chained(inverse, raw)

    def keeps_lever(self, loc: Tensor) -> bool:
        """Whether the backward pass may do without making the noise again.

        It reads it off several draws, which then must be exact.
        """
        exact = self.noise is not None and self.dtype == loc.dtype
        return exact or (self.noise is not None and self.noise.samples == 1)

    def total(
        self, loc: Tensor, raw: Tensor, scale: Tensor, *prior: Tensor
    ) -> tuple[Tensor | None, _Gradients | None]:
        """The total of a block, and its derivatives by loc and rho."""
        if self.rule is None:
            return None, None
        value, d_loc, d_scale = self.rule(loc, scale, *prior)
        return value, (d_loc, self.chained(d_scale, raw))


def _through(
    plan: _Plan, loc: Tensor, raw: Tensor, *prior: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    found = _Pass.apply(plan, loc, raw, *map(_single, prior))  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor | None, Tensor | None], found)


def _single(side: Tensor) -> Tensor:
    return side.reshape(()) if side.numel() == 1 and side.dim() else side


class _Found(NamedTuple):
    """What a pass gives, and what it keeps for the gradients to overwrite."""

    drawn: Tensor | None
    total: Tensor | None
    derivatives: _Gradients | None
    lever: Tensor | None = None  # ε ∂ scale / ∂ rho of one draw; of several, ∂ log scale / ∂ rho


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, *sides: Tensor) -> tuple[Tensor | None, Tensor | None]:
        found = _computed(plan, *sides)
        ctx.plan, ctx.found = plan, found._replace(drawn=None, total=None)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(found.drawn if found.lever is not None else None, *sides)
        return found.drawn, found.total

    @staticmethod
    def backward(
        ctx: Any, by_drawn: Tensor | None, by_total: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        plan, (drawn, loc, raw, *prior) = ctx.plan, ctx.saved_tensors
        # Handed on, to be overwritten by the gradients; a second backward pass computes them anew.
        (_, _, kept, lever), ctx.found = ctx.found, _Found(None, None, None)
        if torch.is_grad_enabled():
            with torch.no_grad():
                found = _of_total(plan, kept, by_total, loc, raw, *prior)
            gradients = _to_differentiate(plan, found, by_drawn, loc, raw)
        else:
            gradients = _of_total(plan, kept, by_total, loc, raw, *prior)
            if by_drawn is not None:
                gradients = _of_draws(plan, gradients, by_drawn, (loc, raw), drawn, lever)
        return (None, *(gradients or (None, None)), *(None for _ in prior))


def _computed(plan: _Plan, loc: Tensor, raw: Tensor, *prior: Tensor) -> _Found:
    if isinstance(plan.noise, _Kept):
        scale = plan.scale(raw)
        drawn = torch.addcmul(loc, scale, plan.noise.noise).to(plan.dtype)
        return _Found(drawn, *plan.total(loc, raw, scale, *prior))
    samples = 0 if plan.noise is None else plan.noise.samples
    drawn = loc.new_empty((samples, len(loc)), dtype=plan.dtype)
    # Noise is always cut alike: the backward pass may have to make it again.
    if len(loc) <= (plan.piece if plan.noise is None else ONE_PIECE):
        found = _of_block(plan, 0, drawn, loc, raw, *prior)
    else:
        found = _in_blocks(plan, drawn, loc, raw, *prior)
    return found._replace(drawn=None if plan.noise is None else drawn)


def _of_block(plan: _Plan, start: int, drawn: Tensor, loc: Tensor, *rest: Tensor) -> _Found:
    """Draws written into their place, the total of a block, and what is kept."""
    raw, *prior = rest
    scale = plan.scale(raw)
    value, derivatives = plan.total(loc, raw, scale, *prior)
    one = loc
    for sample, row in enumerate(drawn):
        one = cast(_Seeded, plan.noise).block(sample, start, loc)
        if row.dtype == loc.dtype:
            torch.addcmul(loc, scale, one, out=row)
        else:
            row.copy_(torch.addcmul(loc, scale, one))
    if not plan.keeps_lever(loc):
        return _Found(None, value, derivatives)
    lever = plan.chained(one, raw) if len(drawn) == 1 else plan.chained_log(raw, scale)
    return _Found(None, value, derivatives, lever)


def _in_blocks(plan: _Plan, drawn: Tensor, loc: Tensor, raw: Tensor, *prior: Tensor) -> _Found:
    """Written in place block by block, so that the pieces never exist beside the whole."""
    d_loc, d_raw = (x.new_empty(len(x) if plan.rule else 0) for x in (loc, raw))
    keeps = plan.keeps_lever(loc) and (plan.rule is None or len(loc) <= LARGE)
    lever = loc.new_empty(len(loc)) if keeps else None
    values = []
    for start, end in _cuts(len(loc)):
        sides = (x[start:end] if x.dim() else x for x in (loc, raw, *prior))
        found = _of_block(plan, start, drawn[:, start:end], *sides)
        if found.total is not None and found.derivatives is not None:
            values.append(found.total)
            d_loc[start:end], d_raw[start:end] = found.derivatives
        if lever is not None and found.lever is not None:
            lever[start:end] = found.lever
    if not values:
        return _Found(None, None, None, lever)
    # The sums of blocks are added up in double precision.
    value = torch.stack(values).sum(dtype=torch.float64).to(loc.dtype)
    return _Found(None, value, (d_loc, d_raw), lever)


def _of_total(
    plan: _Plan, kept: _Gradients | None, by_total: Tensor | None, *sides: Tensor
) -> _Gradients | None:
    """The gradients by way of the total: those that were kept, in their place."""
    if by_total is None:
        return None
    if kept is None:
        kept = cast(_Gradients, _computed(replace(plan, noise=None), *sides).derivatives)
    return kept[0].mul_(by_total), kept[1].mul_(by_total)


def _of_draws(
    plan: _Plan,
    found: _Gradients | None,
    by_drawn: Tensor,
    sides: _Gradients,
    drawn: Tensor | None,
    lever: Tensor | None,
) -> _Gradients:
    """The gradients by way of the draws, added to those found: Σ g and Σ g ε σ'(rho)."""
    loc, raw = sides
    if isinstance(plan.noise, _Kept):
        by_scale = by_drawn * plan.noise.noise
        pair = _added(by_drawn, raw.dtype), plan.chained(_added(by_scale, raw.dtype), raw)
    elif lever is not None and len(by_drawn) == 1:
        pair = by_drawn[0].to(raw.dtype), lever.mul_(by_drawn[0])
    elif lever is not None and drawn is not None:
        pair = _recovered(by_drawn, drawn, loc, lever)
    else:
        return _made_again(plan, found, by_drawn, raw)
    return pair if found is None else (found[0].add_(pair[0]), found[1].add_(pair[1]))


def _added(rows: Tensor, dtype: torch.dtype) -> Tensor:
    return rows[0].to(dtype) if len(rows) == 1 else rows.sum(0, dtype=dtype)


def _recovered(by_drawn: Tensor, drawn: Tensor, loc: Tensor, lever: Tensor) -> _Gradients:
    """Σ g and Σ g (w - loc) ∂ log scale / ∂ rho: the draws hold their noise, times the scale."""
    by_loc = loc.new_empty(len(loc))
    for start, end in _cuts(len(loc)):
        g, w = by_drawn[:, start:end], drawn[:, start:end]
        total = torch.sum(g, 0, out=by_loc[start:end])
        by_log_scale = g[0] * w[0]
        for one, weights in zip(g[1:], w[1:], strict=True):
            by_log_scale.addcmul_(one, weights)
        lever[start:end] *= by_log_scale.addcmul_(loc[start:end], total, value=-1)
    return by_loc, lever


def _made_again(plan: _Plan, found: _Gradients | None, by_drawn: Tensor, raw: Tensor) -> _Gradients:
    """Σ g and Σ g ε σ'(rho), the noise made from its seed once more, added to those found."""
    noise, by_loc = cast(_Seeded, plan.noise), _added(by_drawn, raw.dtype)
    d_loc, d_raw = (
        (by_loc, torch.zeros_like(raw)) if found is None else (found[0].add_(by_loc), found[1])
    )
    for start, end in _cuts(len(raw)):
        bare = raw[start:end]
        by_scale = noise.block(0, start, bare).mul_(by_drawn[0, start:end])
        for sample in range(1, noise.samples):
            one = by_drawn[sample, start:end].to(bare.dtype)
            by_scale.addcmul_(noise.block(sample, start, bare), one)
        d_raw[start:end] += plan.chained(by_scale, bare)
    return d_loc, d_raw


def _to_differentiate(
    plan: _Plan, found: _Gradients | None, by_drawn: Tensor | None, loc: Tensor, raw: Tensor
) -> _Gradients | None:
    """Gradients to be differentiated once more, by way of the draws alone."""
    if found is not None:
        found = refuse_second(found[0], loc, raw), refuse_second(found[1], loc, raw)
    if by_drawn is None or plan.noise is None:
        return found
    with torch.no_grad():
        noise = plan.noise.noise if isinstance(plan.noise, _Kept) else plan.noise.whole(raw)
    long = by_drawn.to(raw.dtype)
    by_scale = (long * noise).sum(0)
    drawn = long.sum(0), by_scale * raw.sigmoid() if plan.by_rho else by_scale
    return drawn if found is None else (found[0] + drawn[0], found[1] + drawn[1])


def _cuts(count: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + ONE_PIECE, count)) for start in range(0, count, ONE_PIECE))
