"""A small network for small images."""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Conv:
    """Two convolutions of 3×3 with a pooling after each, and one linear layer.

    Args:
        shape: of an image: channels, height, width.
        outputs: numbers out.
        channels: of the two convolutions.

    Examples:
        >>> import torch
        >>> Conv(shape=(1, 8, 8), outputs=10).build()(torch.zeros(5, 1, 8, 8)).shape
        torch.Size([5, 10])
    """

    shape: tuple[int, int, int]
    outputs: int
    channels: tuple[int, int] = (16, 32)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "channels", tuple(self.channels))
        if len(self.shape) != 3 or min(self.shape[1:]) < 4:
            raise ValueError(f"shape must be channels and at least 4×4 pixels, got {self.shape}")

    def build(self) -> nn.Sequential:
        """The network, its weights drawn at random."""
        depth, height, width = self.shape
        first, second = self.channels
        return nn.Sequential(
            nn.Conv2d(depth, first, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * (height // 4) * (width // 4), self.outputs),
        )
