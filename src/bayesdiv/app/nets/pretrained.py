"""Pretrained weights in torchvision's names, for residual networks without batch norm."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from bayesdiv.app.nets.resnet import ResNet

_NORM = "running_mean", "running_var", "weight", "bias"
_EPSILON = 1e-5  # what torchvision's batch norm adds to a variance


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
        _check_there(weights, keys, " to be folded")
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
        >>> from bayesdiv.app.nets.resnet import small_stem
        >>> first = ResNet(classes=100, stem=small_stem, width=4).build()
        >>> second = batch_norm_dropped(ResNet(10, small_stem, width=4), first.state_dict())
        >>> torch.equal(second.conv1.weight, first.conv1.weight), second.fc.out_features
        (True, 10)
    """
    network = recipe.build()
    _check_known(network, weights)
    _check_there(weights, [f"{name}.weight" for name in _convolutions(network)])
    own = network.state_dict().keys()
    return _loaded(network, {key: weights[key] for key in weights if key in own})


def _check_there(weights: Mapping[str, Tensor], keys: Iterable[str], why: str = "") -> None:
    for key in keys:
        if key not in weights:
            raise ValueError(f"weights must hold {key}{why}, got none")


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
