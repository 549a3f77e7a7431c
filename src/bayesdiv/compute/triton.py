"""Triton kernels: a summed divergence from loc and rho, its gradients, and draws, on a GPU.

Nothing of the size of the weights is kept between the passes, which read loc and rho again and make
the noise again from its seed. All are operators that a compiler and a CUDA graph take as they are.
Without Triton the module can be imported and nothing in it called.
"""

# torch.library has no types for its decorators.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.compute import table, triton_programs
from bayesdiv.compute.inplace import prior_serves
from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.compute.triton_programs import Program
from bayesdiv.divergence import kl
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.gaussian import OnePass, SoftplusNormal, alpha_of, refuse_second

# Four normals come out of one round of Philox.
LANES = 256
# Weights per program; each thread holds several, so that loads overlap.
BLOCK = 4 * LANES
_PROGRAMS = {
    kl.kl_terms: Program.KL,
    kl.reverse_kl_terms: Program.REVERSE_KL,
    kl.weighted_kl_terms: Program.WEIGHTED_KL,
    kl.jsg_terms: Program.JSG,
}


def offer(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> Kernels | None:
    """The kernel that adds up this rule, at a fixed alpha."""
    mixture = table.served(rule, divergence, q, p)
    if mixture is not None:
        rows = table.packed(mixture, q.mean.device)
        return Kernels(Program.TABLE, 0.0, float(mixture.bound), rows)
    program = _PROGRAMS.get(rule.terms) if isinstance(rule, OnePass) else None
    alpha = alpha_of(divergence)
    return None if program is None or isinstance(alpha, Tensor) else Kernels(program, alpha)


def fits(q: Distribution) -> TypeGuard[SoftplusNormal]:
    """Whether the kernels take this posterior: float32, given by rho."""
    if not isinstance(q, SoftplusNormal):
        return False
    return q.loc.dtype == q.rho.dtype == torch.float32 and q.loc.dim() > 0


@dataclass(frozen=True, eq=False)
class Kernels:
    """A backend for Gaussians given by rho, on a GPU: a program with its alpha, bound and table."""

    program: Program
    alpha: float = 0.0
    bound: float = 0.0
    table: Tensor | None = None

    def serves(self, q: Distribution, p: Distribution) -> bool:
        """Float32 parameters and a prior that is not learned."""
        return fits(q) and isinstance(p, Normal) and prior_serves(q, p)

    def total(self, q: Distribution, p: Distribution) -> Tensor:
        """The divergence summed over the last axis, (…), differentiable by loc and rho."""
        return self.called(_sides(q, p), None, 0, None)[1]

    def draw_and_total(
        self, q: Distribution, p: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        """Draws and the total: each parameter is read once where there are no trials."""
        sides = _sides(q, p)
        if sides[0].dim() > 1:
            return draw(sides[0], sides[1], samples, dtype, seed), self.total(q, p)
        return self.called(sides, _seed(sides[0], seed), samples, dtype)

    def called(
        self, sides: tuple[Tensor, ...], seed: Seed, samples: int, dtype: Dtype
    ) -> tuple[Tensor, Tensor]:
        """Draws and the total of q and p, given by loc and rho, and by loc and scale."""
        # Without a compiler not through the dispatcher, which takes longer than the kernels.
        call = _operator if torch.compiler.is_compiling() else _Pass.apply
        rule = self.program.value, self.alpha, self.bound
        made = call(*sides, self.table, seed, samples, dtype or sides[0].dtype, *rule)
        return cast(tuple[Tensor, Tensor], made)


def _sides(q: Any, p: Any) -> tuple[Tensor, ...]:
    return q.loc, q.rho, p.loc, p.scale


def draw(loc: Tensor, rho: Tensor, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
    """Draws of N(loc, softplus(rho)), (samples, …, weights), differentiable by loc and rho."""
    # The noise follows `torch.manual_seed`. The sums are made in float32, whatever the dtype of
    # the draws.
    sides = 2 * (loc.reshape(-1), rho.reshape(-1))
    drawn, _ = Kernels(Program.NOTHING).called(sides, _seed(loc, seed), samples, dtype)
    return drawn.reshape(samples, *loc.shape)


def _seed(loc: Tensor, seed: Tensor | None) -> Tensor:
    """The seed on the device: drawn there, a CUDA graph takes a new one in each replay."""
    if seed is None:
        return torch.randint(1 << 62, (1,), device=loc.device)
    return seed.to(loc.device, torch.int64).reshape(1)


def _forward(
    loc: Tensor, rho: Tensor, prior_loc: Tensor, prior_scale: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    """Draws, (samples, …, weights), and the total, (…); what is not asked for is empty."""
    table, seed, samples, _, rule, alpha, bound = rest
    loc, rho = loc.contiguous(), rho.contiguous()
    drawn, total = _results(loc, rho, prior_loc, prior_scale, *rest)
    grid = _grid(loc)
    parts = loc.new_empty((*total.shape, grid[0]), dtype=torch.float64)
    if loc.numel():
        with _on(loc):
            triton_programs.forward[grid](
                *(parts, drawn, loc if seed is None else seed, samples, loc, rho),
                *_prior(loc, prior_loc, prior_scale),
                *(loc if table is None else table, alpha, 1 - alpha, bound, rule),
                draws=samples > 0,
                LANES=LANES,
            )
    return drawn, parts.sum(-1).to(loc.dtype)


def _results(loc: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Empty tensors to fill: shows a compiler the shapes too."""
    samples, dtype, rule = rest[5:8]
    shape = (0,) if rule == Program.NOTHING.value else loc.shape[:-1]
    return loc.new_empty((samples, *loc.shape), dtype=dtype), loc.new_empty(shape)


def _backward(
    by_drawn: Tensor | None, by_total: Tensor | None, loc: Tensor, rho: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    prior_loc, prior_scale, table, seed, rule, alpha, bound = rest
    loc, rho = loc.contiguous(), rho.contiguous()
    found = torch.empty_like(loc), torch.empty_like(rho)
    samples = 0 if by_drawn is None else len(by_drawn)
    grads = [loc if grad is None else grad.contiguous() for grad in (by_total, by_drawn)]
    if loc.numel():
        with _on(loc):
            triton_programs.backward[_grid(loc)](
                *(*found, *grads, loc if seed is None else seed, samples, loc, rho),
                *_prior(loc, prior_loc, prior_scale),
                *(loc if table is None else table, alpha, 1 - alpha, bound),
                Program.NOTHING.value if by_total is None else rule,
                draws=samples > 0,
                LANES=LANES,
            )
    return found


def _grid(loc: Tensor) -> tuple[int, int]:
    return -(-loc.shape[-1] // BLOCK), loc.shape[:-1].numel()


def _prior(loc: Tensor, *sides: Tensor) -> tuple[Any, ...]:
    """The number of weights; both sides of the prior with their steps by trials and weights."""
    found: list[Any] = [loc.shape[-1]]
    for side in sides:
        if side.numel() == 1:
            found += side.contiguous(), 0, 0
        elif side.dim() == 1:  # a single number seen as many stays one: its next is 0 away
            found += side, 0, side.stride(0)
        else:
            found += side.expand(loc.shape).contiguous(), loc.shape[-1], 1
    return tuple(found)


def _on(loc: Tensor) -> AbstractContextManager[object]:
    """Kernels are launched on the current device, which need not be that of the weights."""
    return torch.cuda.device(loc.device) if loc.is_cuda else nullcontext()


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:6])
    ctx.rule = inputs[8:]


class _Pass(torch.autograd.Function):
    """Both passes without a compiler."""

    forward = staticmethod(_forward)
    setup_context = staticmethod(_keep)

    @staticmethod
    def backward(
        ctx: Any, by_drawn: Tensor | None, by_total: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        found: Iterable[Tensor] = _backward(by_drawn, by_total, *ctx.saved_tensors, *ctx.rule)
        if torch.is_grad_enabled():
            found = (refuse_second(one, *ctx.saved_tensors[:2]) for one in found)
        return (*found, *(None,) * 9)


_SIDES = "Tensor loc, Tensor rho, Tensor prior_loc, Tensor prior_scale, Tensor? table, Tensor? seed"
_RULE = "int rule, float alpha, float bound"
_operator = torch.library.custom_op(
    "bayesdiv::draw_and_total",
    _forward,
    mutates_args=(),
    schema=f"({_SIDES}, SymInt samples, ScalarType dtype, {_RULE}) -> (Tensor, Tensor)",
)
_operator_backward = torch.library.custom_op(
    "bayesdiv::draw_and_total_backward",
    _backward,
    mutates_args=(),
    schema=f"(Tensor? by_drawn, Tensor? by_total, {_SIDES}, {_RULE}) -> (Tensor, Tensor)",
)
_operator.register_fake(_results)
_operator_backward.register_fake(
    lambda by_drawn, by_total, loc, *_: (loc.new_empty(loc.shape), loc.new_empty(loc.shape))
)
_operator.register_autograd(
    lambda ctx, *grads: (*_operator_backward(*grads, *ctx.saved_tensors, *ctx.rule), *(None,) * 9),
    setup_context=_keep,
)
