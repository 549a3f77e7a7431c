"""What stands in a module between calls, where its random weights were."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

_ADVICE = (
    "this weight is random and is there only while the Bayesian module runs: take bd.plain(net), "
    "an ordinary module"
)


class Placeholder:
    """Stands where a random weight is put in each call; to use it in between raises an error."""

    # It is no tensor, since compilers would trace it: an attribute of its module, of no kind that a
    # module moves or saves.

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    @property
    def data(self) -> "Placeholder":
        return self  # what layers that write their own state ask for, from which it is taken out

    def detach(self) -> "Placeholder":
        return self

    @classmethod
    def __torch_function__(cls, func: object, *rest: object) -> None:
        raise AttributeError(_ADVICE)

    def __getattr__(self, name: str) -> None:
        raise AttributeError(name if name.startswith("__") else _ADVICE)

    def _refused(self, *_: object) -> None:
        raise AttributeError(_ADVICE)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refused
    __matmul__ = __rmatmul__ = __neg__ = __getitem__ = __len__ = _refused


def place(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The submodule that holds a tensor, and the tensor's name in it."""
    path, _, last = name.rpartition(".")
    return module.get_submodule(path), last


def dtype_of(owner: nn.Module, name: str) -> torch.dtype:
    """Of a tensor of a module, or of its placeholder."""
    return cast(torch.dtype, getattr(owner, name).dtype)


def emptied(module: nn.Module, names: Sequence[str]) -> nn.Module:
    """A copy with placeholders where the random weights were, to be filled in each call."""
    # Frozen weights are shared and not copied; buffers are copied, since calls may write to them.
    memo: dict[int, Any] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name in names:
            memo[id(parameter)] = parameter  # taken out below
        elif not parameter.requires_grad and type(parameter) is nn.Parameter:
            memo.setdefault(id(parameter), nn.Parameter(parameter.data, requires_grad=False))
    bare = copy.deepcopy(module, memo)
    for name in names:
        owner, last = place(bare, name)
        own = owner._parameters.pop(last)
        owner.__dict__[last] = Placeholder(cast(Tensor, own).dtype)
    bare.register_state_dict_pre_hook(_refuse_half_a_state)
    return bare


def filled(bare: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A copy of such a module with parameters in the places; names of one tensor share one."""
    # What a hook computed from weights, as the old spectral norm does, cannot be copied otherwise.
    held = (value for owner in bare.modules() for value in vars(owner).values())
    results = {id(v): v.detach() for v in held if isinstance(v, Tensor) and not v.is_leaf}
    module = copy.deepcopy(bare, dict[int, Any](results))
    hooks = module._state_dict_pre_hooks
    for key in [key for key, hook in hooks.items() if hook is _refuse_half_a_state]:
        del hooks[key]
    made: dict[int, nn.Parameter] = {}
    for name, tensor in weights.items():
        owner, last = place(module, name)
        own = tensor.detach().to(dtype_of(owner, last), copy=True)
        del owner.__dict__[last]
        owner.register_parameter(last, made.setdefault(id(tensor), nn.Parameter(own)))
    return module


def _refuse_half_a_state(module: nn.Module, prefix: str, keep_vars: bool) -> None:
    if not prefix:
        raise RuntimeError(
            "the state of net.module lacks the random weights: take bd.plain(net).state_dict(), or "
            "net.state_dict() for the posterior"
        )
