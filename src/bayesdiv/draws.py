"""Several weight draws in one call: drawn first, then run through the network together."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.attention import SDPBackend, sdpa_kernel

from bayesdiv.bayesian import Bayesian, bayesian_modules, using

# The draws of each Bayesian module of a model, (samples, …, weights) each.
Weights = tuple[Tensor, ...]
# Inputs of more numbers than this keep a CPU busy with one draw. Calls of the network one by one
# are then faster than a batch of draws, whose outputs leave the cache and whose convolutions
# `torch.vmap` turns into grouped ones: twice as fast at once, nine times with many rows.
BUSY = 1 << 13


class Over(ABC):
    """A way to run a network over several draws."""

    @abstractmethod
    def __call__(self, run: Callable[..., Tensor], weights: Weights) -> Tensor:
        """Outputs of `run(*weights of one draw)`, stacked along a first axis."""


@dataclass(frozen=True)
class Batched(Over):
    """All draws as one batched computation, by `torch.vmap`.

    What does not depend on random weights, such as a deterministic trunk, runs once for all draws.

    Args:
        chunk: draws at a time, so that memory has a ceiling; None takes all at once.
    """

    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {self.chunk}")

    def __call__(self, run: Callable[..., Tensor], weights: Weights) -> Tensor:
        """Outputs of all draws, (samples, …)."""
        together = torch.vmap(run, randomness="different", chunk_size=self.chunk)
        if torch.compiler.is_compiling():
            return together(*weights)
        try:
            with _attention_by_products(weights[0].device):
                return together(*weights)
        except RuntimeError as error:
            if "vmap" not in str(error) and "batching rule" not in str(error):
                raise
            raise RuntimeError(
                "torch.vmap has no rule for a part of this network, such as batch norm or LSTM: "
                "give over=bayesdiv.loop, to the objective and to predict"
            ) from error


@dataclass(frozen=True)
class Loop(Over):
    """One draw after the other, where `torch.vmap` has no rule, as for batch norm or LSTM."""

    def __call__(self, run: Callable[..., Tensor], weights: Weights) -> Tensor:
        """Outputs of all draws, (samples, …)."""
        return torch.stack([run(*draw) for draw in zip(*weights, strict=True)])


@contextmanager
def _attention_by_products(device: torch.device) -> Iterator[None]:
    """Attention without the fused kernels that have no rule, or a broken one, for `torch.vmap`."""
    before = torch.backends.mha.get_fastpath_enabled()
    # Of the kernels on a GPU, the one for float32 fails in its backward pass.
    fused = [] if device.type == "cpu" else [SDPBackend.FLASH_ATTENTION]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel([*fused, SDPBackend.MATH]):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


batched = Batched()
loop = Loop()


def draw_weights(
    model: nn.Module, samples: int, posteriors: Sequence[Distribution] | None = None
) -> Weights:
    """Draws of the weights of every Bayesian module, (samples, …, weights) each.

    Args:
        model: any module.
        samples: how many draws.
        posteriors: of each Bayesian module, where they are computed already.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    modules = bayesian_modules(model)
    known: Sequence[Distribution | None] = posteriors or [None] * len(modules)
    return tuple(
        module._posterior.rsample(samples, q) for module, q in zip(modules, known, strict=True)
    )


def draws(model: nn.Module, x: Tensor, weights: Weights, over: Over | None = None) -> Tensor:
    """Outputs of the network for each draw of its weights, (samples, batch, …).

    A deterministic model gives a single one. One draw calls the model directly.

    Args:
        model: any module.
        x: inputs.
        weights: from `draw_weights`.
        over: how several draws are run; None takes what is faster for this network and device:
            `loop` for convolutions on a CPU, `batched` for all else.

    Examples:
        >>> from torch.distributions import Normal
        >>> from bayesdiv import Prior, bayesianize
        >>> net = bayesianize(nn.Linear(3, 1), Prior(Normal, loc=0.0, scale=1.0))
        >>> draws(net, torch.ones(5, 3), draw_weights(net, samples=10)).shape
        torch.Size([10, 5, 1])
    """
    if not weights:
        return cast(Tensor, model(x)).unsqueeze(0)
    run = _runner(model, x)
    if weights[0].shape[0] == 1:
        return run(*(w.squeeze(0) for w in weights)).unsqueeze(0)
    return (over or _faster(model, x, weights))(run, weights)


def _faster(model: nn.Module, x: Tensor, weights: Weights) -> Over:
    single = weights[0].dim() == 2  # trials are a batch of networks in any case
    if x.device.type != "cpu" or x.numel() <= BUSY or not single:
        return batched
    return loop if _convolves(model) and all_random(model) else batched


def _convolves(model: nn.Module) -> bool:
    """Whether a random weight has the axes of a convolution's kernel: out, in and places."""
    entries = (entry for module in bayesian_modules(model) for entry in module.layout.entries)
    return any(len(entry.shape) > 2 for entry in entries)


def all_random(model: nn.Module) -> bool:
    """Whether no parameter is outside the Bayesian modules, so that nothing is shared by draws."""
    modules = bayesian_modules(model)
    known = {id(p) for m in modules for part in (m.posterior, m.prior) for p in part.parameters()}
    return bool(modules) and all(id(parameter) in known for parameter in model.parameters())


def _runner(model: nn.Module, x: Tensor) -> Callable[..., Tensor]:
    if isinstance(model, Bayesian) and len(bayesian_modules(model)) == 1:
        # Straight through, without a context: this is the path that compiles into one graph.
        return lambda weights: model.at(weights, x)

    def run(*weights: Tensor) -> Tensor:
        with using(model, weights):
            return cast(Tensor, model(x))

    return run
