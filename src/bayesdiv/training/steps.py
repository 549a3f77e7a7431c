"""One update as a value: run as it comes, or recorded once as a CUDA graph and replayed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_flatten, tree_unflatten

from bayesdiv.compute.devices import on_gpu, seen_to_fail
from bayesdiv.objective.objective import Loss

# From what computes the loss, its arguments, the optimizer and what forms gradients to the loss.
LossOf = Callable[..., Loss]
Backward = Callable[[Tensor], None]
Step = Callable[[LossOf, tuple[Any, ...], Optimizer, Backward], Loss]
# Steps before a recording: they make the optimizer's state, build tables, compile and choose
# algorithms, all of which a recording must not.
WARM = 2


@dataclass(frozen=True)
class Eager:
    """One ordinary update: loss, gradients, optimizer. Write your own to clip gradients."""

    def __call__(
        self, loss_of: LossOf, batch: tuple[Any, ...], optimizer: Optimizer, backward: Backward
    ) -> Loss:
        """One update; none where the loss on a CPU is not finite, which `fit` reports."""
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*batch)
        if seen_to_fail(loss.total):
            return loss
        backward(loss.total)
        optimizer.step()
        return Loss(*(part.detach() for part in loss))


class Recorded:
    """A step for `fit(…, step=Recorded())` that replays a recording on a GPU.

    The first two steps of each batch shape run as usual, the third is recorded, and each later one
    is a single launch. Batches on the GPU (`Batches`) are gathered inside it. A compiled loss
    (`fit(…, transform=torch.compile)`) is recorded in its compiled form. The optimizer must keep
    its state on the GPU: `Adam(…, capturable=True)`. Its learning rate is put in a tensor, so that
    schedules of torch work. On a CPU it is the plain step.
    """

    def __init__(self) -> None:
        self._seen: dict[Any, int] = {}
        self._recordings: dict[Any, tuple[torch.cuda.CUDAGraph, list[Tensor], Loss]] = {}

    def __call__(
        self, loss_of: LossOf, batch: tuple[Any, ...], optimizer: Optimizer, backward: Backward
    ) -> Loss:
        """One update. The loss is valid until the next one of the same shape."""
        parts, spec = tree_flatten(batch)
        if not all(map(on_gpu, parts)):
            return Eager()(loss_of, batch, optimizer, backward)
        key = (spec, *((part.shape, part.dtype) for part in parts))
        if key not in self._recordings:
            seen = self._seen[key] = self._seen.get(key, 0) + 1
            if seen == 1:
                _make_capturable(optimizer)
            if seen <= WARM:
                # On its own stream, as a recording asks of what comes before it.
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    loss = Eager()(loss_of, batch, optimizer, backward)
                torch.cuda.current_stream().wait_stream(stream)
                return loss
            inputs, graph = [part.clone() for part in parts], torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                loss = Eager()(loss_of, tree_unflatten(inputs, spec), optimizer, backward)
            self._recordings[key] = graph, inputs, loss
        graph, inputs, loss = self._recordings[key]
        torch._foreach_copy_(inputs, parts)
        graph.replay()
        return loss


def _make_capturable(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        if not group.get("capturable", True):
            raise ValueError("the optimizer must be capturable: give capturable=True")
        # Where a recording sees it change.
        if isinstance(group.get("lr"), float):
            group["lr"] = torch.tensor(group["lr"], device=group["params"][0].device)
