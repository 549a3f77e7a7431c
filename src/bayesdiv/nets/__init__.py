"""Networks that a run can be restored from: each a recipe, a frozen dataclass with `build`."""

from bayesdiv.nets.conv import Conv
from bayesdiv.nets.mlp import MLP
from bayesdiv.nets.resnet import (
    ResNet,
    Stem,
    batch_norm_dropped,
    batch_norm_folded,
    imagenet_stem,
    read_weights,
    small_stem,
)

__all__ = [
    "MLP",
    "Conv",
    "ResNet",
    "Stem",
    "batch_norm_dropped",
    "batch_norm_folded",
    "imagenet_stem",
    "read_weights",
    "small_stem",
]
