"""Any module turned Bayesian: its weights become draws of a posterior over one flat vector."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.parameter import is_lazy

from bayesdiv.compute.autocast import autocast_under_vmap
from bayesdiv.compute.devices import traced
from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.model.layout import Layout, Where, unfrozen
from bayesdiv.model.pieces import pieces
from bayesdiv.model.placeholders import Placeholder, converted, dtype_of, emptied, place, without
from bayesdiv.model.posteriors.base import LaidOut, Posterior, PosteriorFor
from bayesdiv.model.posteriors.mean_field import MeanField
from bayesdiv.model.priors import Prior, PriorFor, prior_scale, side_by_side
from bayesdiv.model.recomputing import may_recompute, recomputable


class Bayesian(nn.Module):
    """A module whose random weights are drawn anew from the posterior in each call.

    It is the Bayesian layer (inside any `nn.Sequential`) and the Bayesian network (around a whole
    one) alike. Make it with `bayesianize`.

    Args:
        module: the network, without the random weights.
        layout: names and shapes of the random weights.
        posterior: the distribution that is learned.
        prior: a module that returns the distribution believed before.
    """

    def __init__(
        self, module: nn.Module, layout: Layout, posterior: nn.Module, prior: nn.Module
    ) -> None:
        super().__init__()
        self.module = module
        self.layout = layout
        self.posterior = posterior
        self.prior = prior
        names = [name for entry in layout.entries for name in entry.names]
        owners = [(name, *place(module, name)) for name in names]
        # Where the weights of a call go: their modules, the attribute, the name.
        self._places = [(owner, last, name) for name, owner, last in owners]
        self._empty: list[Placeholder] = [getattr(owner, last) for _, owner, last in owners]
        self.may_recompute = may_recompute(module)
        self._sizes = layout.sizes
        if layout.channels_last:
            # In the state, so that one of another order of the flat vector is refused.
            self.register_buffer("channels_last", torch.ones(()))
        # Tensors in another dtype than the posterior; their placeholders know it.
        full = self._posterior.mean.dtype
        self._rounded = [one for one in owners if dtype_of(one[1], one[2]) != full]
        # Set for the time of a call by `using`; in a tuple, or a parameter would be registered.
        self._given: tuple[Tensor] | None = None
        self.register_state_dict_post_hook(_without_placeholders)  # type: ignore[no-untyped-call]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The network's output for one draw of its weights."""
        (weights,) = self._given or self.draw(1)
        return self.with_weights(weights, *inputs, **named)

    def draw(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        """Draws of the posterior, (samples, …, weights); see `Posterior.rsample`."""
        return self._posterior.rsample(samples, dtype, seed)

    def with_weights(self, weights: Tensor, *inputs: Any, **named: Any) -> Any:
        """The network's output for these weights, (…, weights).

        Leading axes of the weights are trials: the inputs then carry them too. Where autocast is
        on, vectors such as the weights of a norm are taken in the posterior's precision.
        """
        if weights.dim() > 1:
            each = torch.vmap(lambda w, i, n: self.with_weights(w, *i, **n), randomness="different")
            with autocast_under_vmap(weights.device):
                return each(weights, inputs, named)

        def run(tensors: Mapping[str, Tensor]) -> Any:
            try:
                self._put(tensors)
                return self.module(*inputs, **named)
            finally:
                self._put(None)

        if self.may_recompute and torch.is_grad_enabled() and not traced():
            return recomputable(run, self._tensors, weights, self.layout, self._put)
        return run(self._tensors(weights))

    def _put(self, tensors: Mapping[str, Tensor] | None) -> None:
        """Put tensors in their places, or the placeholders back."""
        if tensors is None:
            for (owner, last, _), placeholder in zip(self._places, self._empty, strict=True):
                owner.__dict__[last] = placeholder
        else:
            for owner, last, name in self._places:
                owner.__dict__[last] = tensors[name]

    def _apply(self, fn: Any, recurse: bool = True) -> "Bayesian":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._empty = converted(self._empty, fn)
        self._put(None)
        return self

    def _tensors(self, weights: Tensor) -> dict[str, Tensor]:
        """The weights by name, each in the dtype that its layer takes."""
        parts = pieces(weights, self._sizes)
        full = self._posterior.mean.dtype
        if weights.dtype != full and torch.is_autocast_enabled(weights.device.type):
            parts = _widened(parts, self.layout, full)
        tensors = self.layout.named(parts)
        for name, owner, last in self._rounded:
            tensors[name] = _no_wider(tensors[name], dtype_of(owner, last))
        return tensors

    def q(self) -> Distribution:
        """The posterior: of each weight where it is a product, else of all weights jointly."""
        return self._posterior.distribution()

    def p(self) -> Distribution:
        """The prior of each weight."""
        return cast(Distribution, self.prior())

    @property
    def loc(self) -> Tensor:
        """The posterior mean of each weight."""
        return self._posterior.mean

    @property
    def config(self) -> Any:
        """The configuration that the module brings, as those of Hugging Face do."""
        return self.module.config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.loc.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the module computes, that of its first random weight."""
        return dtype_of(*place(self.module, self.layout.entries[0].names[0]))

    @property
    def _posterior(self) -> Posterior:
        return cast(Posterior, self.posterior)

    def make_shardable(self) -> None:
        """Let what a prior has per weight be frozen parameters, which `fully_shard` shards."""
        for part in self.prior.modules():
            for name, buffer in list(part._buffers.items()):
                if buffer is not None and buffer.shape[-1:] == (self.layout.size,):
                    del part._buffers[name]
                    part.register_parameter(name, nn.Parameter(buffer, requires_grad=False))

    def extra_repr(self) -> str:
        """What is random, what is not, how many weights."""
        names = [entry.names[0] for entry in self.layout.entries]
        fixed = [name for name, _ in self.module.named_parameters()]
        count = sum(parameter.numel() for parameter in self.module.parameters())
        lines = [f"random: {self.layout.size:,} weights in {_listed(names)}"]
        if fixed:
            lines.append(f"not random: {count:,} weights in {_listed(fixed)}")
        trials = tuple(self.loc.shape[:-1])
        return "\n".join([*lines, f"trials: {trials}"] if trials else lines)


def _without_placeholders(
    module: nn.Module, state: dict[str, Any], prefix: str, metadata: object
) -> None:
    names = (name for entry in cast(Bayesian, module).layout.entries for name in entry.names)
    without(state, f"{prefix}module.", names)


def _widened(parts: Sequence[Tensor], layout: Layout, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The pieces in another dtype, converted at once, of what autocast does not cast itself.

    Those are vectors, and what a parametrization makes a weight from.
    """
    at = [
        index
        for index, entry in enumerate(layout.entries)
        if len(entry.shape) < 2 or _parametrizes(entry.names[0])
    ]
    if not at:
        return tuple(parts)
    together = torch.cat([parts[index] for index in at]).to(dtype)
    wide = dict(zip(at, together.split([layout.sizes[index] for index in at]), strict=True))
    return tuple(wide.get(index, piece) for index, piece in enumerate(parts))


def _parametrizes(name: str) -> bool:
    """Whether a weight is computed from this tensor, by torch's parametrizations old and new."""
    return "parametrizations." in name or name.endswith(("_orig", "_g", "_v"))


def _no_wider(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """In this dtype, unless the tensor was drawn in one with fewer bits."""
    wider = torch.finfo(tensor.dtype).bits > torch.finfo(dtype).bits
    return tensor.to(dtype) if wider else tensor


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown}, … ({len(names)} tensors)"


def bayesianize(
    module: nn.Module,
    prior: nn.Module | PriorFor,
    *,
    posterior: PosteriorFor | LaidOut = MeanField,
    where: Where = unfrozen,
    start: float = 0.1,
) -> Bayesian:
    """Turn a module Bayesian; the module itself is left as it was.

    Its weights, pretrained or not, become the posterior mean, in single precision at least; draws
    of each tensor are rounded to its own dtype. Weights that are tied, or a module that is used
    twice, stay one set of weights. Frozen ones, those with `requires_grad_(False)`, stay as they
    are and share memory with those of the module. The row that an `nn.Embedding` keeps for padding
    is random like its others. Filters of a module that was put
    `.to(memory_format=torch.channels_last)` lie in the flat vector in that order, so that a step
    on channels-last inputs copies none.

    Args:
        module: any `nn.Module`.
        prior: a `Prior`, a `ScaleMixture`, any module that returns a distribution, or a function of
            layout and weights that makes one, such as `FanIn()` or `AroundStart()`.
        posterior: made from the mean and the scale of each weight.
        where: which weights are random, by name and parameter; the rest are ordinary parameters.
            Tied weights are random as soon as one of their names is picked. `everything` picks
            frozen weights too.
        start: the posterior's scale to begin with, as a fraction of the prior's. Far below 0.1 the
            reverse KL inside JS-G crushes the means before the data speak.

    Examples:
        >>> from torch.distributions import Normal
        >>> from bayesdiv import Prior
        >>> net = bayesianize(nn.Linear(8, 1), Prior(Normal, loc=0.0, scale=1.0))
        >>> net(torch.zeros(5, 8)).shape
        torch.Size([5, 1])
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
    _check(module, chosen)
    layout = Layout.of(chosen)
    loc = layout.flatten({name: parameter.detach() for name, parameter in chosen})
    loc = loc.to(torch.promote_types(loc.dtype, torch.float32))  # half precision cannot be trained
    made = copy.deepcopy(prior) if isinstance(prior, nn.Module) else prior(layout, loc)
    scale = start * prior_scale(made()).to(loc).expand_as(loc)
    q = posterior.laid_out(layout) if isinstance(posterior, LaidOut) else posterior
    return Bayesian(emptied(module, layout), layout, q(loc, scale), made.to(loc))


def _check(module: nn.Module, chosen: Sequence[tuple[str, nn.Parameter]]) -> None:
    """Whether the chosen weights can be one vector with a Gaussian posterior."""
    if not chosen:
        kind = type(module).__name__
        frozen = not any(parameter.requires_grad for parameter in module.parameters())
        hint = ", all frozen: give where=bayesdiv.model.layout.everything" if frozen else ""
        raise ValueError(f"no weight is random: where picked none of {kind}'s{hint}")
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
                f"{kind} weights have no Gaussian posterior, got {name} of {parameter.dtype}"
            )
        if parameter.device != one.device:
            raise ValueError(
                f"random weights must be on one device, got {first} on {one.device} and {name} on "
                f"{parameter.device}"
            )
        if parameter.is_meta:
            raise ValueError(
                f"a random weight must have values, got {name} on the meta device: load the "
                "module's weights first"
            )


def _chosen(module: nn.Module, where: Where) -> list[tuple[str, nn.Parameter]]:
    """The random weights by name, under every module that holds them, each module once."""
    every = module.named_parameters(remove_duplicate=False)
    picked = {id(parameter) for name, parameter in every if where(name, parameter)}
    return [
        (name, parameter)
        for path, owner in module.named_modules()
        for name, parameter in owner.named_parameters(path, recurse=False, remove_duplicate=False)
        if id(parameter) in picked
    ]


def bayesian_modules(model: nn.Module) -> list[Bayesian]:
    """All Bayesian modules in a model, each once; none in a deterministic one."""
    return [module for module in model.modules() if isinstance(module, Bayesian)]


@contextmanager
def lending(modules: Sequence[Bayesian], weights: Sequence[Tensor]) -> Iterator[None]:
    """For the time of the context, these Bayesian modules take these weights."""
    before = [module._given for module in modules]
    try:
        for module, drawn in zip(modules, weights, strict=True):
            module._given = (drawn,)
        yield
    finally:
        for module, given in zip(modules, before, strict=True):
            module._given = given


def using(model: nn.Module, weights: Sequence[Tensor]) -> AbstractContextManager[None]:
    """For the time of the context, the Bayesian modules of `model` take these weights."""
    return lending(bayesian_modules(model), weights)


@contextmanager
def at_mean(model: nn.Module) -> Iterator[None]:
    """For the time of the context, `model` runs at its posterior mean, without noise.

    Examples:
        >>> from torch.distributions import Normal
        >>> from bayesdiv import Prior
        >>> source = nn.Linear(3, 1)
        >>> net = bayesianize(source, Prior(Normal, loc=0.0, scale=1.0))
        >>> with at_mean(net):
        ...     bool((net(torch.ones(2, 3)) == source(torch.ones(2, 3))).all())
        True
    """
    modules = bayesian_modules(model)
    with lending(modules, [module.loc for module in modules]):
        yield


def stacked(models: Sequence[Bayesian]) -> Bayesian:
    """Independent trials as one model: the parameters of like models along a leading axis.

    The loss of a stack is the sum of theirs, so each trial learns as it would alone. Priors of one
    family may differ in their parameters; what else is not random must be the same in all models.
    """
    if not models:
        raise ValueError("a stack must have at least one model, got none")
    first = models[0]
    if any(model.layout != first.layout for model in models):
        raise ValueError("models of one stack must have the same layout of random weights")
    learned = [p for p in first.prior.parameters() if p.requires_grad]
    if learned or any(True for _ in first.module.parameters()):
        raise ValueError("models of one stack must have no weights that are not random")
    if not all(_alike(model.module, first.module) for model in models):
        raise ValueError("models of one stack must have the same buffers, such as running means")
    together = copy.deepcopy(first)
    together.prior = _common_prior(models)
    for name in [name for name, _ in together.posterior.named_parameters()]:
        values = [dict(model.posterior.named_parameters())[name].detach() for model in models]
        owner, _, last = name.rpartition(".")
        setattr(together.posterior.get_submodule(owner), last, nn.Parameter(torch.stack(values)))
    return together


def _alike(one: nn.Module, two: nn.Module) -> bool:
    ones, twos = one.state_dict(prefix="own."), two.state_dict(prefix="own.")
    return ones.keys() == twos.keys() and all(torch.equal(ones[key], twos[key]) for key in ones)


def _common_prior(models: Sequence[Bayesian]) -> nn.Module:
    """The prior that all share, else theirs side by side."""
    first = models[0].prior
    same_family = all(type(model.p()) is type(models[0].p()) for model in models)
    if same_family and all(_alike(model.prior, first) for model in models):
        return copy.deepcopy(first)
    priors = [model.prior for model in models if isinstance(model.prior, Prior)]
    if not same_family or len(priors) < len(models):
        raise ValueError("priors of one stack must be equal, or Prior of one family")
    return side_by_side(priors, models[0].layout.size)
