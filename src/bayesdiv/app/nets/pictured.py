"""Networks for pictures: a small one, and those that prepare pictures of any origin."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdiv.app.data.splits import DataError
from bayesdiv.app.nets.resnet import Norm, ResNet, imagenet_stem, resnet20, small_stem
from bayesdiv.training.augmentation import Crop, Flip, Prepare

NETS = ("conv", "resnet18", "resnet20", "resnet20_frn")
LAST = "fc."
_SMALL = 64  # pixels up to which the first layers keep their size


@dataclass(frozen=True)
class Conv:
    """Two convolutions of 3×3 with a pooling after each, and one linear layer.

    Examples:
        >>> Conv(shape=(1, 8, 8), outputs=10).build()(torch.zeros(5, 1, 8, 8)).shape
        torch.Size([5, 10])
    """

    shape: tuple[int, int, int]  # channels, height, width
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


@dataclass(frozen=True)
class Pictured:
    """A network by its name, with the mean and the spread of the pictures that it learned from."""

    net: str  # resnet18 and resnet20 have batch norm, resnet20_frn has filter response norm
    shape: tuple[int, int, int]  # channels, height, width
    outputs: int
    mean: tuple[float, ...]  # of each channel, from 0 to 1
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.net not in NETS:
            raise ValueError(f"net must be one of {', '.join(NETS)}, got {self.net}")

    @property
    def residual(self) -> bool:
        """Whether it learns as `ImageRecipe` says."""
        return self.net != "conv"

    @classmethod
    def of(cls, net: str, x: Tensor, outputs: int) -> "Pictured":
        """For training pictures, bytes or numbers from 0 to 1."""
        some = x[:: max(1, len(x) // 5000)].to(torch.float64)
        some = some if x.is_floating_point() else some / 255
        spread, mean = torch.std_mean(some, (0, 2, 3))
        numbers = (tuple(one.round(decimals=6).tolist()) for one in (mean, spread.clamp(min=1e-3)))
        return cls(net, (x.shape[1], x.shape[2], x.shape[3]), outputs, *numbers)

    def build(self) -> nn.Sequential:
        """The network, its weights drawn at random."""
        if self.net == "conv":
            return Conv(self.shape, self.outputs).build()
        stem = small_stem if self.shape[1] <= _SMALL else imagenet_stem
        norm = Norm.FILTER_RESPONSE if self.net == "resnet20_frn" else Norm.BATCH
        recipe = resnet20(self.outputs, norm)
        if self.net == "resnet18":
            recipe = ResNet(self.outputs, stem, norm=norm)
        network = recipe.build()
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def prepare(self) -> Prepare:
        """What pictures go through first; in training they are shifted and mirrored."""
        changes = (Crop(self.shape[1] // 8), Flip()) if self.residual else ()
        return Prepare(list(self.mean), list(self.scale), changes)


def begin_with(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put the weights of another network of this kind in place; the last layer may be another's."""
    own = network.state_dict()
    known = {name: weights[name] for name in own if name in weights}
    fits = {name for name, value in known.items() if value.shape == own[name].shape}
    wrong = [name for name in own if name not in fits and not name.startswith(LAST)]
    if wrong:
        got = tuple(known[wrong[0]].shape) if wrong[0] in known else "none"
        raise DataError(
            f"pretrained weights must be those of this --net: {wrong[0]} must have the shape "
            f"{tuple(own[wrong[0]].shape)}, got {got}"
        )
    network.load_state_dict({name: known[name] for name in fits}, strict=False)
