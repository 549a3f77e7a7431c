"""What a step reads: batches of tensors that live on any device, and how a loader is unpacked."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from operator import index
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from bayesdiv.draws import Inputs, from_arrays, leaves

Batch = tuple[Inputs, Tensor]
# From what a loader yields to inputs and targets.
Unpack = Callable[[Any], Batch]


class Batches:
    """Tensors in memory, shuffled again in each epoch and cut into batches; the last may be short.

    The tensors stay on their device, and batches are gathered there, with channels last if stored.

    Args:
        x: inputs, examples along the first axis: a tensor or array, or a tuple or mapping of them.
        y: targets.
        size: examples per batch.
        seed: the order of epoch n depends on this seed and n alone. One per trial for a stack:
            trials are then the first axis of x and y, and those with equal seeds share an order.
        transform: applied to the inputs of each batch on their device, such as augmentation.
        drop_last: leave out a short last batch, as torch's loaders do.

    Examples:
        >>> [len(y) for x, y in Batches(torch.zeros(5, 2), torch.zeros(5), size=2)]
        [2, 2, 1]
    """

    def __init__(
        self,
        x: Inputs,
        y: Tensor,
        size: int,
        seed: int | Sequence[int] = 0,
        *,
        transform: Callable[[Any], Inputs] | None = None,
        drop_last: bool = False,
    ) -> None:
        own = seed if isinstance(seed, Iterable) else [seed]
        self.seeds = [index(each) for each in own]
        self.trials = (len(self.seeds),) if own is seed else ()
        axes = 1 + len(self.trials)
        x, y = from_arrays((x, y))
        if not isinstance(y, Tensor) or not leaves(x):
            told = f"got {type(x).__name__} and {type(y).__name__}: give torch.tensor(…)"
            raise TypeError(f"x and y must be tensors or arrays, {told}")
        for tensor in leaves(x):
            if tensor.shape[:axes] != y.shape[:axes]:
                one, two = (len(s) if axes == 1 else tuple(s.shape[:axes]) for s in (tensor, y))
                raise ValueError(f"x and y must have equally many examples, got {one} and {two}")
        if y.shape[:axes].numel() == 0:
            raise ValueError("there must be at least one example, got 0")
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        if self.trials and len(self.seeds) != len(y):
            raise ValueError(f"seed must be one per trial, {len(y)}, got {len(self.seeds)}")
        self.x, self.y, self.size = x, y, index(size)
        self.rows: int = y.shape[axes - 1]
        self.transform, self.drop_last, self.epoch = transform, drop_last, 0

    def set_epoch(self, epoch: int) -> None:
        """Take the order of this epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        whole = self.rows // self.size
        return whole if self.drop_last and whole else math.ceil(self.rows / self.size)

    def __iter__(self) -> Iterator[Batch]:
        return (self.gathered(places) for places in self.places())

    def places(self) -> Iterator[Tensor]:
        """Where the examples of each batch stand, (size,) or (trials, size), on their device."""
        drawn: dict[int, Tensor] = {}
        for own in {*self.seeds}:
            generator = torch.Generator().manual_seed(own * 1_000_003 + self.epoch)
            drawn[own] = torch.randperm(self.rows, generator=generator)
        order = torch.stack([drawn[own] for own in self.seeds])
        order = (order if self.trials else order[0]).to(self.y.device, non_blocking=True)
        return iter(order.split(self.size, -1)[: len(self)])

    def gathered(self, places: Tensor) -> Batch:
        trial = torch.arange(len(places), device=places.device)[:, None] if self.trials else None
        if isinstance(self.x, Tensor):  # a walk over a tree would cost more than the batch
            x: Inputs = _taken(self.x, places, trial)
        else:
            x = tree_map_only(Tensor, lambda tensor: _taken(tensor, places, trial), self.x)
        x = x if self.transform is None else self.transform(x)
        return x, _taken(self.y, places, trial)


def _taken(values: Tensor, places: Tensor, trial: Tensor | None) -> Tensor:
    """Some of the examples, in the memory format in which they lie."""
    if trial is not None:
        return values[trial, places]
    if values.dim() != 4 or values.is_contiguous():
        return values.index_select(0, places)
    return values.permute(0, 2, 3, 1).index_select(0, places).permute(0, 3, 1, 2)


def pair(batch: Any) -> Batch:
    """Inputs and targets of a batch that is a pair of them: the default of `fit(unpack=…)`."""
    if isinstance(batch, Mapping) or len(batch) != 2:
        told = f"a pair of inputs and targets, got a {type(batch).__name__} of {len(batch)}"
        raise ValueError(f'a batch must be {told}: give unpack=, such as labelled("labels")')
    x, y = batch
    return x, y


def labelled(label: str) -> Unpack:
    """Make an `unpack` for `fit` for batches that are mappings with the targets under this key.

    Examples:
        >>> labelled("y")({"ids": torch.zeros(2), "y": torch.ones(2)})
        ({'ids': tensor([0., 0.])}, tensor([1., 1.]))
    """

    def unpack(batch: Any) -> Batch:
        if not isinstance(batch, Mapping) or label not in batch:
            known = list(batch) if isinstance(batch, Mapping) else type(batch).__name__
            told = f"the key {label!r} for its targets, got {known}"
            raise ValueError(f"a batch must have {told}: name the one that holds them")
        return {key: value for key, value in batch.items() if key != label}, batch[label]

    return unpack


def examples(batches: Iterable[Any]) -> int | None:
    """How many examples an epoch has, where the batches say so."""
    if isinstance(batches, Batches):
        return batches.rows
    data = getattr(batches, "dataset", None)
    return len(data) if isinstance(data, Sized) else None
