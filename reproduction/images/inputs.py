"""How a machine goes about a run, and images as the network takes them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.training.steps import Eager, Recorded, Step
from reproduction.images.protocol import Protocol

ROOM = 1 << 32
"""Bytes of images that are resized once and kept; more are resized in each step."""
_AT_A_TIME = 2000  # images that are resized together


@dataclass(frozen=True)
class Execution:
    """How a machine goes about a run: speed and rounding, nothing else.

    Args:
        dtype: of images, weights and activations inside the network; loc, rho, loss and divergence
            are float32 whatever it is.
        images: memory format of images and filters.
        stepping: makes the step, `Recorded` or `Eager`.
    """

    dtype: torch.dtype = torch.float32
    images: torch.memory_format = torch.contiguous_format
    stepping: Callable[[], Step] = Eager

    @classmethod
    def of(cls, device: torch.device) -> "Execution":
        """What is fastest on this device."""
        if device.type != "cuda":
            return cls()
        return cls(torch.bfloat16, torch.channels_last, Recorded)

    def told(self) -> dict[str, str]:
        """As a result file says it."""
        last = self.images is torch.channels_last
        return {
            "dtype": str(self.dtype),
            "kernels": "channels_last" if last else "as_stored",
            "images": str(self.images),
            "stepping": getattr(self.stepping, "__name__", str(self.stepping)),
        }


def seen(x: Tensor, pixels: int, execution: Execution) -> Tensor:
    """Stored images as the network takes them.

    Pixels from 0 to 255 are complemented, (255 - p)/255, as the paper does for histopathology;
    floats are those of CIFAR with their noise. Other sizes are bilinear, without antialiasing.
    """
    grey = x if x.is_floating_point() else 255 - x
    x = grey.to(execution.dtype) / (1 if x.is_floating_point() else 255)
    if x.shape[-1] != pixels:
        x = interpolate(x, size=(pixels, pixels), mode="bilinear", align_corners=False)
    return x.contiguous(memory_format=execution.images)


def shown(data: Splits, protocol: Protocol, execution: Execution) -> Splits:
    """All images as the network takes them, where they are few enough to be kept; else as stored.

    At 64 pixels resizing would be a tenth of a step; at 224 all images would not leave much room.
    """
    pixels = sum(len(part.x) for part in data.parts) * 3 * protocol.pixels**2
    if pixels * execution.dtype.itemsize > ROOM:
        return data

    def whole(part: Part) -> Part:
        pieces = [seen(piece, protocol.pixels, execution) for piece in part.x.split(_AT_A_TIME)]
        return Part(torch.cat(pieces).contiguous(memory_format=execution.images), part.y)

    return data.mapped(whole)
