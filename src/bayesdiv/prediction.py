"""From a trained model to its predictions."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from operator import index

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader

from bayesdiv.compute.devices import on_cpu
from bayesdiv.compute.noise import drawing, seeded, turn
from bayesdiv.draws import (
    Inputs,
    Looped,
    Outputs,
    Over,
    Weights,
    all_random,
    busy,
    draw_weights,
    draws,
    from_arrays,
    leaves,
)
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.predictive import Predictive
from bayesdiv.training.batches import Unpack

# Weights that stay in a CPU's last cache until they are used, 8 MiB in single precision: so drawn,
# 100 draws of 478,410 weights take 0.6 of the time that all at once take.
CACHE = 1 << 21
# A batch of fewer draws costs more than as many calls.
FEWEST = 8
# Weights to hold elsewhere, 1 GiB in single precision.
ROOM = 1 << 28


def predict(
    model: nn.Module,
    likelihood: nn.Module,
    x: Inputs,
    samples: int = 100,
    *,
    over: Over | None = None,
    batch_size: int | None = None,
    outputs: Outputs | None = None,
    unpack: Unpack | None = None,
    seed: int | None = None,
) -> Predictive:
    """Predict with several weight draws, the same for all rows.

    Only a few draws are held at a time, which bounds memory. To reuse draws in further calls, call
    `draw_weights` once and then `predict_at`.

    Args:
        model: the trained model; it is in evaluation mode during the call.
        likelihood: the one it was trained with.
        x: a tensor, an array, a tuple of arguments, a mapping of named ones or a loader of torch.
            If x requires a gradient, the prediction can be differentiated with respect to it.
        samples: weight draws to average over.
        over: how several draws are run, see `draws`.
        batch_size: rows at a time, for data that does not fit into memory at once.
        outputs: the tensor out of what the model returns, see `draws`.
        unpack: from what a loader yields to inputs and targets, see `fit`; None takes the first of
            a pair, or the whole of anything else.
        seed: makes every call draw the same weights, in any thread; None is torch's generator.

    Examples:
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        >>> bd.predict(net, bd.Gaussian(), torch.zeros(5, 3)).mean.shape
        torch.Size([5])
    """
    given, wanted = _given(model, x, unpack)
    device = leaves(given)[0].device
    noise: AbstractContextManager[None] = nullcontext()
    if seed is not None:
        own = torch.Generator().manual_seed(index(seed))
        noise = drawing(own) if on_cpu(device) else seeded(index(seed), [device])
    with evaluating(model), noise:
        # Once for all draws: the scale of each weight comes from its raw parameter.
        posteriors = [module.q() for module in bayesian_modules(model)]
        few = _at_a_time(model, device)
        # Zero samples too make a group, which `draw_weights` refuses.
        counts = (min(few, samples - done) for done in range(0, max(samples, 1), few))
        drawn = (draw_weights(model, count, posteriors) for count in counts)
        with torch.set_grad_enabled(wanted):
            made = _outputs(model, given, batch_size, drawn, over, outputs)
            return Predictive(likelihood(made))


def predict_at(
    model: nn.Module,
    likelihood: nn.Module,
    x: Inputs,
    weights: Weights,
    *,
    over: Over | None = None,
    batch_size: int | None = None,
    outputs: Outputs | None = None,
    unpack: Unpack | None = None,
) -> Predictive:
    """Predict with given weights (`draw_weights`), which serve any number of calls.

    Weights may be kept in another dtype, such as bfloat16: they take half the memory, and on
    processors that multiply it, many rows take less than half the time. A network whose weights are
    all random then runs in that dtype; its output has the dtype of `x`.

    Examples:
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        >>> weights = bd.draw_weights(net, samples=100)
        >>> bd.predict_at(net, bd.Gaussian(), torch.zeros(5, 3), weights).samples
        100
    """
    own = [("samples", *module.loc.shape) for module in bayesian_modules(model)]
    drawn = weights if isinstance(weights, list | tuple) else [None]
    if [isinstance(one, Tensor) and ("samples", *one.shape[1:]) for one in drawn] != own:
        told = f"a tuple of one tensor per Bayesian module, of shapes {own}"
        raise ValueError(f"weights must be what draw_weights gives for this model: {told}")
    given, wanted = _given(model, x, unpack)
    with evaluating(model), torch.set_grad_enabled(wanted):
        real = [tensor for tensor in leaves(given) if tensor.is_floating_point()]
        inside = weights[0].dtype if weights and real and all_random(model) else None
        if inside is not None:
            convert = lambda t: t.to(inside) if t.is_floating_point() else t  # noqa: E731
            given = tree_map_only(Tensor, convert, given)
        made = _outputs(model, given, batch_size, [weights], over, outputs)
        return Predictive(likelihood(made if inside is None else made.to(real[0].dtype)))


def _given(model: nn.Module, x: Inputs, unpack: Unpack | None) -> tuple[list[Inputs], bool]:
    """The inputs as tensors, a loader's where the model is; whether a gradient by them is asked."""
    loads = isinstance(x, DataLoader)
    found = [] if loads else [from_arrays(x)]
    device = next(iter(model.parameters()), torch.empty(0)).device
    for batch in x if loads else ():
        paired = isinstance(batch, list | tuple) and len(batch) < 3
        inputs = unpack(batch)[0] if unpack is not None else batch[0] if paired else batch
        found.append(tree_map_only(Tensor, lambda t: t.to(device), inputs))
    if any(not leaves(x) for x in found):
        told = f"an array, a loader, or a tuple or mapping of tensors, got {type(x).__name__}"
        raise TypeError(f"x must be a tensor, {told}")
    if not found or any(not sum(leaf.numel() for leaf in leaves(x)[:1]) for x in found):
        raise ValueError("there must be at least one row to predict, got 0")
    return found, torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves(found))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """For the time of the context, alone, without gradients and in evaluation mode."""
    with turn():
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for module, training in modes:
                module.training = training


def _outputs(
    model: nn.Module,
    given: list[Inputs],
    batch_size: int | None,
    groups: Iterable[Weights],
    over: Over | None,
    outputs: Outputs | None,
) -> Tensor:
    """Outputs of all groups of draws for all rows, (samples, …, batch, …)."""
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    modules, parts = bayesian_modules(model), list[Inputs]()
    axis = modules[0].loc.dim() - 1 if modules else 0  # of the rows, after those of the trials
    for x in given:
        rows = leaves(x)[0].shape[axis]
        for at in torch.arange(rows).split(batch_size or rows):
            cut = partial(torch.narrow, dim=axis, start=int(at[0]), length=len(at))
            parts.append(tree_map_only(Tensor, cut, x))
    if over is None and busy(parts[0]) and all_random(model):
        over = Looped()  # draw by draw where one of them keeps a CPU busy
    held = (tuple(weights.detach() for weights in group) for group in groups)
    each = ([draws(model, part, weights, over, outputs) for part in parts] for weights in held)
    return torch.cat([torch.cat(rows, axis + 1) for rows in each])


def _at_a_time(model: nn.Module, device: torch.device) -> int:
    # Whatever the rows: as many numbers in another number of pieces would be other noise, and the
    # same row would have another prediction in a larger table.
    # A deterministic part runs once for all draws that run together; a GPU wants many of them.
    modules, cached = bayesian_modules(model), on_cpu(device) and all_random(model)
    few = (CACHE if cached else ROOM) // max(1, sum(module.loc.numel() for module in modules))
    few = 1 if cached and few < FEWEST else max(1, few)
    # By whole rounds, which reach all members of the largest ensemble equally.
    members = max((getattr(module.posterior, "members", 1) for module in modules), default=1)
    return -(-few // members) * members
