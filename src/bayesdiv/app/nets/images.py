"""Networks for images: residual ones, with normalisation or as in the paper, and a small one."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain, pairwise

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from bayesdiv.app.data.splits import ensure
from bayesdiv.prediction import evaluating
from bayesdiv.training.augmentation import Crop, Flip, Prepare

NETS = ("conv", "resnet18", "resnet20", "resnet20_frn")
LAST = "fc."
_SMALL = 64  # pixels up to which the first layers keep their size


class FilterResponseNorm(nn.Module):
    """Divide each channel of each image by its root mean square (Singh and Krishnan 2020).

        y = γ x / √(mean over pixels of x² + ε) + β

    It needs no statistics of the batch, so a draw of the weights sees the same network in training
    and in prediction.

    Examples:
        >>> FilterResponseNorm(2)(torch.full((1, 2, 4, 4), 3.0))[0, 0, 0, 0]
        tensor(1.0000, grad_fn=<SelectBackward0>)
    """

    def __init__(self, channels: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """The normalised images, (…, channels, height, width)."""
        # In single precision: the squares of a bfloat16 image lose what the mean is to keep.
        square = x.float().square().mean((-2, -1), keepdim=True)
        factor = self.weight[:, None, None] * (square + self.epsilon).rsqrt()
        return torch.addcmul(self.bias[:, None, None], x, factor).to(x.dtype)


class Norm(Enum):
    """What follows a convolution of so many channels, and the activation that goes with it."""

    NONE = nn.Identity, nn.ReLU
    BATCH = nn.BatchNorm2d, nn.ReLU
    FILTER_RESPONSE = FilterResponseNorm, nn.SiLU  # swish

    def __init__(self, layer: type[nn.Module], activation: type[nn.Module]) -> None:
        self.layer, self.activation = layer, activation


@dataclass(frozen=True)
class Stem:
    """What images go through first: a convolution, and a pooling of 3×3 where it has a stride."""

    kernel: int  # pixels a side of the convolution, odd
    stride: int
    pooling: int  # its stride; 1 for none


imagenet_stem = Stem(kernel=7, stride=2, pooling=2)
"""For images of 224 pixels: a quarter of their side is left (paper: CIFAR-10, histopathology)."""

small_stem = Stem(kernel=3, stride=1, pooling=1)
"""For images of 32 or 64 pixels: one 3×3 convolution that keeps their size (paper: CIFAR-100)."""


@dataclass(frozen=True)
class ResNet:
    """ResNet V1 of two-convolution blocks; ResNet-18 without normalisation by default.

        x ← a(shortcut(x) + norm2(conv2(a(norm1(conv1(x))))))   in each block, a: the activation

    Weights have the names of torchvision's. With two classes and the stem for 224 pixels they are
    11,167,938, of which the output layer has 1026: the paper's network.

    Examples:
        >>> network = ResNet(classes=10, stem=small_stem, width=8).build()
        >>> network(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([5, 10])
    """

    classes: int
    stem: Stem = imagenet_stem
    width: int = 64  # channels after the stem; each group of blocks but the first doubles them
    blocks: tuple[int, ...] = (2, 2, 2, 2)  # in each group
    norm: Norm = Norm.NONE

    def __post_init__(self) -> None:
        if not self.blocks or min(self.classes, self.width, *self.blocks) < 1:
            raise ValueError(f"classes, width and blocks must be at least 1, got {self}")

    def build(self) -> nn.Sequential:
        """The network, its weights drawn at random so that it trains without normalisation too.

        Convolutions start with the variance 2/fan-in of He et al. (2015), which keeps the mean
        square of what passes through them and a relu. Without normalisation the last one of each
        block has 1/(L fan-in) for L blocks, so that a block adds at most a share 1/L to it, and all
        together a factor of e. The output layer has 1/fan-in, biases are 0.
        """
        kernel, stride, pooling = self.stem.kernel, self.stem.stride, self.stem.pooling
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=_conv(3, self.width, kernel, stride),
            bn1=self.norm.layer(self.width),
            relu=self.norm.activation(),
            maxpool=nn.MaxPool2d(3, pooling, padding=1) if pooling > 1 else nn.Identity(),
        )
        before = after = self.width
        for number, count in enumerate(self.blocks, start=1):
            sizes = [(before, after), *[(after, after)] * (count - 1)]
            layers[f"layer{number}"] = nn.Sequential(*(_Block(*each, self.norm) for each in sizes))
            before, after = after, 2 * after
        fc = nn.Linear(before, self.classes)
        network = nn.Sequential(layers | {"avgpool": _Mean(), "fc": fc})
        last = 2.0 if self.norm is not Norm.NONE else 1 / sum(self.blocks)
        for name, layer in network.named_modules():
            if isinstance(layer, nn.Conv2d):
                gain = last if name.endswith("conv2") else 2.0
                nn.init.normal_(layer.weight, std=math.sqrt(gain / layer.weight[0].numel()))
        nn.init.normal_(fc.weight, std=math.sqrt(1 / before))
        nn.init.zeros_(fc.bias)
        return network


def resnet20(classes: int, norm: Norm = Norm.BATCH) -> ResNet:
    """ResNet-20 of He et al. (2016) for images of 32 pixels: three groups of 16, 32, 64 channels.

    With `Norm.FILTER_RESPONSE` it is the network of Izmailov et al. (2021).

    Examples:
        >>> sum(weight.numel() for weight in resnet20(10).build().parameters())
        272474
    """
    return ResNet(classes, small_stem, width=16, blocks=(3, 3, 3), norm=norm)


class _Mean(nn.Module):
    """The mean of each channel: torch's adaptive pooling lacks a rule for vmap in channels_last."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1))


class _Block(nn.Module):
    """Two convolutions of 3×3 around which a shortcut leads."""

    def __init__(self, before: int, after: int, norm: Norm) -> None:
        super().__init__()
        self.stride = after // before  # more channels, fewer pixels
        self.conv1, self.bn1 = _conv(before, after, 3, self.stride), norm.layer(after)
        self.conv2, self.bn2 = _conv(after, after, 3, 1), norm.layer(after)
        self.relu = norm.activation()
        shortcut = [_conv(before, after, 1, 1), norm.layer(after)] if after != before else []
        self.downsample = nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        # The 1×1 convolution's own stride would be the same, but on a CPU its backward pass
        # corrupts memory for few channels in channels_last (oneDNN issue 6035).
        shortcut: Tensor = self.downsample(x[..., :: self.stride, :: self.stride])
        added: Tensor = self.relu(branch + shortcut)
        return added


def _conv(before: int, after: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)


def estimate_statistics(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Estimate the running statistics of every batch norm again, as plain means over batches.

    A Bayesian model draws its weights in each call, so the statistics are those of the average
    over draws. Inside `at_mean` they are those of the mean network: with noisy weights the two
    differ, and a network that is averaged over draws loses accuracy with the wrong ones.

    Examples:
        >>> norm = nn.BatchNorm1d(1)
        >>> estimate_statistics(norm, [torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]])])
        >>> norm.running_mean, norm.running_var
        (tensor([4.]), tensor([2.]))
    """
    rest = iter(batches)
    first = next(rest, None)
    if first is None:  # torch would leave means of 0
        raise ValueError("batches must hold one or more, got none: an iterator serves once")
    with evaluating(model):  # after which each module is in its own mode, not in that of the whole
        update_bn(chain([first], rest), model)


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

    def build(self) -> nn.Sequential:
        """The network, its weights drawn at random."""
        depth, height, width = self.shape
        convs = (nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise([depth, *self.channels]))
        layers = [layer for conv in convs for layer in (conv, nn.ReLU(), nn.MaxPool2d(2))]
        left = self.channels[-1] * (height // 4) * (width // 4)
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(left, self.outputs))


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
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in weights.items()}
    for name in wanted | given:
        fits = name.startswith(LAST) or given.get(name) == wanted.get(name)
        must = f"have the shape {wanted[name]}" if name in wanted else "not be there"
        rule = f"pretrained weights must be those of this --net: {name} must {must}"
        ensure(fits, f"{rule}, got {given.get(name, 'none')}")
    fitting = {name: weights[name] for name in wanted if given.get(name) == wanted[name]}
    network.load_state_dict(fitting, strict=False)
