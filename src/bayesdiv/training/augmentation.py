"""Random changes of training images, (images, channels, height, width), on their own device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

# By tensor operations and torch's generator alone: a recorded step draws again in each replay.
Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Crop:
    """Shift each image by up to `margin` pixels in both directions; what moves in is 0."""

    margin: int = 4

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise ValueError(f"margin must not be negative, got {self.margin}")

    def __call__(self, images: Tensor) -> Tensor:
        count, _, height, width = images.shape
        wide = pad(images, [self.margin] * 4)
        first = torch.randint(2 * self.margin + 1, (2, count, 1), device=images.device)
        each, down, across = (torch.arange(n, device=images.device) for n in (count, height, width))
        rows, columns = first[0] + down, first[1] + across  # (images, height), (images, width)
        # The channels come last out of the indexing: the result is in channels_last.
        found = wide[each[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return found.permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Flip:
    """Mirror each image with probability ½, left for right."""

    def __call__(self, images: Tensor) -> Tensor:
        mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
        return torch.where(mirrored, images.flip(-1), images)


@dataclass(frozen=True)
class Cutout:
    """Set a square of each image to 0, its centre anywhere (DeVries and Taylor 2017)."""

    side: int = 8

    def __post_init__(self) -> None:
        if self.side < 1:
            raise ValueError(f"side must be at least 1 pixel, got {self.side}")

    def __call__(self, images: Tensor) -> Tensor:
        count, _, *sizes = images.shape
        inside = []
        for size in sizes:
            centre = torch.randint(size, (count, 1), device=images.device)
            away = torch.arange(size, device=images.device) - (centre - self.side // 2)
            inside.append((away >= 0) & (away < self.side))  # (images, size)
        return images.masked_fill(inside[0][:, None, :, None] & inside[1][:, None, None, :], 0)


class Prepare(nn.Module):
    """What images go through before a network: numbers around 0, and in training random changes.

    Put it in front: `nn.Sequential(Prepare(…), network)`. Mean and scale are those of each channel,
    of images with values from 0 to 1.

    Examples:
        >>> prepare = Prepare([0.5], [0.5], changes=[Crop(4), Flip()])
        >>> prepare.eval()(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8))[0, 0, 0]
        tensor([1., 1.])
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        mean: list[float],
        scale: list[float],
        changes: Sequence[Change] = (),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if not scale or not all(number > 0 for number in scale):
            raise ValueError(f"scale must be positive in every channel, got {scale}")
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("scale", torch.tensor(scale)[:, None, None], persistent=False)
        self.changes = tuple(changes)
        self.dtype = dtype

    def forward(self, images: Tensor) -> Tensor:
        """Images of bytes, 0 to 255, or of numbers, 0 to 1, as the network wants them."""
        if not images.is_floating_point():
            images = images.to(self.mean.dtype) / 255
        images = ((images - self.mean) / self.scale).to(self.dtype)
        for change in self.changes if self.training else ():
            images = change(images)
        return images.contiguous(memory_format=torch.channels_last)
