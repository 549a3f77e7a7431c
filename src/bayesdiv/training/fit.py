"""The training loop: a generator of epochs, on one device or many."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesdiv.objective.objective import Constraint, Loss, Objective, WarmUp
from bayesdiv.training.steps import Eager, Step

if TYPE_CHECKING:
    from accelerate import Accelerator

Batch = tuple[Tensor, Tensor]


class EpochLoss(NamedTuple):
    """Means over an epoch: total and nll for one example, divergence for all weights."""

    total: float
    nll: float
    divergence: float


class Epoch(NamedTuple):
    """What `fit` yields: the epoch's number from 1, its loss, the strength, the time it took."""

    number: int
    loss: EpochLoss
    strength: float
    seconds: float


class Diverged(RuntimeError):
    """Raised when a loss is NaN or infinite: names the batch, the term and what to do."""


class Batches:
    """Tensors in memory, shuffled anew in each epoch and cut into batches; the last may be short.

    Args:
        x: inputs, examples along the first axis.
        y: targets.
        size: examples a batch.
        seed: what the order of epoch n is drawn from, together with n, so that it can be repeated.

    Examples:
        >>> [len(y) for x, y in Batches(torch.zeros(5, 2), torch.zeros(5), size=2)]
        [2, 2, 1]
    """

    def __init__(self, x: Tensor, y: Tensor, size: int, seed: int = 0) -> None:
        if len(x) != len(y):
            raise ValueError(f"x and y must have as many examples, got {len(x)} and {len(y)}")
        if len(x) == 0:
            raise ValueError("there must be at least one example, got 0")
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self.x, self.y, self.size, self.seed = x, y, size, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Take the order of this epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(len(self.x) / self.size)

    def __iter__(self) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.x), generator=generator).to(self.x.device)
        for places in order.split(self.size):
            yield self.x[places], self.y[places]


def own_draws(seed: int, rank: int) -> int:
    """Every process draws weights of its own: more draws for the same time. The default."""
    return seed + 7919 * rank


def same_draws(seed: int, rank: int) -> int:
    """All processes draw the same weights: what one process with the whole batch would do."""
    return seed


class _Together(nn.Module):
    """Objective over model: the module whose forward is the loss, so that gradients synchronise."""

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        super().__init__()
        self.objective = objective
        self.model = model

    def forward(self, x: Tensor, y: Tensor, share: float = 1.0) -> Loss:
        loss = cast(Loss, self.objective(self.model, x, y))
        # Ranks are averaged alike, so the nll of a rank with more of the batch counts for more.
        own = share * loss.nll
        return Loss(loss.total + (own - loss.nll), own, loss.divergence) if share != 1.0 else loss


def fit(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[Batch],
    optimizer: Optimizer,
    epochs: int,
    *,
    first: int = 0,
    seed: int | None = None,
    seeding: Callable[[int, int], int] = own_draws,
    step: Step | None = None,
    transform: Callable[[nn.Module], nn.Module] | None = None,
    accelerator: "Accelerator | None" = None,
) -> Iterator[Epoch]:
    """Train, and yield after each epoch; what else is to happen is the body of your `for`.

    Validation, a schedule, keeping the best weights, early stopping (`break`) are lines of the
    caller. Runs on one device, or on several processes under `torchrun` or `accelerate launch`,
    where each takes its part of every batch.

    Args:
        model: a `Bayesian`, a module with some inside, or a deterministic one.
        objective: the loss.
        batches: of inputs and targets; iterated once an epoch, `set_epoch` called if there is one.
        optimizer: over the parameters of both model and objective.
        epochs: how many in all.
        first: how many are done already, to go on from a saved state.
        seed: repeats a run exactly; the noise of epoch n is drawn from it and n alone.
        seeding: what several processes draw their weights from: `own_draws` or `same_draws`.
        step: one update; None is `Eager()`.
        transform: applied to the loss module once, such as `torch.compile`.
        accelerator: for another device or mixed precision, `Accelerator(mixed_precision="bf16")`.

    Examples:
        >>> import bayesdiv as bd
        >>> from torch.distributions import Normal
        >>> x, y = torch.randn(64, 3), torch.randn(64)
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.Prior(Normal, loc=0.0, scale=1.0))
        >>> objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=64)
        >>> optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
        >>> [epoch.number for epoch in bd.fit(net, objective, bd.Batches(x, y, 16), optimizer, 2)]
        [1, 2]
    """
    from accelerate import Accelerator

    _check(model, objective, batches, optimizer)
    step = Eager() if step is None else step
    accelerator = accelerator or Accelerator()
    model.to(accelerator.device)
    objective.prepare(model)  # after the move: a rule may depend on the device
    together: nn.Module = _Together(objective, model)
    together, optimizer = accelerator.prepare(together, optimizer)
    together = together if transform is None else transform(together)
    rank, world = accelerator.process_index, accelerator.num_processes
    if isinstance(batches, torch.utils.data.DataLoader):
        batches, place = accelerator.prepare(batches), (0, 1)  # which deals the batches out itself
    else:
        place = (rank, world)
    for number in range(first, epochs):
        began = time.perf_counter()
        objective.epoch = number
        together.train()
        if seed is not None:
            torch.manual_seed(seeding(seed * 1_000_003 + number, rank))
        if hasattr(batches, "set_epoch"):
            batches.set_epoch(number)
        losses, sizes = [], []
        for index, batch in enumerate(batches):
            own = _own_part(batch, accelerator.device, *place)
            loss = step(together, own, optimizer, accelerator.backward)
            losses.append(_checked(loss, own, index, number))
            sizes.append(batch[1].numel())  # targets, so that leading trials do not matter
        if not losses:
            raise ValueError("batches must yield at least one batch an epoch, got none")
        mean = _mean(losses, sizes, number, accelerator)
        yield Epoch(number + 1, mean, _strength(objective), time.perf_counter() - began)


def _check(
    model: nn.Module, objective: Objective, batches: Iterable[Batch], optimizer: Optimizer
) -> None:
    """What is easily forgotten, and would train another model than was meant."""
    if isinstance(batches, Batches) and len(batches.x) != objective.num_data:
        raise ValueError(
            f"num_data must be the number of training examples, {len(batches.x)} in batches, got "
            f"{objective.num_data}"
        )
    check_optimizer(model, objective, optimizer)


def check_optimizer(model: nn.Module, objective: Objective, optimizer: Optimizer) -> None:
    """Refuse an optimizer that lacks a parameter that is to learn."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for name, part in (("model", model), ("objective", objective)):
        for key, parameter in part.named_parameters():
            if parameter.requires_grad and id(parameter) not in held:
                raise ValueError(
                    f"the optimizer must hold every parameter of the {name} that is to learn, it "
                    f"lacks {key}: add {name}.parameters(), or fix it by requires_grad_(False)"
                )


def _own_part(batch: Batch, device: torch.device, rank: int, world: int) -> tuple[Any, ...]:
    """This process's part of a batch, and by how much it is larger than an equal part."""
    x, y = (tensor.to(device, non_blocking=True) for tensor in batch)
    if world == 1:
        return x, y
    if len(x) < world:
        raise ValueError(
            f"a batch must have an example for each of {world} processes, got {len(x)}"
        )
    own = x[rank::world], y[rank::world]
    return (*own, len(own[0]) * world / len(x))


def _checked(loss: Loss, batch: tuple[Any, ...], index: int, epoch: int) -> Loss:
    """The loss, if finite; on a GPU it is looked at once an epoch, not to halt every step."""
    if loss.total.device.type != "cpu" or bool(loss.total.isfinite()):
        return loss
    raise Diverged(_diagnosis(loss.nll.item(), index, epoch, batch))


def _diagnosis(nll: float, index: int, epoch: int, batch: tuple[Any, ...] | None) -> str:
    where = f"batch {index + 1} of epoch {epoch + 1}"
    if batch is not None and not all(
        bool(part.isfinite().all()) for part in batch[:2] if part.is_floating_point()
    ):
        return f"the data of {where} hold NaN or infinite values: clean them first"
    if not math.isfinite(nll):
        return (
            f"the nll of {where} is {nll}: lower the learning rate, standardise inputs and "
            "targets, or start the noise scale higher"
        )
    return (
        f"the divergence in {where} is not finite: use JSA, which is bounded, a prior whose "
        "support holds the posterior, or a larger start scale"
    )


def _mean(
    losses: list[Loss], sizes: list[int], epoch: int, accelerator: "Accelerator"
) -> EpochLoss:
    stacked = torch.stack([torch.stack(loss) for loss in losses])  # (batches, 3)
    if not bool(stacked[:, 0].isfinite().all()):
        index = int((~stacked[:, 0].isfinite()).nonzero()[0])
        raise Diverged(_diagnosis(stacked[index, 1].item(), index, epoch, None))
    weights = torch.tensor(sizes, dtype=stacked.dtype, device=stacked.device)
    mean = (stacked * weights.unsqueeze(1)).sum(0) / weights.sum()
    mean = cast(Tensor, accelerator.reduce(mean, reduction="mean"))
    return EpochLoss(*mean.tolist())


def _strength(objective: Objective) -> float:
    strength = objective.strength
    if isinstance(strength, Constraint):
        return strength.strength.item()
    if isinstance(strength, Tensor):
        return strength.mean().item()  # of a stack whose trials have their own
    return strength.value(objective.epoch) if isinstance(strength, WarmUp) else float(strength)
