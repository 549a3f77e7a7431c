"""Triton kernels: a summed divergence from loc and rho, its gradients, and draws, on a GPU.

Nothing of the size of the weights is kept between the passes. The forward pass reads loc and rho
and writes one partial sum per program, in double precision; the backward pass reads them again and
writes both gradients. A draw makes its noise from a seed and a counter, and its backward pass makes
the same noise once more. All are custom operators of torch: a compiler takes them as they are, and
a CUDA graph may hold them.

Without Triton the module can be imported and nothing in it called. What runs on a block of weights
is in `bayesdiv.compute.triton_programs`.
"""

# torch.library has no types for its decorators.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.compute import table, triton_programs
from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.compute.reference import prior_serves
from bayesdiv.compute.triton_programs import Program
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.densities import places
from bayesdiv.divergence.gaussian import (
    GaussianRule,
    OnePass,
    SoftplusNormal,
    alpha_of,
    refuse_second,
)
from bayesdiv.divergence.geometric import jsg_terms, weighted_kl_terms
from bayesdiv.divergence.kl import kl_terms, reverse_kl_terms

# Weights per program; each thread holds several, so that loads overlap.
BLOCK = 1024
# Four normals come out of one round of Philox.
LANES = 256


_PROGRAMS: dict[GaussianRule, Program] = {
    kl_terms: Program.KL,
    reverse_kl_terms: Program.REVERSE_KL,
    weighted_kl_terms: Program.WEIGHTED_KL,
    jsg_terms: Program.JSG,
}


class Kernel(NamedTuple):
    """What a kernel computes: a rule by its number, alpha, a bound and a table where it has one."""

    rule: int
    alpha: float = 0.0
    bound: float = 0.0
    table: Tensor | None = None


def offer(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> Kernels | None:
    """The kernel that adds up this rule, at a fixed alpha."""
    mixture = table.served(rule, divergence, q, p)
    if mixture is not None:
        rows = table.packed(mixture, places(q)[0][0].device)
        return Kernels(Kernel(Program.TABLE.value, 0.0, float(mixture.bound), rows))
    program = _PROGRAMS.get(rule.terms) if isinstance(rule, OnePass) else None
    alpha = alpha_of(divergence)
    if program is None or isinstance(alpha, Tensor):
        return None
    return Kernels(Kernel(program.value, alpha))


def fits(q: Distribution) -> TypeGuard[SoftplusNormal]:
    """Whether the kernels take this posterior: float32, given by rho."""
    if not isinstance(q, SoftplusNormal):
        return False
    return q.loc.dtype == q.rho.dtype == torch.float32 and q.loc.dim() > 0


@dataclass(frozen=True, eq=False)
class Kernels:
    """A backend for Gaussians given by rho, on a GPU."""

    kernel: Kernel

    def serves(self, q: Distribution, p: Distribution) -> bool:
        """Float32 parameters and a prior that is not learned."""
        return fits(q) and isinstance(p, Normal) and prior_serves(q, p)

    def total(self, q: Distribution, p: Distribution) -> Tensor:
        """The divergence summed over the last axis."""
        q, p = cast(SoftplusNormal, q), cast(Normal, p)
        return total(self.kernel, q.loc, q.rho, p.loc, p.scale)

    def draw_and_total(
        self, q: Distribution, p: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        """Draws and the total: one pass where there are no trials."""
        q, p = cast(SoftplusNormal, q), cast(Normal, p)
        dtype = dtype or q.loc.dtype
        if q.loc.dim() > 1:
            return draw(q.loc, q.rho, samples, dtype, seed), self.total(q, p)
        return draw_and_total(self.kernel, q.loc, q.rho, p.loc, p.scale, samples, dtype, seed)


def total(
    kernel: Kernel, loc: Tensor, rho: Tensor, prior_loc: Tensor, prior_scale: Tensor
) -> Tensor:
    """The divergence summed over the last axis, (…), differentiable by loc and rho.

    Both sides of the prior are a number, one per weight, or one per weight and trial.
    """
    call = _total if torch.compiler.is_compiling() else _Total.apply
    return cast(Tensor, call(loc, rho, prior_loc, prior_scale, kernel.table, *kernel[:3]))


def draw(
    loc: Tensor, rho: Tensor, samples: int, dtype: torch.dtype = torch.float32, seed: Seed = None
) -> Tensor:
    """Draws of N(loc, softplus(rho)), (samples, …, weights), differentiable by loc and rho.

    The noise follows `torch.manual_seed`. It goes out to 6.6 standard deviations, as torch's own.
    The sums are made in float32, whatever the dtype of the draws.
    """
    call = _draw if torch.compiler.is_compiling() else _Draw.apply
    return cast(Tensor, call(loc, rho, _seed(loc, seed), samples, dtype))


def _seed(loc: Tensor, seed: Tensor | None) -> Tensor:
    """The seed on the device: drawn there, a CUDA graph takes a new one in each replay."""
    if seed is None:
        return torch.randint(1 << 62, (1,), device=loc.device)
    return seed.to(loc.device, torch.int64).reshape(1)


def draw_and_total(
    kernel: Kernel,
    loc: Tensor,
    rho: Tensor,
    prior_loc: Tensor,
    prior_scale: Tensor,
    samples: int,
    dtype: torch.dtype = torch.float32,
    seed: Seed = None,
) -> tuple[Tensor, Tensor]:
    """Draws, (samples, weights), and the summed divergence, each parameter read and written once.

    The same as `draw` and `total`, for weights without trials.
    """
    call = _both if torch.compiler.is_compiling() else _Both.apply
    sides = (loc, rho, prior_loc, prior_scale, kernel.table)
    made = call(*sides, _seed(loc, seed), samples, dtype, *kernel[:3])
    return cast(tuple[Tensor, Tensor], made)


# --- the operators -------------------------------------------------------------------------------

_POSTERIOR = "Tensor loc, Tensor rho, Tensor prior_loc, Tensor prior_scale, Tensor? table"
_RULE = "int rule, float alpha, float bound"
_TOTAL = f"{_POSTERIOR}, {_RULE}"
_BOTH = f"{_POSTERIOR}, Tensor seed, SymInt samples, ScalarType dtype, {_RULE}"


def _operator(name: str, run: Callable[..., Any], schema: str, fake: Callable[..., Any]) -> Any:
    """The operator for a compiler, to which `fake` shows the results' shapes."""
    made = torch.library.custom_op(f"bayesdiv::{name}", run, mutates_args=(), schema=schema)
    made.register_fake(fake)
    return made


def _two_like(side: Tensor) -> tuple[Tensor, Tensor]:
    one = torch.empty_like(side, memory_format=torch.contiguous_format)
    return one, torch.empty_like(one)


def _sum(loc: Tensor, rho: Tensor, *rest: Any) -> Tensor:
    loc, rho = loc.contiguous(), rho.contiguous()
    weights = loc.shape[-1]
    blocks = -(-weights // BLOCK)
    parts = loc.new_empty((*loc.shape[:-1], blocks), dtype=torch.float64)
    if parts.numel():
        with _on(loc):
            triton_programs.forward[blocks, parts.numel() // blocks](
                parts, loc, rho, *_arguments(loc, *rest), BLOCK=BLOCK
            )
    return parts.sum(-1).to(loc.dtype)


_total = _operator(
    "total", _sum, f"({_TOTAL}) -> Tensor", lambda loc, *_: loc.new_empty(loc.shape[:-1])
)


def _gradients(grad: Tensor, loc: Tensor, rho: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    loc, rho = loc.contiguous(), rho.contiguous()
    d_loc, d_rho = torch.empty_like(loc), torch.empty_like(rho)
    blocks = -(-loc.shape[-1] // BLOCK)
    if loc.numel():
        with _on(loc):
            triton_programs.backward[blocks, loc.numel() // loc.shape[-1]](
                d_loc, d_rho, grad.contiguous(), loc, rho, *_arguments(loc, *rest), BLOCK=BLOCK
            )
    return d_loc, d_rho


_total_backward = _operator(
    "total_backward",
    _gradients,
    f"(Tensor grad, {_TOTAL}) -> (Tensor, Tensor)",
    lambda _, loc, *__: _two_like(loc),
)


def _keep_total(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.rest = inputs[5:]


def _total_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return (*_total_backward(grad, *ctx.saved_tensors, *ctx.rest), *(None,) * 6)


_total.register_autograd(_total_gradients, setup_context=_keep_total)


class _Total(torch.autograd.Function):
    """The same without the way through the dispatcher, which takes longer than the kernels."""

    forward = staticmethod(_sum)
    setup_context = staticmethod(_keep_total)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        found = _gradients(grad, *ctx.saved_tensors, *ctx.rest)
        return (*_once(found, ctx), *(None,) * 6)


def _once(found: tuple[Tensor, Tensor], ctx: Any) -> Iterable[Tensor]:
    """The gradients, which refuse to be differentiated where that is to be possible."""
    if not torch.is_grad_enabled():
        return found
    return (refuse_second(one, *ctx.saved_tensors[:2]) for one in found)


def _arguments(
    loc: Tensor,
    prior_loc: Tensor,
    prior_scale: Tensor,
    table: Tensor | None,
    rule: int,
    alpha: float,
    bound: float,
) -> tuple[Any, ...]:
    """What follows the posterior in both kernels."""
    places = [_strided(x, loc) for x in (prior_loc, prior_scale)]
    read = loc if table is None else table
    flat = [part for place in places for part in place]
    return (loc.shape[-1], *flat, read, alpha, 1 - alpha, bound, rule)


def _strided(prior: Tensor, loc: Tensor) -> tuple[Tensor, int, int]:
    """A side of the prior, how far its next trial is and how far its next weight."""
    if prior.numel() == 1:
        return prior.contiguous(), 0, 0
    if prior.dim() == 1:  # a single number seen as many stays one: its next is 0 away
        return prior, 0, prior.stride(0)
    return prior.expand(loc.shape).contiguous(), loc.shape[-1], 1


def _on(loc: Tensor) -> AbstractContextManager[object]:
    """Kernels are launched on the current device, which need not be that of the weights."""
    return torch.cuda.device(loc.device) if loc.is_cuda else nullcontext()


def _drawn(loc: Tensor, rho: Tensor, seed: Tensor, samples: int, dtype: torch.dtype) -> Tensor:
    loc, rho = loc.contiguous(), rho.contiguous()
    drawn = loc.new_empty((samples, *loc.shape), dtype=dtype)
    if drawn.numel():
        with _on(loc):
            grid = (-(-loc.numel() // (4 * LANES)),)
            triton_programs.draw_forward[grid](
                drawn, loc, rho, seed, loc.numel(), samples, LANES=LANES
            )
    return drawn


_draw = _operator(
    "draw",
    _drawn,
    "(Tensor loc, Tensor rho, Tensor seed, SymInt samples, ScalarType dtype) -> Tensor",
    lambda loc, _, __, samples, dtype: loc.new_empty((samples, *loc.shape), dtype=dtype),
)


def _to_parameters(grad: Tensor, rho: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
    grad, rho = grad.contiguous(), rho.contiguous()
    d_loc, d_rho = torch.empty_like(rho), torch.empty_like(rho)
    if rho.numel():
        with _on(rho):
            grid = (-(-rho.numel() // (4 * LANES)),)
            triton_programs.draw_gradients[grid](
                d_loc, d_rho, grad, rho, seed, rho.numel(), len(grad), LANES=LANES
            )
    return d_loc, d_rho


_draw_backward = _operator(
    "draw_backward",
    _to_parameters,
    "(Tensor grad, Tensor rho, Tensor seed) -> (Tensor, Tensor)",
    lambda _, rho, __: _two_like(rho),
)


def _keep_seed(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1], inputs[2])


def _draw_to_parameters(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return (*_draw_backward(grad, *ctx.saved_tensors), None, None, None)


_draw.register_autograd(_draw_to_parameters, setup_context=_keep_seed)


class _Draw(torch.autograd.Function):
    """The same without the way through the dispatcher."""

    forward = staticmethod(_drawn)
    setup_context = staticmethod(_keep_seed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return (*_to_parameters(grad, *ctx.saved_tensors), None, None, None)
        # To be differentiated once more: the same noise, as draws of scale 1, and torch's own sums.
        rho, seed = ctx.saved_tensors
        one = torch.full_like(rho, math.log(math.expm1(1.0)))
        noise = _drawn(torch.zeros_like(rho), one, seed, len(grad), torch.float32)
        long = grad.float()
        return long.sum(0), (long * noise).sum(0) * rho.sigmoid(), None, None, None


def _draw_and_sum(
    loc: Tensor,
    rho: Tensor,
    prior_loc: Tensor,
    prior_scale: Tensor,
    table: Tensor | None,
    seed: Tensor,
    samples: int,
    dtype: torch.dtype,
    *rule: Any,
) -> tuple[Tensor, Tensor]:
    loc, rho = loc.contiguous(), rho.contiguous()
    blocks = -(-loc.numel() // (4 * LANES))
    drawn = loc.new_empty((samples, *loc.shape), dtype=dtype)
    parts = loc.new_empty(blocks, dtype=torch.float64)
    if blocks:
        with _on(loc):
            triton_programs.both_forward[blocks,](
                *(parts, drawn, seed, samples, loc, rho),
                *_arguments(loc, prior_loc, prior_scale, table, *rule),
                LANES=LANES,
            )
    return drawn, parts.sum(-1).to(loc.dtype)


_both = _operator(
    "draw_and_total",
    _draw_and_sum,
    f"({_BOTH}) -> (Tensor, Tensor)",
    lambda loc, *rest: (loc.new_empty((rest[5], *loc.shape), dtype=rest[6]), loc.new_empty(())),
)


def _both_gradients(
    grad_drawn: Tensor, grad_total: Tensor, loc: Tensor, rho: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    loc, rho = loc.contiguous(), rho.contiguous()
    prior_loc, prior_scale, table, seed, *rule = rest
    d_loc, d_rho = torch.empty_like(loc), torch.empty_like(rho)
    blocks = -(-loc.numel() // (4 * LANES))
    if blocks:
        with _on(loc):
            triton_programs.both_gradients[blocks,](
                *(d_loc, d_rho, grad_total.contiguous(), grad_drawn.contiguous(), seed),
                *(len(grad_drawn), loc, rho),
                *_arguments(loc, prior_loc, prior_scale, table, *rule),
                LANES=LANES,
            )
    return d_loc, d_rho


_both_backward = _operator(
    "draw_and_total_backward",
    _both_gradients,
    f"(Tensor grad_drawn, Tensor grad_total, {_POSTERIOR}, Tensor seed, {_RULE}) "
    "-> (Tensor, Tensor)",
    lambda _, __, loc, *___: _two_like(loc),
)


def _keep_both(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:6])
    ctx.rule = inputs[8:]


def _both_to_parameters(ctx: Any, grad_drawn: Tensor, grad_total: Tensor) -> tuple[Any, ...]:
    return (*_both_backward(grad_drawn, grad_total, *ctx.saved_tensors, *ctx.rule), *(None,) * 9)


_both.register_autograd(_both_to_parameters, setup_context=_keep_both)


class _Both(torch.autograd.Function):
    """The same without the way through the dispatcher."""

    forward = staticmethod(_draw_and_sum)
    setup_context = staticmethod(_keep_both)

    @staticmethod
    def backward(ctx: Any, grad_drawn: Tensor, grad_total: Tensor) -> tuple[Any, ...]:
        found = _both_gradients(grad_drawn, grad_total, *ctx.saved_tensors, *ctx.rule)
        return (*_once(found, ctx), *(None,) * 9)
