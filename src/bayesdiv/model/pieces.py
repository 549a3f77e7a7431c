"""A vector in pieces whose gradients are written where they belong, instead of put together later.

The backward pass of `Tensor.split` holds the gradients of all pieces and then their concatenation:
twice the vector. Here each goes straight into the one vector that is passed on.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from bayesdiv.compute.devices import traced

# Below, one concatenation of all gradients is faster than a copy of each.
LARGE = 1 << 24


def pieces(vector: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The vector cut into pieces of these sizes."""
    if vector.numel() < LARGE or not vector.requires_grad or traced():
        return cast(tuple[Tensor, ...], vector.split(list(sizes)))
    gradient = _Gradient(vector)
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return tuple(
        cast(Tensor, _Piece.apply(vector, end - size, end, gradient))  # type: ignore[no-untyped-call]
        for size, end in zip(sizes, ends, strict=True)
    )


class _Gradient:
    """The gradient of a vector while a backward pass fills it in."""

    def __init__(self, vector: Tensor) -> None:
        self.whole: Tensor | None = None
        vector.register_hook(self._passed_on)

    def _passed_on(self, _: Tensor) -> None:
        self.whole = None


class _Piece(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vector: Tensor, start: int, end: int, gradient: _Gradient) -> Tensor:
        ctx.at, ctx.size, ctx.gradient = slice(start, end), len(vector), gradient
        return vector[start:end]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None]:
        first = ctx.gradient.whole is None
        if first:
            ctx.gradient.whole = grad.new_zeros(ctx.size)
        whole = ctx.gradient.whole
        whole[ctx.at] = grad
        # Handed over once; what the others write is in it before it is passed on.
        return whole if first else None, None, None, None
