"""A loss over several draws whose gradients are formed draw by draw: memory for one of them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bayesdiv.model.recomputing import reentrant

# From a number and what it depends on to its gradients, None by what it does not depend on.
Gradients = Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor | None]]


def gradients_of(total: Tensor, parameters: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """The gradients by these parameters, which keep their own."""
    return torch.autograd.grad(total, parameters, allow_unused=True)


def gradients_by_backward(total: Tensor, parameters: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """The same where a reentrant checkpoint is in the graph, which refuses all but `backward`."""
    if not reentrant(total):
        return gradients_of(total, parameters)
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    total.backward()
    found = [parameter.grad for parameter in parameters]
    for parameter, own in zip(parameters, before, strict=True):
        parameter.grad = own
    return found


class Part(NamedTuple):
    """A summand of the loss: what is differentiated, one number, and its value for each trial."""

    total: Tensor
    each: Tensor


def in_turn(
    group: Callable[[int], Part],
    counts: Sequence[int],
    penalty: Callable[[], Part],
    inputs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    differentiate: Gradients = gradients_of,
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of all groups of draws and the penalty, and the two for each trial."""
    # The forward pass draws one group, runs it, differentiates it and forgets it before the next;
    # the backward pass hands the gradients over. There is no second derivative, and the two parts
    # carry no gradient of their own. Each input has a leaf: itself, or what stands for it in the
    # groups, so that what comes before it is differentiated once.
    made = _InTurn.apply(group, counts, penalty, differentiate, leaves, *inputs)  # type: ignore[no-untyped-call]
    return cast(tuple[Tensor, Tensor, Tensor], made)


class _InTurn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        group: Callable[[int], Part],
        counts: Sequence[int],
        penalty: Callable[[], Part],
        differentiate: Gradients,
        leaves: Sequence[Tensor],
        *inputs: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        gradients: list[Tensor | None] = [None] * len(leaves)
        # The penalty first: what it needs beside its gradients is gone before a draw is made.
        last = _differentiated(penalty, leaves, gradients, gradients_of)
        parts = [
            _differentiated(lambda n=n: group(n), leaves, gradients, differentiate)  # type: ignore[misc]
            for n in counts
        ]
        ctx.gradients = gradients
        device = parts[0].total.device
        total = torch.stack([part.total.to(device) for part in (*parts, last)]).sum()
        nll, divergence = torch.stack([part.each for part in parts]).sum(0), last.each.to(device)
        ctx.mark_non_differentiable(nll, divergence)
        return total, nll, divergence

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError(
                "draws that run in turn have gradients for one backward pass: give "
                "over=Vectorized() for a second one"
            )
        scaled = [g if g is None else g.mul_(grad.to(g.device)) for g in gradients]
        return None, None, None, None, None, *scaled


def _differentiated(
    make: Callable[[], Part],
    parameters: Sequence[Tensor],
    gradients: list[Tensor | None],
    differentiate: Gradients,
) -> Part:
    """A part without its graph, whose gradients were added to those so far."""
    with torch.enable_grad():
        part = make()
    if part.total.requires_grad:
        seen: set[int] = set()
        for index, new in enumerate(differentiate(part.total, parameters)):
            if new is None:
                continue
            # With memory of its own, so that it can be added to in place.
            if new.data_ptr() in seen or 0 in new.stride():
                new = new.clone(memory_format=torch.contiguous_format)
            seen.add(new.data_ptr())
            sofar = gradients[index]
            gradients[index] = new if sofar is None else sofar.add_(new)
    return Part(part.total.detach(), part.each.detach())
