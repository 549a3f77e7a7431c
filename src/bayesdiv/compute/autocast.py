"""Autocast under `torch.vmap`, which takes some operations apart before autocast sees them."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

# A product and a bias that is added apart, in the bias's dtype; attention that is not cast at all.
_TAKEN_APART = frozenset(
    {
        F.linear,
        F.bilinear,
        F.conv1d,
        F.conv2d,
        F.conv3d,
        F.conv_transpose1d,
        F.conv_transpose2d,
        F.conv_transpose3d,
        F.scaled_dot_product_attention,
        F.multi_head_attention_forward,
        torch.addmm,
        torch.baddbmm,
    }
)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype that autocast gives to products on this device, or None where it is off."""
    on = torch.is_autocast_enabled(device.type)
    return torch.get_autocast_dtype(device.type) if on else None


def autocast_under_vmap(device: torch.device) -> AbstractContextManager[object]:
    """For the time of the context, autocast reaches what `torch.vmap` takes apart too."""
    dtype = autocast_dtype(device)
    return nullcontext() if dtype is None else _Lowered(dtype)


class _Lowered(TorchFunctionMode):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _TAKEN_APART:
            args, kwargs = tree_map_only(Tensor, self._lowered, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _lowered(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.dtype) if tensor.dtype == torch.float32 else tensor
