"""A loss over several draws whose gradients are formed draw by draw: memory for one of them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bayesdiv.model.recomputing import reentrant


class Part(NamedTuple):
    """A summand of the loss: what is differentiated, one number, and its value for each trial."""

    total: Tensor
    each: Tensor


Parts = Sequence[Callable[[], Part]]


def in_turn(
    parts: Parts, inputs: Sequence[Tensor], leaves: Sequence[Tensor], again: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the penalty, which comes first, and the groups of draws; both for each trial."""
    # The forward pass makes one part, differentiates it and forgets it before the next; the
    # backward pass hands the gradients over. There is no second derivative, and the two values
    # refuse to be differentiated. Each input has a leaf: itself, or what stands for it in the
    # parts, so that what comes before it is differentiated once. `again` is whether the backward
    # pass of a part may run parts of the network again.
    total, *both = _InTurn.apply(parts, leaves, again, *inputs)  # type: ignore[no-untyped-call]
    if leaves:
        both = [_Shown.apply(each, leaves[0]) for each in both]  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, Tensor, Tensor], (total, *both))


class _InTurn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, parts: Parts, leaves: Sequence[Tensor], again: bool, *inputs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.gradients = [None] * len(leaves)
        penalty, *draws = [_differentiated(make, leaves, ctx.gradients, again) for make in parts]
        device = draws[0].total.device
        total = torch.stack([part.total.to(device) for part in (*draws, penalty)]).sum()
        nll, divergence = torch.stack([part.each for part in draws]).sum(0), penalty.each.to(device)
        ctx.mark_non_differentiable(nll, divergence)
        return total, nll, divergence

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            told = "draws that run in turn have gradients for one backward pass"
            raise RuntimeError(f"{told}: give over=Vectorized() for a second one")
        scaled = [g if g is None else g.mul_(grad.to(g.device)) for g in gradients]
        return None, None, None, *scaled


class _Shown(torch.autograd.Function):
    """A part of the loss, which would be differentiated to 0 where its gradient is gone."""

    @staticmethod
    def forward(ctx: Any, each: Tensor, leaf: Tensor) -> Tensor:
        return each.clone()  # no view, of which `fully_shard` warns

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        told = "where draws run in turn, only the total of a loss can be differentiated"
        raise RuntimeError(f"{told}: give over=Vectorized() to differentiate its parts")


def _differentiated(
    make: Callable[[], Part], leaves: Sequence[Tensor], gradients: list[Tensor | None], again: bool
) -> Part:
    """A part without its graph, whose gradients were added to those so far."""
    with torch.enable_grad():
        part = make()
    if part.total.requires_grad:
        seen: set[int] = set()
        found = _by_backward if again and reentrant(part.total) else torch.autograd.grad
        for index, new in enumerate(found(part.total, leaves, allow_unused=True)):
            if new is None:
                continue
            # With memory of its own, so that it can be added to in place.
            if new.data_ptr() in seen or 0 in new.stride():
                new = new.clone(memory_format=torch.contiguous_format)
            seen.add(new.data_ptr())
            sofar = gradients[index]
            gradients[index] = new if sofar is None else sofar.add_(new)
    return Part(part.total.detach(), part.each.detach())


def _by_backward(
    total: Tensor, leaves: Sequence[Tensor], allow_unused: bool
) -> Sequence[Tensor | None]:
    """The gradients where a reentrant checkpoint is in the graph, which refuses `grad`."""
    before = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    total.backward()
    found = [leaf.grad for leaf in leaves]
    for leaf, own in zip(leaves, before, strict=True):
        leaf.grad = own
    return found
