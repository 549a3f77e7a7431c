"""What other rooms ask about devices and compilers, and no more."""

import math

import torch
from torch import Tensor


def compiling() -> bool:
    """Whether a compiler traces: it cannot look at values, nor catch what fails."""
    return torch.compiler.is_compiling()


def traced() -> bool:
    """Whether a compiler or a transform such as `torch.vmap` runs what is called."""
    return compiling() or torch._C._are_functorch_transforms_active()


def has_gpu() -> bool:
    """Whether this machine has a CUDA device."""
    return torch.cuda.is_available()


def on_cpu(place: Tensor | torch.device) -> bool:
    """Whether a look at values costs nothing, and caches and threads count."""
    device = place.device if isinstance(place, Tensor) else place
    return device.type == "cpu"


def on_gpu(value: object) -> bool:
    """Whether this is a tensor on a CUDA device."""
    return isinstance(value, Tensor) and value.is_cuda


def seen_to_fail(value: Tensor) -> bool:
    """Whether a number is not finite, where a look does not halt the device: on a CPU."""
    return on_cpu(value) and not math.isfinite(value.item())


def recording(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being recorded, into which nothing but the run itself belongs."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
