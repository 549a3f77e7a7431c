"""EfficientNet-lite0 (Tan and Le 2019; no squeeze, no swish) with ImageNet weights."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

# Expansion, channels, repeats, first stride and size of the filters, stage by stage.
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
MEAN, SCALE = [127 / 255] * 3, [128 / 255] * 3  # what the published weights were trained with
HEAD = "head"


class Conv(nn.Sequential):
    """A convolution whose output has one pixel per `stride` pixels, and its batch norm.

    The weights come from TensorFlow, which pads an even image on the right and below only where
    the stride is 2.
    """

    def __init__(
        self, before: int, after: int, size: int, stride: int = 1, groups: int = 1
    ) -> None:
        conv = nn.Conv2d(before, after, size, stride, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(after, eps=1e-3))
        left, right = (size - stride) // 2, size - stride - (size - stride) // 2
        self.sides = (left, right, left, right)

    def forward(self, x: Tensor) -> Tensor:
        """The normalised convolution."""
        return super().forward(pad(x, self.sides) if any(self.sides) else x)


class Inverted(nn.Module):
    """An inverted bottleneck: widen, filter each channel for itself, narrow."""

    def __init__(self, before: int, after: int, expand: int, size: int, stride: int) -> None:
        super().__init__()
        inner = before * expand
        wide = [Conv(before, inner, 1), nn.ReLU6()] if expand > 1 else []
        each = [Conv(inner, inner, size, stride, groups=inner), nn.ReLU6()]
        self.body = nn.Sequential(*wide, *each, Conv(inner, after, 1))
        self.skips = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        """The bottleneck, added to its input where the shapes agree."""
        return x + self.body(x) if self.skips else self.body(x)


class Mean(nn.Module):
    """The mean of each channel."""

    def forward(self, x: Tensor) -> Tensor:
        """(images, channels)."""
        return x.mean((-2, -1))


class Resize(nn.Module):
    """Images made `size` pixels wide and high."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """The larger images, channels last."""
        large = interpolate(x, (self.size, self.size), mode="bilinear")
        return large.contiguous(memory_format=torch.channels_last)


def lite0(classes: int, *, width: float = 1.0) -> nn.Sequential:
    """The network, its weights drawn at random; `width` below 1 makes a toy of it."""
    first, last = round(32 * width), round(1280 * width)
    layers: list[nn.Module] = [Conv(3, first, 3, 2), nn.ReLU6()]
    before = first
    for expand, channels, repeats, stride, size in STAGES:
        after = round(channels * width)
        for number in range(repeats):
            layers.append(Inverted(before, after, expand, size, stride if number == 0 else 1))
            before = after
    layers += [Conv(before, last, 1), nn.ReLU6(), Mean()]
    network = nn.Sequential(*layers)
    network.add_module(HEAD, nn.Linear(last, classes))
    return network


def renamed(published: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published weights by our names: both lists are in the order of the layers."""
    own = lite0(1000).state_dict()
    if [value.shape for value in own.values()] != [value.shape for value in published.values()]:
        raise SystemExit("the file must hold an EfficientNet-lite0, got other weights")
    return {name: w.contiguous() for name, w in zip(own, published.values(), strict=True)}


@dataclass(frozen=True)
class Lite0:
    """The network with published weights and a last layer of its own, which starts at 0.

    Args:
        classes: outputs.
        weights: a file of `pack.py`; None draws the weights at random.
        width: of all layers, as a share.
    """

    classes: int
    weights: Path | None
    width: float = 1.0

    def build(self) -> nn.Sequential:
        """The network, ready to be fine-tuned."""
        network = lite0(self.classes, width=self.width)
        if self.weights is not None:
            network.load_state_dict(body(_weights(self.weights)), strict=False)
        nn.init.zeros_(network.head.weight)
        nn.init.zeros_(network.head.bias)
        return network


def body(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """All but the last layer, whose classes are others."""
    return {name: own for name, own in weights.items() if not name.startswith(HEAD)}


@cache
def _weights(file: Path) -> dict[str, Tensor]:
    return load_file(file)
