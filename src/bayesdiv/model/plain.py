"""The way back: an ordinary module, with the posterior mean or a draw of the weights in it."""

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from bayesdiv.model.bayesian import Whole, bayesian_modules
from bayesdiv.model.placeholders import filled


def plain(model: nn.Module, weights: Tensor | Sequence[Tensor] | None = None) -> nn.Module:
    """Return an ordinary module with the posterior mean, or the given weights, as its weights.

    It has the class, the parameters and the state dict that the module had before `bayesianize`,
    tied weights tied, and shares no memory with `model`. So `save_pretrained`, `merge_and_unload`,
    `generate`, `torch.export` and quantisation tools work on it. Inside a larger model every
    Bayesian module is replaced by its ordinary one.

    Args:
        model: a `Bayesian`, or a module with some inside.
        weights: one draw, such as `draw_weights(model, 1)`; None is the mean.

    Examples:
        >>> import torch, bayesdiv as bd
        >>> source = nn.Linear(3, 2)
        >>> net = bd.bayesianize(source, bd.FanIn())
        >>> torch.equal(plain(net).weight, source.weight)
        True
    """
    modules = bayesian_modules(model)
    given = [weights] if isinstance(weights, Tensor) else weights
    drawn = [module.loc for module in modules] if given is None else given
    if len(drawn) != len(modules):
        raise ValueError(
            f"weights must be one tensor per Bayesian module, {len(modules)}, got {len(drawn)}"
        )
    own: dict[int, dict[str, Tensor]] = {}
    for module, one in zip(modules, drawn, strict=True):
        size = module.layout.size
        if one.shape not in [(size,), (1, size)]:
            raise ValueError(
                f"weights must be one draw of {size} weights, got shape {tuple(one.shape)}: of a "
                "stack or of several draws, give one"
            )
        own[id(module)] = module.layout.unflatten(one.reshape(-1))
    memo: dict[int, Any] = {}
    for whole in model.modules():
        if isinstance(whole, Whole) and "module" in whole._modules:
            parts = bayesian_modules(whole)
            every = {n: t for part in parts for n, t in own[id(part)].items()}
            memo[id(whole)] = filled(whole.module, every)
    return copy.deepcopy(model, memo)
