"""One update as a value: run as it comes, or recorded once as a CUDA graph and replayed."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from bayesdiv.objective.objective import Loss

log = logging.getLogger(__name__)

Step = Callable[[Callable[..., Loss], tuple[Any, ...], Optimizer, Callable[[Tensor], None]], Loss]
Result = TypeVar("Result")
_Key = tuple[tuple[torch.Size, torch.dtype], ...]


class _Recording(NamedTuple):
    graph: torch.cuda.CUDAGraph
    batch: tuple[Tensor, ...]
    loss: Loss


@dataclass(frozen=True)
class Eager:
    """One update as it comes: loss, gradients, optimizer. Write another to clip gradients, say."""

    def __call__(
        self,
        loss_of: Callable[..., Loss],
        batch: tuple[Any, ...],
        optimizer: Optimizer,
        backward: Callable[[Tensor], None],
    ) -> Loss:
        """One update."""
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*batch)
        if loss.total.device.type == "cpu" and not bool(loss.total.isfinite()):
            return loss  # reported by `fit`; the weights stay as they were
        backward(loss.total)
        optimizer.step()
        return Loss(*(part.detach() for part in loss))


class Recorded:
    """A `step` for `fit` and `fit_trials` that replays a recording on a GPU.

    The first step of each batch shape runs as usual, the second is recorded, all later ones are a
    single launch. The optimizer must keep its state on the GPU: `Adam(…, capturable=True)`; a
    learning rate that is to change must be a tensor. On a CPU it is the plain step, told once.

    Examples:
        >>> import bayesdiv as bd
        >>> step = Recorded()  # then: bd.fit(net, objective, batches, optimizer, 100, step=step)
    """

    def __init__(self) -> None:
        self._seen: set[_Key] = set()
        self._recorded: dict[_Key, _Recording] = {}
        self._told = False

    def __call__(
        self,
        loss_of: Callable[..., Loss],
        batch: tuple[Any, ...],
        optimizer: Optimizer,
        backward: Callable[[Tensor], None],
    ) -> Loss:
        """One update."""
        if not all(isinstance(part, Tensor) and part.is_cuda for part in batch):
            self._tell()
            return Eager()(loss_of, batch, optimizer, backward)
        key = tuple((part.shape, part.dtype) for part in batch)
        if key not in self._seen:
            # Makes the optimizer's state and every lazily built table, which a recording must not.
            self._seen.add(key)
            return aside(lambda: Eager()(loss_of, batch, optimizer, backward))
        if key not in self._recorded:
            self._recorded[key] = _recorded(loss_of, batch, optimizer, backward)
        recorded = self._recorded[key]
        for kept, part in zip(recorded.batch, batch, strict=True):
            kept.copy_(part)
        recorded.graph.replay()
        return Loss(*(part.clone() for part in recorded.loss))

    def _tell(self) -> None:
        if not self._told:
            log.info("there is no CUDA graph on a CPU: steps run as usual")
            self._told = True


def aside(run: Callable[[], Result]) -> Result:
    """Run on a stream of its own, as a recording asks of what comes before it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = run()
    torch.cuda.current_stream().wait_stream(stream)
    return result


def _recorded(
    loss_of: Callable[..., Loss],
    batch: tuple[Tensor, ...],
    optimizer: Optimizer,
    backward: Callable[[Tensor], None],
) -> _Recording:
    if not all(group.get("capturable", True) for group in optimizer.param_groups):
        raise ValueError("the optimizer must be capturable for Recorded(): give capturable=True")
    kept = tuple(part.clone() for part in batch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = Eager()(loss_of, kept, optimizer, backward)
    return _Recording(graph, kept, loss)
