"""Networks that a run can be restored from: each a recipe, a frozen dataclass with `build`."""

from bayesdiv.app.nets.conv import Conv
from bayesdiv.app.nets.mlp import MLP
from bayesdiv.app.nets.norms import Norm
from bayesdiv.app.nets.pretrained import batch_norm_dropped, batch_norm_folded, read_weights
from bayesdiv.app.nets.resnet import ResNet, Stem, imagenet_stem, resnet20, small_stem

__all__ = [
    "MLP",
    "Conv",
    "Norm",
    "ResNet",
    "Stem",
    "batch_norm_dropped",
    "batch_norm_folded",
    "imagenet_stem",
    "read_weights",
    "resnet20",
    "small_stem",
]
