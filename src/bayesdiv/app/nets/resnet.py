"""Residual networks without batch normalisation, as in the paper's classifications."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

_NORM = "running_mean", "running_var", "weight", "bias"
_EPSILON = 1e-5  # what torchvision's batch norm adds to a variance


@dataclass(frozen=True)
class Stem:
    """What images go through first: a convolution, and a pooling if `pooling` is above 1.

    Args:
        kernel: pixels a side of the convolution, odd.
        stride: of the convolution.
        pooling: stride of a 3×3 max pooling after it; 1 for none.

    Examples:
        >>> Stem(kernel=7, stride=2, pooling=2) == imagenet_stem
        True
    """

    kernel: int
    stride: int
    pooling: int

    def __post_init__(self) -> None:
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"kernel must be an odd number of pixels, got {self.kernel}")
        if min(self.stride, self.pooling) < 1:
            raise ValueError(f"stride and pooling must be at least 1, got {self}")

    def pool(self) -> nn.Module:
        """The pooling, or nothing."""
        return nn.MaxPool2d(3, self.pooling, padding=1) if self.pooling > 1 else nn.Identity()


imagenet_stem = Stem(kernel=7, stride=2, pooling=2)
"""For images of 224 pixels: a quarter of their side is left (paper: CIFAR-10, histopathology)."""

small_stem = Stem(kernel=3, stride=1, pooling=1)
"""For images of 32 or 64 pixels: one 3×3 convolution that keeps their size (paper: CIFAR-100)."""


@dataclass(frozen=True)
class ResNet:
    """ResNet V1 of two-convolution blocks, without batch normalisation; ResNet-18 by default.

        x ← relu(shortcut(x) + conv2(relu(conv1(x))))   in each block

    Weights have the names of torchvision's. With two classes, no bias and the stem for 224 pixels
    they are 11,167,938, of which the output layer has 1026: the paper's network.

    Args:
        classes: numbers out.
        stem: `imagenet_stem` or `small_stem`.
        width: channels after the stem; each group of blocks but the first doubles them.
        blocks: how many in each group.
        bias: whether convolutions have biases, as they need to stand for folded batch norm.

    Examples:
        >>> network = ResNet(classes=10, stem=small_stem, width=8).build()
        >>> network(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([5, 10])
    """

    classes: int
    stem: Stem = imagenet_stem
    width: int = 64
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    bias: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.stem, Mapping):  # as it comes back from JSON
            object.__setattr__(self, "stem", Stem(**self.stem))
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if not self.blocks or min(self.classes, self.width, *self.blocks) < 1:
            raise ValueError(f"classes, width and blocks must be at least 1, got {self}")

    def build(self) -> nn.Sequential:
        """The network, its weights drawn at random so that it trains without normalisation.

        Convolutions begin with the variance 2/fan-in of He et al. (2015), which keeps the mean
        square of what passes through them and a relu. The last one of each block has 1/(L fan-in)
        for L blocks, so that a block adds at most a share 1/L to it, and all together a factor of
        e. The output layer has 1/fan-in, biases are 0.
        """
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=_conv(3, self.width, self.stem.kernel, self.stem.stride, self.bias),
            relu=nn.ReLU(),
            maxpool=self.stem.pool(),
        )
        before = after = self.width
        for number, count in enumerate(self.blocks, start=1):
            layers[f"layer{number}"] = _group(before, after, count, self.bias)
            before, after = after, 2 * after
        layers |= {"avgpool": _Mean(), "fc": nn.Linear(before, self.classes)}
        network = nn.Sequential(layers)
        _draw(network, blocks=sum(self.blocks))
        return network


class _Mean(nn.Module):
    """The mean of each channel: torch's adaptive pooling lacks a rule for vmap in channels_last."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1))


class _Block(nn.Module):
    """Two convolutions of 3×3 around which a shortcut leads."""

    def __init__(self, before: int, after: int, bias: bool) -> None:
        super().__init__()
        stride = after // before  # more channels, fewer pixels
        self.conv1 = _conv(before, after, 3, stride, bias)
        self.conv2 = _conv(after, after, 3, 1, bias)
        self.stride = stride
        self.downsample = nn.Sequential()
        if after != before:
            self.downsample.append(_conv(before, after, 1, 1, bias))

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.conv2(relu(self.conv1(x)))
        # The 1×1 convolution's own stride would be the same, but on a CPU its backward pass
        # corrupts memory for few channels in channels_last (oneDNN issue 6035).
        return relu(branch + self.downsample(x[..., :: self.stride, :: self.stride]))


def _group(before: int, after: int, count: int, bias: bool) -> nn.Sequential:
    rest = (_Block(after, after, bias) for _ in range(count - 1))
    return nn.Sequential(_Block(before, after, bias), *rest)


def _conv(before: int, after: int, kernel: int, stride: int, bias: bool) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=bias)


def _draw(network: nn.Module, blocks: int) -> None:
    """Random weights, see `ResNet.build`."""
    for name, layer in network.named_modules():
        if not isinstance(layer, nn.Conv2d | nn.Linear):
            continue
        if isinstance(layer, nn.Linear):
            gain = 1.0
        else:
            gain = 1 / blocks if name.endswith("conv2") else 2.0
        nn.init.normal_(layer.weight, std=math.sqrt(gain / layer.weight[0].numel()))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Weights by name from a .safetensors file, or from a .pth file of `torch.save`.

    A .pth file is a pickle: it is read with `weights_only=True`, which lets tensors through and
    no code.

    Examples:
        >>> read_weights("resnet18.onnx")
        Traceback (most recent call last):
        ValueError: weights must be a .safetensors, .pth or .pt file, got resnet18.onnx
    """
    path = Path(path)
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise ValueError(f"weights must be a .safetensors, .pth or .pt file, got {path}")
    if not path.is_file():
        raise ValueError(f"weights must be a file that exists, got {path}")
    try:
        found = _read(path)
    except ImportError:
        raise
    except Exception as error:  # of many kinds, with many lines
        line = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} holds no weights that can be read safely: {line}") from None
    if not isinstance(found, Mapping) or not all(isinstance(w, Tensor) for w in found.values()):
        raise ValueError(f"{path} must hold tensors by name, got something else: save a state dict")
    return dict(found)


def _read(path: Path) -> object:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def batch_norm_folded(recipe: ResNet, weights: Mapping[str, Tensor]) -> nn.Sequential:
    """A network that computes what a pretrained one with batch norm does in evaluation mode.

    With the running mean m and variance v, batch norm after a convolution is a convolution again:

        γ (W*x - m)/√(v + ε) + β = (g W)*x + (β - g m),   g = γ/√(v + ε)

    Where the number of classes differs, the output layer is new.

    Args:
        recipe: with `bias=True`, and the stem, width and blocks of the pretrained network.
        weights: in torchvision's names, such as `read_weights` returns.

    Examples:
        >>> batch_norm_folded(ResNet(classes=10), {})
        Traceback (most recent call last):
        ValueError: bias must be True to hold what batch norm adds, got False
    """
    if not recipe.bias:
        raise ValueError("bias must be True to hold what batch norm adds, got False")
    network = recipe.build()
    taken = {key: weights[key] for key in ("fc.weight", "fc.bias") if key in weights}
    for name in _convolutions(network):
        norm = _norm_after(name)
        keys = [f"{name}.weight", *(f"{norm}.{key}" for key in _NORM)]
        missing = [key for key in keys if key not in weights]
        if missing:
            raise ValueError(f"weights must hold {missing[0]} to be folded, got none")
        # In double precision, so that folding itself rounds once.
        kernel, mean, variance, gamma, beta = (weights[key].double() for key in keys)
        factor = gamma / (variance + _EPSILON).sqrt()
        taken[f"{name}.weight"] = kernel * factor.reshape(-1, 1, 1, 1)
        taken[f"{name}.bias"] = beta - factor * mean
    _check_known(network, weights)
    return _loaded(network, taken)


def batch_norm_dropped(recipe: ResNet, weights: Mapping[str, Tensor]) -> nn.Sequential:
    """A network with the convolutions of a pretrained one as they are, and no batch norm.

    This is how the authors started theirs. The network does not compute what the pretrained one
    does: nothing keeps the scale of what passes through it. Weights without batch norm, such as
    those of another network of this module, are taken whole. Where the number of classes differs,
    the output layer is new.

    Args:
        recipe: with the stem, width and blocks of the pretrained network.
        weights: in torchvision's names, such as `read_weights` returns.

    Examples:
        >>> first = ResNet(classes=100, stem=small_stem, width=4).build()
        >>> second = batch_norm_dropped(ResNet(10, small_stem, width=4), first.state_dict())
        >>> torch.equal(second.conv1.weight, first.conv1.weight), second.fc.out_features
        (True, 10)
    """
    network = recipe.build()
    _check_known(network, weights)
    needed = [f"{name}.weight" for name in _convolutions(network)]
    missing = [key for key in needed if key not in weights]
    if missing:
        raise ValueError(f"weights must hold {missing[0]}, got none")
    own = network.state_dict().keys()
    return _loaded(network, {key: weights[key] for key in weights if key in own})


def _convolutions(network: nn.Module) -> list[str]:
    return [name for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)]


def _norm_after(convolution: str) -> str:
    """The name, in torchvision, of the batch norm that follows a convolution."""
    if convolution.endswith("downsample.0"):
        return convolution.removesuffix("0") + "1"
    above, _, last = convolution.rpartition("conv")
    return f"{above}bn{last}"


def _check_known(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """No weight is left over, as those of a deeper network would be."""
    known = set(network.state_dict())
    for norm in map(_norm_after, _convolutions(network)):
        known |= {f"{norm}.{key}" for key in (*_NORM, "num_batches_tracked")}
    unknown = [key for key in weights if key not in known]
    if unknown:
        raise ValueError(f"weights must be of the same network, got {unknown[0]}, which it has not")


def _loaded(network: nn.Sequential, taken: Mapping[str, Tensor]) -> nn.Sequential:
    """The network with these weights; an output layer of other classes stays its own."""
    own = network.state_dict()
    if "fc.weight" in taken and len(taken["fc.weight"]) != len(own["fc.weight"]):
        taken = {key: weight for key, weight in taken.items() if not key.startswith("fc.")}
    for key, weight in taken.items():
        if weight.shape != own[key].shape:
            raise ValueError(
                f"{key} must have the shape {tuple(own[key].shape)}, got {tuple(weight.shape)}: "
                "stem, width and blocks must be those of the weights"
            )
    network.load_state_dict({**own, **taken})
    return network
