"""Gradient checkpointing: the weights of a call, in place again while its backward pass recomputes.

Two nodes of the graph, one at the output and one at the weights, which the backward pass meets
first and last, put them back for that time.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils._pytree import tree_map_only

from bayesdiv.compute.devices import traced
from bayesdiv.model.layout import Layout

if TYPE_CHECKING:
    from bayesdiv.model.bayesian import Bayesian

_Parts = Sequence["Bayesian"]


def called_with(parts: _Parts, weights: Sequence[Tensor], call: Callable[[], Any]) -> Any:
    """What a call returns while the weights are in their places."""
    # Where the backward pass may recompute, they are in their places again meanwhile, as leaves of
    # their own. A reentrant checkpoint adds to their gradients, out of sight of the graph of the
    # weights; what they gather is added where the weights get theirs.
    # The leaves of each part must not hold its weights, whose node holds them.
    gathered: list[dict[str, Tensor]] = [{} for _ in parts]
    again = parts[0].may_recompute and torch.is_grad_enabled() and not traced()
    if again:
        triples = zip(parts, weights, gathered, strict=True)
        weights = [_Leave.apply(own, part.layout, leaves) for part, own, leaves in triples]  # type: ignore[no-untyped-call]
    tensors = [part.tensors(own) for part, own in zip(parts, weights, strict=True)]

    def enter() -> None:
        if not gathered[0]:
            torch.autograd.Variable._execution_engine.queue_callback(leave)
            for leaves, own in zip(gathered, tensors, strict=True):
                made: dict[int, Tensor] = {}
                for name, tensor in own.items():
                    leaf = made.setdefault(id(tensor), tensor.detach())
                    leaves[name] = leaf.requires_grad_(tensor.requires_grad)
        for part, leaves in zip(parts, gathered, strict=True):
            part.put(leaves)

    def leave() -> None:
        for part, leaves in zip(parts, gathered, strict=True):
            leaves.clear()
            part.put(None)

    def entered(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        return cast(Tensor, _Enter.apply(tensor, enter, *weights))  # type: ignore[no-untyped-call]

    try:
        for part, own in zip(parts, tensors, strict=True):
            part.put(own)
        outputs = call()
    finally:
        for part in parts:
            part.put(None)
    return tree_map_only(Tensor, entered, outputs) if again else outputs


class _Enter(torch.autograd.Function):
    """An output as it is: where the backward pass enters, whose way leads to the weights too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, enter: Callable[[], None], *weights: Tensor) -> Tensor:
        ctx.enter, ctx.weights = enter, len(weights)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        ctx.enter()
        return gradient, *[None] * (1 + ctx.weights)


class _Leave(torch.autograd.Function):
    """The weights as they are: the backward pass comes here last, with what it has for them."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, layout: Layout, leaves: dict[str, Tensor]) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.layout, ctx.leaves = layout, leaves
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[Tensor | None, None, None]:
        found = {name: (leaf, leaf.grad) for name, leaf in ctx.leaves.items()}
        if all(grad is None for _, grad in found.values()):
            return gradient, None, None
        full = {n: torch.zeros_like(one) if g is None else g for n, (one, g) in found.items()}
        for leaf in ctx.leaves.values():
            leaf.grad = None
        own = ctx.layout.flatten(full)
        return own if gradient is None else gradient + own.to(gradient), None, None


def reentrant(total: Tensor) -> bool:
    """Whether a reentrant checkpoint is in a graph: it allows `backward`, but not `grad`."""
    pending, seen = [total.grad_fn], set[Node]()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CheckpointFunctionBackward":
            return True
        seen.add(node)
        pending.extend(after for after, _ in node.next_functions)
    return False
