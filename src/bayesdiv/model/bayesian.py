"""Any module turned Bayesian: its weights become draws of a posterior over one flat vector."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import compress
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from bayesdiv.compute.devices import autocast_under_vmap
from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.model.layout import Layout, Placeholder, pieces, place
from bayesdiv.model.posteriors import Posterior
from bayesdiv.model.priors import Prior, side_by_side
from bayesdiv.model.recomputing import called_with


class Whole(nn.Module):
    """A network with its random weights, which have one flat vector or several."""

    module: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.register_state_dict_post_hook(_without_placeholders)  # type: ignore[no-untyped-call]

    @property
    def config(self) -> Any:
        """The configuration that the module brings, as those of Hugging Face do."""
        return self.module.config

    @property
    def device(self) -> torch.device:
        return bayesian_modules(self)[0].loc.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the module computes, that of its first random weight."""
        return bayesian_modules(self)[0]._empty[0].dtype


def _without_placeholders(
    module: nn.Module, state: dict[str, Any], prefix: str, metadata: object
) -> None:
    """Take placeholders out of a state: some layers save what they hold by themselves."""
    for part in bayesian_modules(module):
        for name in part.layout.names:
            state.pop(f"{prefix}module.{name}", None)


class Bayesian(Whole):
    """A module, made by `bayesianize`, whose random weights are drawn again in each call."""

    def __init__(
        self, module: nn.Module, layout: Layout, posterior: nn.Module, prior: nn.Module
    ) -> None:
        super().__init__()
        self.module = module
        self.layout = layout
        self._sizes = layout.sizes  # kept, since every call cuts the vector
        self.posterior = posterior
        self.prior = prior
        # Where the weights of a call go: their modules, the attribute, the name.
        self._places = [(*place(module, name), name) for name in layout.names]
        self._empty: list[Placeholder] = [getattr(owner, last) for owner, last, _ in self._places]
        # Code outside torch's own layers alone may use checkpointing.
        homes = {type(part).__module__ for part in module.modules()}
        self.may_recompute = not all(home.startswith("torch.nn.") for home in homes)
        if any(entry.order for entry in layout.entries):  # channels last
            # In the state, so that one of another order of the flat vector is refused.
            self.register_buffer("channels_last", torch.ones(()))
        # Set for the time of a call by `using`; in a tuple, or a parameter would be registered.
        self._given: tuple[Tensor] | None = None

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The network's output for one draw of its weights."""
        return self.with_weights(self.lent_or_drawn(), *inputs, **named)

    def draw(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        """Draws of the posterior, (samples, …, weights); see `Posterior.rsample`."""
        return self._posterior.rsample(samples, dtype, seed)

    def with_weights(self, weights: Tensor, *inputs: Any, **named: Any) -> Any:
        """The network's output for these weights, (trials…, weights), of inputs with these axes."""
        if weights.dim() > 1:
            each = torch.vmap(lambda w, i, n: self.with_weights(w, *i, **n), randomness="different")
            with autocast_under_vmap(weights.device):
                return each(weights, inputs, named)
        return called_with([self], [weights], lambda: self.module(*inputs, **named))

    def lent_or_drawn(self) -> Tensor:
        """The weights of a call: those that it was lent, or one draw."""
        (weights,) = self._given or self.draw(1)
        return weights

    def put(self, tensors: Mapping[str, Tensor] | None) -> None:
        """Put tensors in their places, or the placeholders back."""
        for (owner, last, name), placeholder in zip(self._places, self._empty, strict=True):
            owner.__dict__[last] = placeholder if tensors is None else tensors[name]

    def _apply(self, fn: Any, recurse: bool = True) -> "Bayesian":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for placeholder in self._empty:
            placeholder.dtype = fn(torch.empty(0, dtype=placeholder.dtype)).dtype
        return self

    def tensors(self, weights: Tensor) -> dict[str, Tensor]:
        """The weights by name, each in the dtype that its layer takes."""
        parts = pieces(weights, self._sizes)
        if torch.is_autocast_enabled(weights.device.type) and weights.dtype != self.loc.dtype:
            parts = _widened(parts, self.layout, self.loc.dtype)
        tensors = self.layout.named(parts)
        for (name, tensor), empty in zip(tensors.items(), self._empty, strict=True):
            wider = tensor.dtype is not empty.dtype and tensor.itemsize > empty.dtype.itemsize
            if wider and empty.dtype is not self.loc.dtype:
                tensors[name] = tensor.to(empty.dtype)
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
    def _posterior(self) -> Posterior:
        return cast(Posterior, self.posterior)

    def inside(self, make: Callable[[], Any]) -> Any:
        """What is made of the posterior and the prior: the one door for `Objective`."""
        # `register_fsdp_forward_method(group, "inside")` gathers a sharded group for this time.
        return make()

    def make_shardable(self) -> None:
        """Let what a prior has per weight be frozen parameters, which `fully_shard` shards."""
        for name, buffer in list(self.prior.named_buffers()):
            if buffer.shape[-1:] == (self.layout.size,):
                owner, last = place(self.prior, name)
                del owner._buffers[last]
                owner.register_parameter(last, nn.Parameter(buffer, requires_grad=False))

    def extra_repr(self) -> str:
        fixed = self.module.named_parameters() if "module" in self._modules else ()
        sizes = {
            "random": {entry.names[0]: entry.shape.numel() for entry in self.layout.entries},
            "not random": {name: parameter.numel() for name, parameter in fixed},
        }
        lines = []
        for kind, own in sizes.items():
            names = ", ".join([*own][:4]) + f", … ({len(own)} tensors)" * (len(own) > 4)
            lines += [f"{kind}: {sum(own.values()):,} weights in {names}"] if own else []
        if self.loc.dim() > 1:
            lines.append(f"trials: {tuple(self.loc.shape[:-1])}")
        return "\n".join(lines)


def _widened(parts: Sequence[Tensor], layout: Layout, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The pieces in another dtype, converted at once, of what autocast does not cast itself."""
    # Those are vectors, and what a parametrization makes a weight from.
    chosen = [
        len(e.shape) < 2
        or "parametrizations." in e.names[0]
        or e.names[0].endswith(("_orig", "_g", "_v"))
        for e in layout.entries
    ]
    narrow = list(compress(parts, chosen))
    if not narrow:
        return tuple(parts)
    wide = iter(torch.cat(narrow).to(dtype).split([len(piece) for piece in narrow]))
    return tuple(next(wide) if own else piece for own, piece in zip(chosen, parts, strict=True))


class Group(Bayesian):
    """Some of the random weights of a network that holds several groups of them."""

    # Everything that works on the Bayesian modules of a model, such as `draw_weights` and
    # `Objective`, sees a group as one of them; it cannot be called by itself.

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        del self._modules["module"]


class Grouped(Whole):
    """A network, made by `bayesianize(…, by=…)`, whose groups of random weights are each drawn."""

    def __init__(self, module: nn.Module, groups: Mapping[str, Group]) -> None:
        super().__init__()
        self.module = module
        self.groups = nn.ModuleDict(groups)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        parts = cast(list[Group], [*self.groups.values()])
        weights = [part.lent_or_drawn() for part in parts]
        return called_with(parts, weights, lambda: self.module(*inputs, **named))


def bayesian_modules(model: nn.Module) -> list[Bayesian]:
    """All Bayesian modules in a model, each once; none in a deterministic one."""
    return [module for module in model.modules() if isinstance(module, Bayesian)]


@contextmanager
def using(model: nn.Module | Sequence[Bayesian], weights: Sequence[Tensor]) -> Iterator[None]:
    """For the time of the context, the Bayesian modules of a model take these weights."""
    modules = bayesian_modules(model) if isinstance(model, nn.Module) else model
    before = [module._given for module in modules]
    try:
        for module, drawn in zip(modules, weights, strict=True):
            module.__dict__["_given"] = (drawn,)  # past the slow ways of a module
        yield
    finally:
        for module, given in zip(modules, before, strict=True):
            module.__dict__["_given"] = given


def at_mean(model: nn.Module) -> AbstractContextManager[None]:
    """Run `model` at its posterior mean, without noise, inside the context.

    Examples:
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        >>> with at_mean(net):
        ...     bool((net(torch.ones(2, 3)) == net(torch.ones(2, 3))).all())
        True
    """
    return using(model, [module.loc for module in bayesian_modules(model)])


def stacked(models: Sequence[Bayesian]) -> Bayesian:
    """Stack independent trials, which learn as each would alone, along a leading axis.

    Priors of one family may have different parameters; all else that is not random must be equal.
    """
    if not models:
        raise ValueError("a stack must have at least one model, got none")
    if not all(isinstance(model, Bayesian) for model in models):
        raise ValueError("models of one stack must have one posterior each: make them without by=")
    first = models[0]
    if any(model.layout != first.layout for model in models):
        raise ValueError("models of one stack must have the same layout of random weights")
    if any(p.requires_grad for p in first.prior.parameters()) or [*first.module.parameters()]:
        raise ValueError("models of one stack must have no weights that are not random")
    if not all(_alike(model.module, first.module) for model in models):
        told = "the same buffers, such as running means, and the same layers"
        raise ValueError(f"models of one stack must have {told}")
    states = [model.posterior.state_dict() for model in models]
    kinds = {str(model.posterior) for model in models}
    shapes = [{name: own.shape for name, own in state.items()} for state in states]
    if len(kinds) > 1 or any(own != shapes[0] for own in shapes):
        raise ValueError("models of one stack must have posteriors of one kind and rank")
    together = copy.deepcopy(first)
    together.prior = _common_prior(models)
    learned = dict(first.posterior.named_parameters())
    for name in states[0]:
        values = torch.stack([state[name] for state in states])
        own = nn.Parameter(values) if name in learned else values
        setattr(*place(together.posterior, name), own)
    return together


def _alike(one: nn.Module, two: nn.Module) -> bool:
    ones, twos = one.state_dict(prefix="own."), two.state_dict(prefix="own.")
    same = str(one) == str(two) and ones.keys() == twos.keys()
    return same and all(torch.equal(ones[key], twos[key]) for key in ones)


def _common_prior(models: Sequence[Bayesian]) -> nn.Module:
    """The prior that all share, else theirs side by side."""
    first, families = models[0].prior, {type(model.p()) for model in models}
    if len(families) == 1 and all(_alike(model.prior, first) for model in models):
        return copy.deepcopy(first)
    priors = [model.prior for model in models if isinstance(model.prior, Prior)]
    if len(families) > 1 or len(priors) < len(models):
        raise ValueError("priors of one stack must be equal, or Prior of one family")
    return side_by_side(priors, models[0].layout.size)
