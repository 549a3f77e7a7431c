"""Gradient checkpointing: the weights of a call, in place again while its backward pass recomputes.

Checkpointing throws activations away and calls parts of the network again in the backward pass,
long after the call has taken its weights out. Two nodes of the graph, one at the output and one at
the weights, which the backward pass meets first and last, put them back for that time.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.utils._pytree import tree_map_only

from bayesdiv.model.layout import Layout

# Puts tensors in their places in a module by name, or placeholders if there are none.
Put = Callable[[Mapping[str, Tensor] | None], None]


def may_recompute(module: nn.Module) -> bool:
    """Whether code outside torch's own layers runs, which alone may use checkpointing.

    Examples:
        >>> may_recompute(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
        False
    """
    return not all(type(part).__module__.startswith("torch.nn.") for part in module.modules())


def recomputable(
    run: Callable[[Mapping[str, Tensor]], Any],
    tensors_of: Callable[[Tensor], Mapping[str, Tensor]],
    weights: Tensor,
    layout: Layout,
    put: Put,
) -> Any:
    """The output of a call, whose tensors are in their places while its gradients are formed.

    They are there as leaves of their own. A reentrant checkpoint adds to their gradients, out of
    sight of the graph of the weights; what they gather is added where the weights get theirs.

    Args:
        run: the call, from the tensors by name.
        tensors_of: from the flat vector to the tensors by every name.
        weights: the flat vector.
        layout: of the weights.
        put: what puts tensors in their places.
    """
    gathered = _Gathered(layout)
    weights = cast(Tensor, _Leave.apply(weights, gathered))  # type: ignore[no-untyped-call]
    tensors = tensors_of(weights)

    def enter() -> None:
        if not gathered.leaves:
            gathered.begin(tensors)
            torch.autograd.Variable._execution_engine.queue_callback(lambda: put(None))
        put(gathered.leaves)

    def entered(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        return cast(Tensor, _Enter.apply(tensor, weights, enter))  # type: ignore[no-untyped-call]

    return tree_map_only(Tensor, entered, run(tensors))


class _Enter(torch.autograd.Function):
    """An output as it is: where the backward pass enters, whose way leads to the weights too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, weights: Tensor, enter: Callable[[], None]) -> Tensor:
        ctx.enter = enter
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        ctx.enter()
        return gradient, None, None


class _Gathered:
    """The leaves of one call; it must not hold the weights, whose node holds it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.leaves: dict[str, Tensor] = {}

    def begin(self, tensors: Mapping[str, Tensor]) -> None:
        own: dict[int, Tensor] = {}
        for name, tensor in tensors.items():
            leaf = own.setdefault(id(tensor), tensor.detach())
            self.leaves[name] = leaf.requires_grad_(tensor.requires_grad)

    def take(self) -> Tensor | None:
        """The gradients of all leaves as one vector, once."""
        leaves, self.leaves = self.leaves, {}
        if all(leaf.grad is None for leaf in leaves.values()):
            return None
        full = {n: torch.zeros_like(v) if v.grad is None else v.grad for n, v in leaves.items()}
        return self.layout.flatten(full)


class _Leave(torch.autograd.Function):
    """The weights as they are: the backward pass comes here last, with what it has for them."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, gathered: _Gathered) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.gathered = gathered
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[Tensor | None, None]:
        own = ctx.gathered.take()
        if own is None or gradient is None:
            return gradient if own is None else own, None
        return gradient + own.to(gradient), None


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
