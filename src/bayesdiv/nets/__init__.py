"""Networks that a run can be restored from: each a recipe, a frozen dataclass with `build`."""

from bayesdiv.nets.conv import Conv
from bayesdiv.nets.mlp import MLP

__all__ = ["MLP", "Conv"]
