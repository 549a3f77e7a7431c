"""What other rooms ask about devices, compilers and autocast, and no more."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from bayesdiv.divergence.base import compiling as compiling
from bayesdiv.divergence.base import on_gpu as on_gpu

# What `torch.vmap` takes apart before autocast sees it: a product and a bias that is added in the
# bias's dtype; attention that is not cast at all.
_LAYERS = """linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
scaled_dot_product_attention multi_head_attention_forward"""
_TAKEN_APART = {torch.addmm, torch.baddbmm, *(getattr(F, name) for name in _LAYERS.split())}


def traced() -> bool:
    """Whether a compiler or a transform such as `torch.vmap` runs what is called."""
    return compiling() or torch._C._are_functorch_transforms_active()


def on_cpu(place: Tensor | torch.device) -> bool:
    """Whether a look at values costs nothing, and caches and threads count."""
    device = place.device if isinstance(place, Tensor) else place
    return device.type == "cpu"


def seen_to_fail(value: Tensor) -> bool:
    """Whether a number is not finite, where a look does not halt the device: on a CPU."""
    return on_cpu(value) and not math.isfinite(value.item())


def recording(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being recorded, into which nothing but the run itself belongs."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


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
            lower = lambda x: x.to(self.dtype) if x.dtype == torch.float32 else x  # noqa: E731
            args, kwargs = tree_map_only(Tensor, lower, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))
