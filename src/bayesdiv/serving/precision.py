"""How many bits of each kept draw go into a file."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bayesdiv.draws import Weights
from bayesdiv.model.bayesian import bayesian_modules


class Precision(Protocol):
    """A way to store one weight tensor of one draw."""

    def packed(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """What is stored."""

    def unpacked(self, packed: tuple[Tensor, ...]) -> Tensor:
        """The tensor again, up to rounding, by operations of the graph."""


@dataclass(frozen=True)
class Rounded:
    """Weights in another dtype, such as bfloat16 or float16: half the file.

    The graph computes in float32.

    Examples:
        >>> half = Rounded(torch.bfloat16)
        >>> half.unpacked(half.packed(torch.tensor([1.001])))
        tensor([1.])
    """

    dtype: torch.dtype = torch.float32

    def packed(self, tensor: Tensor) -> tuple[Tensor, ...]:
        return (tensor.to(self.dtype),)

    def unpacked(self, packed: tuple[Tensor, ...]) -> Tensor:
        return packed[0].float()


@dataclass(frozen=True)
class Int8:
    """Weights in 8 bits, with one scale per output channel: a quarter of the file.

        w ≈ scale_c · k,   k = round(w / scale_c),   scale_c = max |w_c| / 127

    Vectors, such as biases, stay in single precision.

    Examples:
        >>> eight = Int8()
        >>> eight.unpacked(eight.packed(torch.tensor([[127.0, 1.4], [0.0, 0.0]])))
        tensor([[127.,   1.],
                [  0.,   0.]])
    """

    def packed(self, tensor: Tensor) -> tuple[Tensor, ...]:
        tensor = tensor.float()
        if tensor.dim() < 2:
            return (tensor,)
        scale = tensor.abs().amax(tuple(range(1, tensor.dim())), keepdim=True) / 127
        scale = scale.where(scale > 0, 1.0)
        return (tensor / scale).round().to(torch.int8), scale

    def unpacked(self, packed: tuple[Tensor, ...]) -> Tensor:
        return packed[0] if len(packed) == 1 else packed[0].float() * packed[1]


def rounded(net: torch.nn.Module, weights: Weights, precision: Precision) -> Weights:
    """The draws as a file of this precision gives them back, for `predict_at`."""
    return tuple(
        torch.stack([
            module.layout.flatten({
                name: precision.unpacked(precision.packed(tensor))
                for name, tensor in module.layout.unflatten(draw).items()
            })
            for draw in drawn
        ])
        for module, drawn in zip(bayesian_modules(net), weights, strict=True)
    )  # fmt: skip
