"""From any module to a Bayesian one, and back to an ordinary one."""

import copy
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, cast, overload

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from bayesdiv.model.bayesian import Bayesian, Group, Grouped, Whole, bayesian_modules
from bayesdiv.model.layout import Layout, Placeholder, Where, place, unfrozen
from bayesdiv.model.posteriors import MeanField, PosteriorFor
from bayesdiv.model.priors import PriorFor, prior_scale

By = Callable[[str], Hashable]  # from the name of a weight tensor to its group
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
    module: nn.Module, prior: nn.Module | PriorFor, *, by: By, **options: Unpack[_Options]
) -> Grouped: ...


def bayesianize(
    module: nn.Module,
    prior: nn.Module | PriorFor,
    *,
    posterior: PosteriorFor = MeanField,
    where: Where = unfrozen,
    start: float = 0.1,
    by: By | None = None,
) -> Bayesian | Grouped:
    """Make a module Bayesian; the module itself does not change.

    Its weights, pretrained or not, become the posterior mean, in single precision at least; draws
    of each tensor are rounded to its own dtype. Tied weights, or a module that is used twice, stay
    one set of weights. Frozen weights, those with `requires_grad_(False)`, stay deterministic and
    share memory with those of the module. The padding row of an `nn.Embedding` is random like its
    other rows. Filters of a module in `torch.channels_last` keep that order in the flat vector.

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
        >>> from bayesdiv import FanIn
        >>> net = bayesianize(nn.Linear(8, 1), FanIn())
        >>> net(torch.zeros(5, 8)).shape
        torch.Size([5, 1])
        >>> each = bayesianize(nn.Linear(8, 1), FanIn(), by=str)
        >>> [(name, tuple(group.posterior.loc.shape)) for name, group in each.groups.items()]
        [('weight', (1, 8)), ('bias', (1,))]
    """
    if not 0 < start < math.inf:
        raise ValueError(f"start must be positive and finite, got {start} of the prior's scale")
    if bayesian_modules(module):
        raise ValueError(f"module must not be Bayesian already, got {type(module).__name__}")
    if not callable(prior) or isinstance(prior, type):
        raise TypeError(f"prior must be a Prior such as FanIn(), got {prior!r}")
    ready = isinstance(posterior, nn.Module)
    if ready or (isinstance(posterior, type) and not issubclass(posterior, nn.Module)):
        raise TypeError(f"posterior must be a choice such as LowRank(), got {posterior!r}")
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError("module must be an ordinary one, got one that is traced or scripted")
    chosen = _chosen(module, where)
    parts: dict[str, list[tuple[str, nn.Parameter]]] = {}
    home: dict[int, str] = {}  # one with several names belongs to the group of its first
    for name, parameter in chosen:
        group = "" if by is None else str(by(name)).replace(".", "/")
        parts.setdefault(home.setdefault(id(parameter), group), []).append((name, parameter))
    for own in parts.values():
        _check(own)
    bare = _emptied(module, [name for name, _ in chosen])
    made = {key: _distributions(own, prior, posterior, start) for key, own in parts.items()}
    if by is None:
        return Bayesian(bare, *made[""])
    for layout, gaussians, _ in made.values():
        shape = layout.entries[0].lying
        if shape and len(layout.entries) == 1 and type(gaussians) is MeanField:
            gaussians.take_shape(shape)
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
        told = f"one number for all or one per weight, {loc.shape[-1]}, got {scale.shape[-1]}"
        raise ValueError(f"the prior must have {told}: give a function of layout and weights")
    scale = start * scale.expand_as(loc)
    # A choice such as `Ensemble` looks at the weight tensors one by one.
    q = posterior.laid_out(layout) if hasattr(posterior, "laid_out") else posterior
    return layout, q(loc, scale), made.to(loc)


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


def _nothing_random(module: nn.Module) -> str:
    """Why no weight can be random, and what to do."""
    kind, weights = type(module).__name__, [*module.parameters()]
    packed = any("quantized" in type(part).__module__ for part in module.modules())
    if not weights and not packed:
        return f"{kind} has no weights that could be random: take a module that has some"
    if packed or any(weight.dtype in (torch.int8, torch.uint8) for weight in weights):
        told = f"the weights of {kind} are quantised, which no posterior can move"
        remedy = "make it Bayesian before it is quantised, or give it adapters and make those so"
        return f"{told}: {remedy}"
    frozen = not any(weight.requires_grad for weight in weights)
    hint = ", all frozen: give where=bayesdiv.model.layout.everything" if frozen else ""
    return f"no weight is random: where picked none of {kind}'s{hint}"


def _check(chosen: _Chosen) -> None:
    """Whether the chosen weights can be one vector with a Gaussian posterior."""
    first, one = chosen[0]
    for name, own in chosen:
        told = None
        if is_lazy(own):
            told = f"must have a shape, got {name} without one: run the network once on a batch"
        elif not own.is_floating_point():
            kind = "complex" if own.is_complex() else "integer"
            given = f"got {name} of {own.dtype}: leave it out by where="
            raise ValueError(f"{kind} weights have no Gaussian posterior, {given}")
        elif own.device != one.device:
            both = f"got {first} on {one.device} and {name} on {own.device}"
            told = f"must be on one device, {both}: give by=, one posterior per device"
        elif own.is_meta:
            told = f"must have values, got {name} on the meta device: load the module's weights"
        if told is not None:
            raise ValueError(f"random weights {told}")


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
        >>> from bayesdiv import FanIn
        >>> source = nn.Linear(3, 2)
        >>> torch.equal(plain(bayesianize(source, FanIn())).weight, source.weight)
        True
    """
    modules = bayesian_modules(model)
    given = [weights] if isinstance(weights, Tensor) else weights
    drawn = [module.loc for module in modules] if given is None else given
    if len(drawn) != len(modules):
        told = f"{len(modules)}, got {len(drawn)}"
        raise ValueError(f"weights must be one tensor per Bayesian module, {told}")
    own: dict[Bayesian, dict[str, Tensor]] = {}
    for module, one in zip(modules, drawn, strict=True):
        size = module.layout.size
        if one.shape not in [(size,), (1, size)]:
            told = f"weights must be one draw of {size} weights, got shape {tuple(one.shape)}"
            such = "weights[:1]" if isinstance(weights, Tensor) else "[w[:1] for w in weights]"
            such = "model.loc[:1]" if weights is None else such  # of a stack
            raise ValueError(f"{told}: pass a single draw, such as {such}")
        own[module] = module.layout.unflatten(one.reshape(-1))
    memo: dict[int, Any] = {}
    for whole in model.modules():
        if isinstance(whole, Whole) and "module" in whole._modules:
            every = {n: t for part in bayesian_modules(whole) for n, t in own[part].items()}
            memo[id(whole)] = _filled(whole.module, every)
    return copy.deepcopy(model, memo)


def _emptied(module: nn.Module, names: Sequence[str]) -> nn.Module:
    """A copy with placeholders where the random weights were, to be filled in each call."""
    # Frozen weights are shared and not copied; buffers are copied, since calls may write to them.
    memo = _computed(module)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name in names:
            memo[id(parameter)] = parameter  # taken out below
        elif not parameter.requires_grad and type(parameter) is nn.Parameter:
            memo.setdefault(id(parameter), nn.Parameter(parameter.data, requires_grad=False))
    bare = copy.deepcopy(module, memo)
    for owner, last in [place(bare, name) for name in names]:
        owner.__dict__[last] = Placeholder(cast(Tensor, owner._parameters.pop(last)).dtype)
    bare.register_state_dict_pre_hook(_refuse_half_a_state)
    return bare


def _computed(module: nn.Module) -> dict[int, Any]:
    """What hooks computed from weights, as the old norms do, by identity: it cannot be copied."""
    # What `torch.vmap` left behind is dead, and computed anew in the next call.
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    every = (value for owner in module.modules() for value in vars(owner).values())
    held = [value for value in every if isinstance(value, Tensor)]
    dead = {id(value): torch.empty(0) for value in held if wrapped(value)}
    return {id(v): v.detach() for v in held if id(v) not in dead and not v.is_leaf} | dead


def _filled(bare: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A copy of such a module with parameters in the places; names of one tensor share one."""
    module = copy.deepcopy(bare, _computed(bare))
    hooks = module._state_dict_pre_hooks
    for key in [key for key, hook in hooks.items() if hook is _refuse_half_a_state]:
        del hooks[key]
    made: dict[int, nn.Parameter] = {}
    for name, tensor in weights.items():
        owner, last = place(module, name)
        own = tensor.detach().to(getattr(owner, last).dtype, copy=True)
        del owner.__dict__[last]
        owner.register_parameter(last, made.setdefault(id(tensor), nn.Parameter(own)))
    return module


def _refuse_half_a_state(module: nn.Module, prefix: str, keep_vars: bool) -> None:
    if not prefix:
        told = "take bd.plain(net).state_dict(), or net.state_dict() for the posterior"
        raise RuntimeError(f"the state of net.module lacks the random weights: {told}")
