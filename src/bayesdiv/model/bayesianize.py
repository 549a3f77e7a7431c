"""From any module to a Bayesian one, and back to an ordinary one."""

import copy
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from bayesdiv.model.bayesian import Bayesian, Group, Grouped, Whole, bayesian_modules
from bayesdiv.model.layout import Layout, Where, unfrozen
from bayesdiv.model.placeholders import emptied, filled
from bayesdiv.model.posteriors.base import PosteriorFor
from bayesdiv.model.posteriors.mean_field import MeanField
from bayesdiv.model.priors import PriorFor, prior_scale

_Chosen = Sequence[tuple[str, nn.Parameter]]


class _Options(TypedDict, total=False):
    posterior: PosteriorFor
    where: Where
    start: float


@overload
def bayesianize(
    module: nn.Module, prior: nn.Module | PriorFor, *, by: None = ..., **options: Unpack[_Options]
) -> Bayesian: ...


@overload
def bayesianize(
    module: nn.Module,
    prior: nn.Module | PriorFor,
    *,
    by: Callable[[str], Hashable],
    **options: Unpack[_Options],
) -> Grouped: ...


def bayesianize(
    module: nn.Module,
    prior: nn.Module | PriorFor,
    *,
    posterior: PosteriorFor = MeanField,
    where: Where = unfrozen,
    start: float = 0.1,
    by: Callable[[str], Hashable] | None = None,
) -> Bayesian | Grouped:
    """Make a module Bayesian; the module itself does not change.

    Its weights, pretrained or not, become the posterior mean, in single precision at least; draws
    of each tensor are rounded to its own dtype. Tied weights, or a module that is used twice, stay
    one set of weights. Frozen weights, those with `requires_grad_(False)`, stay deterministic and
    share memory with those of the module. The padding row of an `nn.Embedding` is random like its
    other rows. Filters of a module that was put `.to(memory_format=torch.channels_last)` keep that
    order in the flat vector, so a step on channels-last inputs copies none.

    Args:
        module: any `nn.Module`.
        prior: a `Prior`, a `ScaleMixture`, any module that returns a distribution, or a function of
            layout and weights that makes one, such as `FanIn()` or `AroundStart()`.
        posterior: made from the mean and the scale of each weight.
        where: which weights are random, by name and parameter; the rest are ordinary parameters.
            Tied weights are random as soon as one of their names is picked. `everything` picks
            frozen weights too.
        start: the posterior's initial scale as a fraction of the prior's. Far below 0.1 the reverse
            KL inside JS-G pulls the means to the prior's at once.
        by: from the name of a weight tensor to its group; None is one posterior for all. Each group
            has its own flat vector, on its own device. The Gaussians of a group of one tensor have
            that tensor's shape, for optimizers that need it, such as Muon. Losses and gradients for
            given draws are those of one vector, to rounding.

    Examples:
        >>> from torch.distributions import Normal
        >>> from bayesdiv import Prior
        >>> net = bayesianize(nn.Linear(8, 1), Prior(Normal, loc=0.0, scale=1.0))
        >>> net(torch.zeros(5, 8)).shape
        torch.Size([5, 1])
        >>> each = bayesianize(nn.Linear(8, 1), Prior(Normal, loc=0.0, scale=1.0), by=str)
        >>> [(name, tuple(group.posterior.loc.shape)) for name, group in each.groups.items()]
        [('weight', (1, 8)), ('bias', (1,))]
    """
    if not start > 0:
        raise ValueError(f"start must be positive, got {start}")
    if bayesian_modules(module):
        raise ValueError(f"module must not be Bayesian already, got {type(module).__name__}")
    if not callable(prior) or isinstance(prior, type):
        raise TypeError(
            f"prior must be a Prior such as Prior(Normal, loc=0.0, scale=1.0), got {prior!r}"
        )
    chosen = _chosen(module, where)
    parts: dict[str, list[tuple[str, nn.Parameter]]] = {}
    home: dict[int, str] = {}  # one with several names belongs to the group of its first
    for name, parameter in chosen:
        group = "" if by is None else str(by(name)).replace(".", "/")
        parts.setdefault(home.setdefault(id(parameter), group), []).append((name, parameter))
    for own in parts.values():
        _check(own)
    bare = emptied(module, [name for name, _ in chosen])
    made = {key: _distributions(own, prior, posterior, start) for key, own in parts.items()}
    if by is None:
        return Bayesian(bare, *made[""])
    for layout, gaussians, _ in made.values():
        if len(layout.entries) == 1 and type(gaussians) is MeanField:
            gaussians.take_shape(layout.entries[0].lying)
    return Grouped(bare, {key: Group(bare, *own) for key, own in made.items()})


def _distributions(
    chosen: _Chosen, prior: nn.Module | PriorFor, posterior: PosteriorFor, start: float
) -> tuple[Layout, nn.Module, nn.Module]:
    layout = Layout.of(chosen)
    loc = layout.flatten({name: parameter.detach() for name, parameter in chosen})
    loc = loc.to(torch.promote_types(loc.dtype, torch.float32))  # half precision cannot be trained
    made = copy.deepcopy(prior) if isinstance(prior, nn.Module) else prior(layout, loc)
    scale = prior_scale(made()).to(loc)
    if scale.dim() and scale.shape[-1] not in (1, loc.shape[-1]):
        raise ValueError(
            f"the prior must have one number for all or one per weight, {loc.shape[-1]}, got "
            f"{scale.shape[-1]}: give a function of layout and weights that makes it"
        )
    scale = start * scale.expand_as(loc)
    # A choice such as `Ensemble` looks at the weight tensors one by one.
    q = posterior.laid_out(layout) if hasattr(posterior, "laid_out") else posterior
    return layout, q(loc, scale), made.to(loc)


def _nothing_random(module: nn.Module) -> str:
    """Why no weight can be random, and what to do."""
    kind = type(module).__name__
    packed = any("quantized" in type(part).__module__ for part in module.modules())
    kinds = {parameter.dtype for parameter in module.parameters()}
    if packed or bool(kinds & {torch.int8, torch.uint8}):
        return (
            f"the weights of {kind} are quantised, which no posterior can move: make the module "
            "Bayesian before it is quantised, or give it adapters and make those Bayesian"
        )
    frozen = not any(parameter.requires_grad for parameter in module.parameters())
    hint = ", all frozen: give where=bayesdiv.model.layout.everything" if frozen else ""
    return f"no weight is random: where picked none of {kind}'s{hint}"


def _check(chosen: _Chosen) -> None:
    """Whether the chosen weights can be one vector with a Gaussian posterior."""
    first, one = chosen[0]
    for name, parameter in chosen:
        if is_lazy(parameter):
            raise ValueError(
                f"a random weight must have a shape, got {name} without one: run the network once "
                "on a batch first"
            )
        if not parameter.is_floating_point():
            kind = "complex" if parameter.is_complex() else "integer"
            raise ValueError(
                f"{kind} weights have no Gaussian posterior, got {name} of {parameter.dtype}: "
                "leave it out by where="
            )
        if parameter.device != one.device:
            raise ValueError(
                f"random weights must be on one device, got {first} on {one.device} and {name} on "
                f"{parameter.device}: give by=, one posterior per device"
            )
        if parameter.is_meta:
            raise ValueError(
                f"a random weight must have values, got {name} on the meta device: load the "
                "module's weights first"
            )


def _chosen(module: nn.Module, where: Where) -> _Chosen:
    """The random weights by name, under every module that holds them, each module once."""
    every = module.named_parameters(remove_duplicate=False)
    picked = {id(parameter) for name, parameter in every if where(name, parameter)}
    if not picked:
        raise ValueError(_nothing_random(module))
    return [
        (name, parameter)
        for path, owner in module.named_modules()
        for name, parameter in owner.named_parameters(path, recurse=False, remove_duplicate=False)
        if id(parameter) in picked
    ]


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
