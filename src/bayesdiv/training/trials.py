"""Independent trials as one program: many splits of a data set trained at once.

Trials are leading axes of the parameters (`stacked`) and of the data. Adam and the divergence are
element-wise and the losses are added up, so every trial learns what it would learn alone.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from bayesdiv.draws import draw_weights
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.objective.objective import Loss, Objective
from bayesdiv.training.fit import check_optimizer
from bayesdiv.training.steps import Eager, Step


class TrialsEpoch(NamedTuple):
    """What `fit_trials` yields: the epoch's number from 1, means of each trial, the time."""

    number: int
    nll: Tensor  # (trials,), on the CPU; NaN for a trial that diverged
    divergence: Tensor  # (trials,)
    seconds: float


def fit_trials(
    model: Bayesian,
    objective: Objective,
    x: Tensor,
    y: Tensor,
    optimizer: Optimizer,
    epochs: int,
    *,
    batch_size: int,
    seeds: Sequence[int],
    seed: int = 0,
    step: Step | None = None,
) -> Iterator[TrialsEpoch]:
    """Train a stack of models, and yield after each epoch.

    A trial whose loss is no longer finite leaves the others as they are; its nll and its weights
    are NaN from then on.

    Args:
        model: made by `stacked`.
        objective: the loss; `strength` and `alpha` may be tensors, one entry a trial.
        x: inputs, (trials, rows, …), on the device to train on.
        y: targets, (trials, rows).
        optimizer: over the parameters of both model and objective.
        epochs: how many.
        batch_size: rows of each trial a step.
        seeds: of the order of rows, one a trial.
        seed: of the weight draws.
        step: one update; `Recorded()` on a GPU.

    Examples:
        >>> import bayesdiv as bd
        >>> from torch.distributions import Normal
        >>> prior = bd.Prior(Normal, loc=0.0, scale=1.0)
        >>> net = bd.stacked([bd.bayesianize(torch.nn.Linear(3, 1), prior) for _ in range(4)])
        >>> objective = bd.Objective(bd.Gaussian(torch.ones(4)), num_data=20)
        >>> optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
        >>> x, y = torch.randn(4, 20, 3), torch.randn(4, 20)
        >>> epochs = fit_trials(net, objective, x, y, optimizer, 2, batch_size=8, seeds=range(4))
        >>> [epoch.nll.shape for epoch in epochs]
        [torch.Size([4]), torch.Size([4])]
    """
    _check(model, objective, x, y, seeds)
    check_optimizer(model, objective, optimizer)
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    step = Eager() if step is None else step
    model.to(x.device)
    objective.to(x.device)
    objective.prepare(model)
    loss_of = _finite_sum(model, objective)
    for number in range(epochs):
        began = time.perf_counter()
        objective.epoch = number
        torch.manual_seed(seed * 1_000_003 + number)
        order = _order(x.shape[1], seeds, number).to(x.device)  # (trials, rows)
        shuffled = _taken(x, order), _taken(y, order)
        parts = zip(*(part.split(batch_size, 1) for part in shuffled), strict=True)
        sums, rows = None, 0
        for batch in parts:
            loss = step(loss_of, batch, optimizer, Tensor.backward)
            scaled = torch.stack([loss.nll, loss.divergence]) * batch[1].shape[1]  # (2, trials)
            sums = scaled if sums is None else sums.add_(scaled)
            rows += batch[1].shape[1]
        assert sums is not None
        nll, divergence = (sums / rows).cpu()  # the one halt of the device in an epoch
        yield TrialsEpoch(number + 1, nll, divergence, time.perf_counter() - began)


def _finite_sum(model: Bayesian, objective: Objective) -> Callable[..., Any]:
    """The loss of a batch: the sum over trials that are still finite, and the parts of each."""

    def loss_of(x: Tensor, y: Tensor) -> Loss:
        posteriors = [model.q()]
        weights = draw_weights(model, objective.samples, posteriors)
        each = objective.each(model, weights, x, y, posteriors)
        total = torch.where(each.total.isfinite(), each.total, 0.0).sum()
        return Loss(total, each.nll, each.divergence.expand_as(each.nll))

    return loss_of


def _order(rows: int, seeds: Sequence[int], epoch: int) -> Tensor:
    """A permutation a trial, from its seed and the epoch alone; equal seeds share one."""
    drawn = {
        own: torch.randperm(rows, generator=torch.Generator().manual_seed(own * 1_000_003 + epoch))
        for own in dict.fromkeys(seeds)
    }
    return torch.stack([drawn[own] for own in seeds])


def _taken(values: Tensor, order: Tensor) -> Tensor:
    trial = torch.arange(len(order), device=order.device).unsqueeze(1)
    return values[trial, order]


def _check(
    model: Bayesian, objective: Objective, x: Tensor, y: Tensor, seeds: Sequence[int]
) -> None:
    trials = model.loc.shape[:-1]
    if len(trials) != 1 or x.shape[:1] != trials or y.shape[:2] != x.shape[:2]:
        raise ValueError(
            f"x and y must begin with the axes (trials, rows) of a stack of {math.prod(trials)}, "
            f"got {tuple(x.shape)} and {tuple(y.shape)}"
        )
    if len(seeds) != len(x):
        raise ValueError(f"seeds must be one a trial, {len(x)}, got {len(seeds)}")
    for name, value in (
        ("strength", objective.strength),
        ("alpha", getattr(objective.divergence, "alpha", None)),
    ):
        wanted = (len(x),) if name == "strength" else (len(x), 1)
        if isinstance(value, Tensor) and value.dim() and value.shape != wanted:
            raise ValueError(
                f"{name} given as a tensor must have shape {wanted}, one a trial, got "
                f"{tuple(value.shape)}"
            )
    if x.shape[1] != objective.num_data:
        raise ValueError(f"num_data must be the rows of x, {x.shape[1]}, got {objective.num_data}")
