"""The way back: an ordinary module, with the posterior mean or a draw of the weights in it."""

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from bayesdiv.model.bayesian import Bayesian, Whole, bayesian_modules
from bayesdiv.model.placeholders import filled


def plain(model: nn.Module, weights: Tensor | Sequence[Tensor] | None = None) -> nn.Module:
    """Return an ordinary module with the posterior mean, or the given weights, as its weights.

    It has the class, the parameters and the state dict that the module had before `bayesianize`,
    tied weights tied, and shares no memory with `model`. So `save_pretrained`, `merge_and_unload`,
    `generate`, `torch.export` and quantisation tools work on it. Inside a larger model every
    Bayesian module is replaced by its ordinary one.

    Args:
        model: a `Bayesian`, or a module with some inside.
        weights: one draw, (weights,) or (1, weights), one tensor per Bayesian module, as
            `draw_weights(model, 1)` gives it; None is the mean.

    Examples:
        >>> import torch, bayesdiv as bd
        >>> source = nn.Linear(3, 2)
        >>> net = bd.bayesianize(source, bd.FanIn())
        >>> mean, draw = plain(net), plain(net, bd.draw_weights(net, 1))
        >>> mean
        Linear(in_features=3, out_features=2, bias=True)
        >>> torch.equal(mean.weight, source.weight), torch.equal(draw.weight, source.weight)
        (True, False)
    """
    modules = bayesian_modules(model)
    given = [weights] if isinstance(weights, Tensor) else weights
    drawn = [module.loc for module in modules] if given is None else given
    if len(drawn) != len(modules):
        raise ValueError(
            f"weights must be one tensor per Bayesian module, {len(modules)}, got {len(drawn)}"
        )
    own = {id(module): _tensors(module, one) for module, one in zip(modules, drawn, strict=True)}
    memo: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, Whole) and "module" in module._modules:
            parts = bayesian_modules(module)
            every = {n: t for part in parts for n, t in own[id(part)].items()}
            memo[id(module)] = filled(module.module, every)
    return copy.deepcopy(model, memo)


def _tensors(module: Bayesian, weights: Tensor) -> dict[str, Tensor]:
    size = module.layout.size
    if weights.shape not in [(size,), (1, size)]:
        raise ValueError(
            f"weights must be one draw of {size} weights, got shape {tuple(weights.shape)}: of a "
            "stack or of several draws, give one"
        )
    return module.layout.unflatten(weights.reshape(-1))
