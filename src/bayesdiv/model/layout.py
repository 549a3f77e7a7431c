"""Names and shapes of weights on one side, one flat vector on the other."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor, nn

from bayesdiv.compute.devices import traced

Where = Callable[[str, nn.Parameter], bool]
# Below, one concatenation of all gradients is faster than a copy of each.
LARGE = 1 << 24


def everything(name: str, parameter: nn.Parameter) -> bool:
    """Picks all weights of a module, also those that are frozen."""
    return True


def unfrozen(name: str, parameter: nn.Parameter) -> bool:
    """Picks the weights that are to be trained: the default of `where`."""
    return parameter.requires_grad


@dataclass(frozen=True)
class Entry:
    """One weight tensor: all the names it goes by in the module, and its shape."""

    names: tuple[str, ...]
    shape: torch.Size
    # Of the axes in the flat vector; empty is that of the shape. A filter with channels last keeps
    # its memory order, (out, h, w, in), and is read from the flat vector without a copy.
    order: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return self.shape.numel()

    def flat(self, tensor: Tensor) -> Tensor:
        """The tensor, expanded to the shape, as a piece of the flat vector."""
        whole = tensor.expand(self.shape)
        return (whole.permute(self.order) if self.order else whole).reshape(-1)

    def shaped(self, piece: Tensor) -> Tensor:
        """A piece of the flat vector as the tensor, or pieces (…, weights) as tensors."""
        if len(self.shape) == 1:  # as it is: a view takes one per cent of a small step
            return piece
        tensor = piece.reshape(piece.shape[:-1] + self.lying)
        return tensor.movedim(-1, piece.dim()) if self.order else tensor

    @property
    def lying(self) -> torch.Size:
        """The shape as it lies in the flat vector."""
        return torch.Size(self.shape[axis] for axis in self.order) if self.order else self.shape

    @property
    def fan_in(self) -> int:
        """Inputs of one output: the product of all axes but the first; 1 for a vector."""
        return max(1, math.prod(self.shape[1:]))


@dataclass(frozen=True)
class Layout:
    """Where each weight tensor stands in one flat vector; tied weights stand there once."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, parameters: Iterable[tuple[str, Tensor]]) -> "Layout":
        """The layout of named tensors; names of the same tensor are grouped."""
        names: dict[Tensor, list[str]] = {}  # a tensor is equal to itself alone
        for name, parameter in parameters:
            names.setdefault(parameter, []).append(name)
        return cls(tuple(Entry(tuple(own), one.shape, _order(one)) for one, own in names.items()))

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    @property
    def names(self) -> list[str]:
        return [name for entry in self.entries for name in entry.names]

    @property
    def sizes(self) -> list[int]:
        return [entry.size for entry in self.entries]

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """One vector out of tensors by name, each expanded to its weight's shape."""
        return torch.cat([entry.flat(tensors[entry.names[0]]) for entry in self.entries])

    def repeated(self, values: Tensor) -> Tensor:
        """A number per tensor, (…, tensors), for each of its weights, (…, weights)."""
        # Not `repeat_interleave`, which takes eighteen times as long on a CPU.
        pairs = zip(values.split(1, -1), self.sizes, strict=True)
        return torch.cat([value.expand(*value.shape[:-1], size) for value, size in pairs], -1)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Tensors by every name out of one vector, or out of several, (…, weights)."""
        # One split and not a slice each, so that the backward pass is a single concatenation.
        return self.named(vector.split(self.sizes, -1))

    def named(self, pieces: Sequence[Tensor]) -> dict[str, Tensor]:
        """Tensors by every name out of the pieces of a vector."""
        pairs = zip(self.entries, pieces, strict=True)
        shaped = ((entry.names, entry.shaped(piece)) for entry, piece in pairs)
        return {name: tensor for names, tensor in shaped for name in names}


def _order(tensor: Tensor) -> tuple[int, ...]:
    """The order of the axes in memory where channels come last, else nothing."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.dim() not in formats or tensor.is_contiguous():
        return ()
    last = tensor.is_contiguous(memory_format=formats[tensor.dim()])
    return (0, *range(2, tensor.dim()), 1) if last else ()


def pieces(vector: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The vector cut into pieces of these sizes."""
    if vector.numel() < LARGE or not vector.requires_grad or traced():
        return cast(tuple[Tensor, ...], vector.split(list(sizes)))
    # The backward pass of `Tensor.split` holds the gradients of all pieces and their concatenation,
    # twice the vector: here each goes straight into the one vector that is passed on.
    whole: list[Tensor] = []
    vector.register_hook(lambda _: whole.clear())
    places = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
    return tuple(_Piece.apply(vector, place, whole) for place in places)  # type: ignore[no-untyped-call]


class _Piece(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vector: Tensor, place: slice, whole: list[Tensor]) -> Tensor:
        ctx.place, ctx.size, ctx.whole = place, len(vector), whole
        return vector[place]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        first = not ctx.whole
        if first:
            ctx.whole.append(grad.new_zeros(ctx.size))
        ctx.whole[0][ctx.place] = grad
        # Handed over once; what the others write is in it before it is passed on.
        return ctx.whole[0] if first else None, None, None


_ADVICE = "a random weight is there only during a call: take bd.plain(net), an ordinary module"


class Placeholder:
    """Stands where a random weight is put in each call; to use it in between raises an error."""

    # It is no tensor, since compilers would trace it: an attribute of its module, of no kind that a
    # module moves or saves.

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def detach(self) -> "Placeholder":
        return self  # what layers that write their own state ask for, from which it is taken out

    data = property(detach)

    def __getattr__(self, name: str) -> None:
        raise AttributeError(name if name.startswith("__") else _ADVICE)

    @classmethod
    def __torch_function__(cls, *_: object) -> None:
        raise AttributeError(_ADVICE)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __torch_function__
    __matmul__ = __rmatmul__ = __neg__ = __getitem__ = __len__ = __torch_function__


def place(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The submodule that holds a tensor, and the tensor's name in it."""
    path, _, last = name.rpartition(".")
    return module.get_submodule(path), last
