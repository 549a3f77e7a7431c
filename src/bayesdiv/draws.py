"""Several weight draws in one call: drawn first, then run through the network together."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.distributions import Distribution
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map_only

from bayesdiv.compute.backend import draw
from bayesdiv.compute.devices import (
    autocast_dtype,
    autocast_under_vmap,
    compiling,
    on_cpu,
    on_gpu,
    recording,
    traced,
)
from bayesdiv.compute.noise import Dtype, turn
from bayesdiv.divergence.gaussian import SoftplusNormal
from bayesdiv.model.bayesian import Bayesian, bayesian_modules, using
from bayesdiv.model.layout import LARGE
from bayesdiv.model.posteriors import MeanField

# The draws of each Bayesian module of a model, (samples, …, weights) each.
Weights = tuple[Tensor, ...]
# What a model is called with: a tensor, a tuple of arguments or a mapping of named ones.
Inputs = Any
# From what a model returns to the tensor that a likelihood reads.
Outputs = Callable[[Any], Tensor]
# Inputs of more numbers than this keep a CPU busy with one draw. Calls of the network one by one
# are then faster than a batch of draws, whose outputs leave the cache and whose convolutions
# `torch.vmap` turns into grouped ones: twice as fast at once, nine times with many rows.
BUSY = 1 << 13
# Layers that take numbers one by one, and draw nothing at random.
_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus)
_HOOKS = "torch.vmap has no rule for hooks on saved tensors, which gradient checkpointing uses"
_log = logging.getLogger("bayesdiv.draws")
# Whether `torch.vmap` has a rule for every part of a model, by its mode, training or not.
_has_rules: "WeakKeyDictionary[nn.Module, dict[bool, bool]]" = WeakKeyDictionary()


class Over(ABC):
    """A way to run a network over several draws, `chunk` of them at a time; None is all."""

    chunk: int | None

    @abstractmethod
    def __call__(self, run: Callable[..., Tensor], weights: Weights) -> Tensor:
        """Outputs of `run(*weights of one draw)`, stacked along a first axis."""

    def groups(self, samples: int) -> list[int]:
        """How many draws are held at a time in training, whose gradients are formed in turn."""
        size = self.chunk or samples
        return [min(size, samples - done) for done in range(0, samples, size)]


@dataclass(frozen=True)
class Vectorized(Over):
    """All draws in one batched computation, by `torch.vmap`.

    What does not depend on random weights, such as a deterministic trunk, runs once for all draws.

    Args:
        chunk: draws at a time, None is all. It bounds memory in training too, where the gradients
            of each chunk are computed before the next one is drawn.
    """

    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {self.chunk}")

    def __call__(self, run: Callable[..., Tensor], weights: Weights) -> Tensor:
        together = torch.vmap(run, randomness="different", chunk_size=self.chunk)
        if compiling():
            return together(*weights)
        device, hooks = weights[0].device, disable_saved_tensors_hooks(_HOOKS)
        try:
            with attention_alone(device), autocast_under_vmap(device), hooks:
                return together(*weights)
        except RuntimeError as error:
            told = str(error).lower()
            mixed = "type" in told and autocast_dtype(device) is not None
            if not mixed and not any(one in told for one in ("vmap", "batching rule", "functorch")):
                raise
            such = "a part of this network, such as batch norm, LSTM or gradient checkpointing"
            remedy = "give over=bayesdiv.Looped(), to the objective and to predict"
            raise _NoRule(f"torch.vmap has no rule for {such}: {remedy}") from error


class _NoRule(RuntimeError):
    """Raised where a network cannot be run over all draws at once."""


@dataclass(frozen=True)
class Looped(Over):
    """One draw after the other, for networks that `torch.vmap` has no rule for (batch norm, LSTM).

    In training, each is differentiated before the next, so memory does not grow with the draws.
    """

    chunk: int | None = field(default=1, init=False, repr=False)

    def __call__(self, run: Callable[..., Tensor], weights: Weights) -> Tensor:
        return torch.stack([run(*draw) for draw in zip(*weights, strict=True)])


@contextmanager
def attention_alone(device: torch.device) -> Iterator[None]:
    """Attention by operations that `torch.vmap` and other runtimes know."""
    # Of the kernels on a GPU, the one for float32 fails in its backward pass.
    fused = [] if on_cpu(device) else [SDPBackend.FLASH_ATTENTION]
    with turn():  # all threads share the setting
        before = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with sdpa_kernel([*fused, SDPBackend.MATH]):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(before)


def draw_weights(
    model: nn.Module,
    samples: int,
    posteriors: Sequence[Distribution] | None = None,
    dtype: torch.dtype | None = None,
) -> Weights:
    """Draw the weights of every Bayesian module, (samples, …, weights) each.

    Args:
        model: any module.
        samples: how many draws.
        posteriors: of each Bayesian module, if they are computed already.
        dtype: of the draws; None is that of the parameters.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    modules = bayesian_modules(model)
    known: Sequence[Distribution | None] = posteriors or [None] * len(modules)
    pairs = zip(modules, known, strict=True)
    return tuple(draw_of(module, q, samples, dtype) for module, q in pairs)


def draw_of(module: Bayesian, q: Distribution | None, samples: int, dtype: Dtype) -> Tensor:
    """Draws of one module; from a given posterior, whose scales are then computed only once."""
    if q is None or type(module.posterior) is not MeanField:
        return module.draw(samples, dtype)
    if isinstance(q, SoftplusNormal) and on_cpu(q.loc) and q.loc.numel() <= LARGE:
        _ = q.scale
    return draw(q, samples, dtype)


def draws(
    model: nn.Module,
    inputs: Inputs,
    weights: Weights,
    over: Over | None = None,
    outputs: Outputs | None = None,
    modules: Sequence[Bayesian] | None = None,
) -> Tensor:
    """Run the network for each draw of its weights: outputs, (samples, batch, …).

    A deterministic model gives a single output. One draw calls the model directly.

    Args:
        model: any module.
        inputs: a tensor is `model(inputs)`, a tuple `model(*inputs)`, a mapping `model(**inputs)`.
        weights: from `draw_weights`.
        over: how several draws are run; None is the faster for this network and device: `Looped()`
            for convolutions on a CPU, for those on a GPU over inputs with channels last and where
            `torch.vmap` has no rule, `Vectorized()` otherwise.
        outputs: the tensor out of what the model returns; None takes itself, or its `logits`.
        modules: the Bayesian ones of the model, if they are known already.

    Examples:
        >>> from bayesdiv import FanIn, bayesianize
        >>> net = bayesianize(nn.Linear(3, 1), FanIn())
        >>> draws(net, torch.ones(5, 3), draw_weights(net, samples=10)).shape
        torch.Size([10, 5, 1])
    """
    modules = bayesian_modules(model) if modules is None else modules
    take = tensor_of if outputs is None else outputs
    if not weights:
        return take(called(model, inputs)).unsqueeze(0)

    def run(*drawn: Tensor) -> Tensor:
        with using(modules, drawn):
            return take(called(model, inputs))

    single = weights[0].dim() == 2
    if (len(weights[0]) > 1 or not single) and outputs is None and over in (None, Vectorized()):
        found = chained(model, weights[0], inputs)
        if found is not None:
            return found
    if len(weights[0]) == 1:
        return run(*(w.squeeze(0) for w in weights)).unsqueeze(0)
    over = way(model, inputs, single=single) if over is None else over
    return _at_once_or_loop(model, run, weights) if over is None else over(run, weights)


def called(model: nn.Module, inputs: Inputs) -> object:
    """What the model returns: a tuple is taken apart, a mapping names its arguments."""
    if isinstance(inputs, Tensor):
        return model(inputs)
    if isinstance(inputs, np.ndarray):  # whose rows would be arguments
        raise TypeError("inputs must be tensors, got an array: give torch.as_tensor(x)")
    return model(**inputs) if isinstance(inputs, Mapping) else model(*inputs)


def tensor_of(output: object) -> Tensor:
    """The tensor that a likelihood reads: what the model returned, or its `logits`."""
    named = output if isinstance(output, Mapping) else {}
    found = named["logits"] if "logits" in named else getattr(output, "logits", output)
    if not isinstance(found, Tensor):
        told = f"the network must return one tensor, got {type(output).__name__} without logits"
        raise TypeError(f"{told}: give outputs=, a function that takes the tensor out of it")
    return found


def from_arrays(inputs: Inputs) -> Inputs:
    """Arrays of NumPy as tensors, those of fractions in torch's own precision."""

    def made(array: Any) -> Tensor:
        kind = torch.get_default_dtype() if array.dtype.kind == "f" else None
        return torch.as_tensor(array, dtype=kind)

    return tree_map_only(np.ndarray, made, inputs)


def leaves(inputs: object) -> list[Tensor]:
    """All tensors of inputs of any shape."""
    return [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]


def way(model: nn.Module, inputs: Inputs, *, single: bool) -> Over | None:
    """How several draws are best run; None where all at once should be tried, else one by one."""
    # `single` is whether each draw is one network: trials are a batch of them in any case.
    if not single:
        return Vectorized()
    if not compiling() and _known(model) is False:
        return Looped()
    # On a GPU, images with channels last are slower together, as grouped convolutions, than one by
    # one: 28.8 against 25.4 ms for 16 draws of a ResNet-18, with channels first 19.9.
    images = [x for x in leaves(inputs) if x.dim() == 4 and on_gpu(x) and not x.is_contiguous()]
    last = any(x.is_contiguous(memory_format=torch.channels_last) for x in images)
    if not (last or busy(inputs)):  # looked at first, since the walk over the model costs more
        return None
    entries = [entry for module in bayesian_modules(model) for entry in module.layout.entries]
    convolves = any(len(entry.shape) > 2 for entry in entries)  # out, in and places of a filter
    return Looped() if convolves and all_random(model) else None


def busy(inputs: Inputs) -> bool:
    """Whether one draw keeps a CPU busy, see `BUSY`."""
    return sum(tensor.numel() for tensor in leaves(inputs) if on_cpu(tensor)) > BUSY


def settled_way(model: nn.Module, inputs: Inputs, outputs: Outputs | None) -> Over | None:
    """`way` of a single network, where `torch.vmap` was tried if it must be: without a trace."""
    # Draws made one by one have other noise than draws made together: a first step must not differ.
    means = tuple(module.loc for module in bayesian_modules(model))
    over = way(model, inputs, single=means[0].dim() == 1)
    if over is not None or _known(model):
        return over
    back = _remembered(model, means[0])
    draws(model, inputs, tuple(mean.expand(2, -1) for mean in means), None, outputs)
    back()
    return None if _has_rules.setdefault(model, {}).setdefault(model.training, True) else Looped()


def _at_once_or_loop(model: nn.Module, run: Callable[..., Tensor], weights: Weights) -> Tensor:
    """All draws at once, or one after the other if that fails, as if it had not been tried."""
    if compiling() or recording(weights[0]):
        return Vectorized()(run, weights)
    back, modes = _remembered(model, weights[0]), _has_rules.setdefault(model, {})
    try:
        outputs = Vectorized()(run, weights)
        modes[model.training] = True
        return outputs
    except _NoRule as error:
        told = "%s is run draw by draw, because torch.vmap cannot run it over all draws at once: %s"
        _log.info(told, type(model).__name__, " ".join(str(error.__cause__).split())[:200])
    modes[model.training] = False
    back()
    return Looped()(run, weights)


def _remembered(model: nn.Module, like: Tensor) -> Callable[[], None]:
    """What puts all buffers, and torch's generators, back to where they are now."""
    card = like.device if on_gpu(like) else None
    # Only the first time: a copy of all buffers in every step would cost as much as the step.
    modules = () if _known(model) else model.modules()
    before = [
        (owner, name, tensor, tensor.clone())
        for owner in modules
        for name, tensor in owner._buffers.items()
        if tensor is not None and tensor.numel()
    ]
    random = torch.get_rng_state(), None if card is None else torch.cuda.get_rng_state(card)

    @torch.no_grad()
    def back() -> None:
        for owner, name, tensor, value in before:
            owner._buffers[name] = tensor
            if not torch.equal(tensor, value):
                tensor.copy_(value)
        torch.set_rng_state(random[0])
        if random[1] is not None:
            torch.cuda.set_rng_state(random[1], like.device)

    return back


def _known(model: nn.Module) -> bool | None:
    return _has_rules.get(model, {}).get(model.training)


def all_random(model: nn.Module) -> bool:
    """Whether no parameter is outside the Bayesian modules, so that nothing is shared by draws."""
    modules = bayesian_modules(model)
    known = {id(p) for m in modules for part in (m.posterior, m.prior) for p in part.parameters()}
    return bool(modules) and all(id(parameter) in known for parameter in model.parameters())


def chained(model: nn.Module, weights: Tensor, x: object) -> Tensor | None:
    """Outputs of each draw and trial, (draws, trials…, rows, outputs); None for other networks.

    The weights are (draws, trials…, weights), the rows (trials…, rows, columns). For a network of a
    few units, `torch.vmap` takes longer than the products themselves.
    """
    if not isinstance(x, Tensor) or type(model) is not Bayesian or not _is_chain(model):
        return None
    usual = x.dtype == weights.dtype == model.dtype and autocast_dtype(x.device) is None
    if not usual or traced() or x.shape[:-2] != weights.shape[1:-1] or x.dim() != weights.dim():
        return None
    flat = weights.flatten(0, -2)
    model.put(model.layout.unflatten(flat))
    try:
        outputs = x.expand(len(weights), *x.shape).reshape(len(flat), *x.shape[-2:])
        for layer in cast(nn.Sequential, model.module):
            if type(layer) is not nn.Linear:
                outputs = layer(outputs)
            elif layer.bias is None:
                outputs = outputs @ layer.weight.mT
            else:
                outputs = layer.bias.unsqueeze(1).baddbmm(outputs, layer.weight.mT)
    finally:
        model.put(None)
    return outputs.reshape(*weights.shape[:-1], *outputs.shape[1:])


def _is_chain(model: Bayesian) -> bool:
    """Whether all layers are known, without hooks, and all their weights random."""
    layers = [*model.module.children()]
    parts = (model, model.module, *layers)
    return (
        type(model.module) is nn.Sequential
        and all(type(layer) is nn.Linear or type(layer) in _ELEMENTWISE for layer in layers)
        and next(model.module.parameters(), None) is None
        and not getattr(model.module[0], "inplace", False)  # which would write to the rows
        and not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
        and not any(part._backward_hooks or part._backward_pre_hooks for part in parts)
    )
