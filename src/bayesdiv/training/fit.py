"""The training loop: a generator of epochs, on one device or many, of one model or a stack."""

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_map_only

from bayesdiv.compute.devices import seen_to_fail
from bayesdiv.compute.noise import drawing, turn
from bayesdiv.draws import leaves
from bayesdiv.objective.objective import Loss, LossModule, Objective
from bayesdiv.training.batches import Batches, Unpack, pair
from bayesdiv.training.checks import broken, cautions, check, finite_trials
from bayesdiv.training.steps import Backward, Eager, Step

if TYPE_CHECKING:
    from accelerate import Accelerator

# Spreads the seeds of processes over all that a generator tells apart, its last 32 bits included.
_SPREAD = 0x9E3779B97F4A7C15
_OTHER = 0x5DEECE66D


class EpochLoss(NamedTuple):
    """Means over an epoch: total and nll for one example, divergence for all weights."""

    total: float
    nll: float
    divergence: float


class TrialLosses(NamedTuple):
    """Means over an epoch for each trial of a stack, (trials,), on the CPU; NaN if it diverged."""

    nll: Tensor
    divergence: Tensor


class Epoch(NamedTuple):
    """What `fit` yields; the loss of a stack is the sum over its trials that are finite."""

    number: int
    loss: EpochLoss
    strength: float
    seconds: float
    trials: TrialLosses | None = None


class Diverged(RuntimeError):
    """Raised when a loss is NaN or infinite; names the batch, the term and what to do."""


def default_device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


class Place:
    """As given, else several processes if they were started, else one device, with no wrapper."""

    def __init__(
        self, accelerator: "Accelerator | None", device: torch.device | str | None
    ) -> None:
        started = int(os.environ.get("WORLD_SIZE", "1"))
        if accelerator is None and started > 1:
            from accelerate import Accelerator

            accelerator = Accelerator(cpu=not torch.cuda.is_available())
        self.accelerator, self.rank, self.world = accelerator, 0, 1
        self.backward: Backward = Tensor.backward
        if accelerator is None:
            self.device = default_device() if device is None else torch.device(device)
            return
        self.device, self.backward = accelerator.device, accelerator.backward
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        if started > 1 and self.world == 1:
            told = f"{started} processes were started, but accelerate sees one"
            raise ValueError(f"{told}: on a CPU give accelerator=Accelerator(cpu=True)")

    def prepare(
        self, module: nn.Module, optimizer: Optimizer, batches: Iterable[Any]
    ) -> tuple[nn.Module, Optimizer, Iterable[Any]]:
        """Wrapped by accelerate, if any; a loader then deals its batches out itself."""
        if self.accelerator is not None:
            module, optimizer = self.accelerator.prepare(module, optimizer)
            if isinstance(batches, torch.utils.data.DataLoader):
                batches = self.accelerator.prepare(batches)
                self.rank, self.world = 0, 1
        return module, optimizer, batches


def own_draws(seed: int, rank: int) -> int:
    """Every process draws weights of its own: more draws for the same time. The default."""
    return (seed + rank * _SPREAD) % (1 << 63)


def same_draws(seed: int, rank: int) -> int:
    """All processes draw the same weights: what one process with the whole batch would do."""
    return seed


def fit(
    model: nn.Module,
    objective: Objective,
    batches: Iterable[Any],
    optimizer: Optimizer,
    epochs: int,
    *,
    first: int = 0,
    seed: int | None = None,
    seeding: Callable[[int, int], int] = own_draws,
    step: Step | None = None,
    schedule: LRScheduler | None = None,
    unpack: Unpack = pair,
    transform: Callable[[nn.Module], nn.Module] | None = None,
    autocast: torch.dtype | None = None,
    device: torch.device | str | None = None,
    accelerator: "Accelerator | None" = None,
) -> Iterator[Epoch]:
    """Train, and yield after each epoch; everything else goes into the body of your `for` loop.

    Validate, keep the best weights (`bayesdiv.training.best.Best`) or stop early (`break`) there.
    In several processes, under `torchrun` or `accelerate launch`, each takes its part of every
    batch. The same call trains a stack of trials (`stacked`) with `Batches` that have one seed per
    trial. A trial whose loss is no longer finite is NaN from then on; the others are not affected.

    Args:
        model: a `Bayesian`, a module with some inside, a stack of trials, or a deterministic one.
        objective: the loss.
        batches: `Batches`, a loader of torch, or any iterable, whose `set_epoch` is called.
        optimizer: over the parameters of both model and objective.
        epochs: how many in total.
        first: how many are done already, to resume from a saved state.
        seed: repeats a run exactly; the noise of epoch n depends on it and n alone.
        seeding: what several processes draw their weights from: `own_draws` or `same_draws`.
        step: one update, `Eager()` if None, or `Recorded()`.
        schedule: of the learning rate, stepped after each update.
        unpack: from what a loader yields to inputs and targets, such as `bd.labelled("labels")`.
        transform: applied to the loss module once, such as `torch.compile`.
        autocast: the dtype of activations and drawn weights, such as torch.bfloat16.
        device: where to train; None is the GPU if there is one.
        accelerator: of accelerate, instead of the last two.

    Examples:
        >>> import bayesdiv as bd
        >>> x, y = torch.randn(64, 3), torch.randn(64)
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        >>> objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=64)
        >>> optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
        >>> [epoch.number for epoch in bd.fit(net, objective, bd.Batches(x, y, 16), optimizer, 2)]
        [1, 2]
    """
    check(model, objective, batches, optimizer)
    for caution in cautions(model, objective, batches, optimizer):
        warnings.warn(caution, stacklevel=2)
    place = Place(accelerator, device)
    if len({parameter.device for parameter in model.parameters()}) <= 1:  # else it is parted
        model.to(place.device)
    objective.to(place.device)
    objective.prepare(model)  # after the move: a rule may depend on the device
    module, optimizer, batches = place.prepare(LossModule(model, objective), optimizer, batches)
    module = module if transform is None else transform(module)
    feed = _Feed(batches, pair if isinstance(batches, Batches) else unpack, place)
    update = Eager() if step is None else step

    def loss_of(*arguments: Any) -> Loss:
        x_y_share = feed.opened(arguments)
        with nullcontext() if autocast is None else torch.autocast(place.device.type, autocast):
            loss: Loss = module(*x_y_share)
        return loss

    for number in range(first, epochs):
        began = time.perf_counter()
        objective.epoch = number
        module.train()
        noise = None
        if seed is not None:
            own = seeding(index(seed) * 1_000_003 + number, place.rank)
            noise = _noise(own, compiled=transform is not None)
        if hasattr(batches, "set_epoch"):
            batches.set_epoch(number)
        sums = _Sums()
        for count, (arguments, size) in enumerate(feed, start=1):
            with drawing(noise):
                loss = update(loss_of, arguments, optimizer, place.backward)
            if seen_to_fail(loss.total):
                where = f"batch {count} of epoch {number + 1}"
                raise Diverged(_diagnosis(loss.nll.item(), where, feed.opened(arguments)))
            sums.add(loss, size)
            if schedule is not None:
                schedule.step()
        mean, trials = sums.mean(place, model, objective)
        seconds = time.perf_counter() - began
        yield Epoch(number + 1, mean, objective.strength.report(), seconds, trials)


def _noise(seed: int, *, compiled: bool) -> torch.Generator | None:
    """Where the weights of an epoch are drawn from on a CPU, whatever other threads draw."""
    # All else, such as dropout and noise on a GPU, comes from torch's generator; at another seed,
    # or its masks would be made from the words that the weights are made from. A compiled step
    # knows that generator alone, and draws what a plain one draws.
    # Without an accelerator `torch.manual_seed` would note down a stack trace for one each time.
    alone = not torch.accelerator.is_available()
    set_seed = torch.default_generator.manual_seed if alone else torch.manual_seed
    with turn():
        set_seed(seed if compiled else seed ^ _OTHER)
    return None if compiled else torch.Generator().manual_seed(seed)


class _Feed:
    """The arguments of each step, this process's part of a batch, and how many targets it has."""

    def __init__(self, batches: Iterable[Any], unpack: Unpack, place: Place) -> None:
        self.batches, self.unpack, self.place = batches, unpack, place
        # Batches that live where they are used: a step is given places and gathers there itself.
        here = isinstance(batches, Batches) and batches.y.device == place.device
        self.gathered = cast(Batches, batches) if here else None

    def __iter__(self) -> Iterator[tuple[tuple[Any, ...], int]]:
        here, device = self.gathered, self.place.device
        for found in self.batches if here is None else here.places():
            own: Any = (found,) if here is not None else self.unpack(found)
            if here is None:
                own = tree_map_only(Tensor, lambda t: t.to(device, non_blocking=True), own)
            size = own[-1].numel()
            yield own if self.place.world == 1 else self._part(own), size

    def _part(self, batch: tuple[Any, ...]) -> tuple[Any, ...]:
        """What one of several processes takes, and by how much it is more than an equal part."""
        rank, world, axis = self.place.rank, self.place.world, 0 if self.gathered is None else -1
        whole = batch[-1].shape[axis]
        if whole < world:
            told = f"for each of {world} processes, got {whole}"
            raise ValueError(f"a batch must have an example {told}")
        taken = slice(rank, None, world)
        part = tree_map_only(Tensor, lambda t: t[taken] if axis == 0 else t[..., taken], batch)
        return *part, part[-1].shape[axis] * world / whole

    def opened(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Inputs, targets and the share."""
        here, (first, *rest) = self.gathered, arguments
        return arguments if here is None else (*here.gathered(first), *rest)


class _Sums:
    """Losses of an epoch added up where they are; on a GPU the host waits once, at the end."""

    def __init__(self) -> None:
        self.size, self.sums = 0, list[Tensor]()

    def add(self, loss: Loss, size: int) -> None:
        self.size += size
        parts = [part.detach() for part in loss]
        if self.sums:
            torch._foreach_add_(self.sums, parts, alpha=size)
        else:
            self.sums = [part * size for part in parts]

    def mean(
        self, place: Place, model: nn.Module, objective: Objective
    ) -> tuple[EpochLoss, TrialLosses | None]:
        """The means, after a look at the weights: the last step of an epoch shows in no loss."""
        if not self.sums:
            raise ValueError("batches must yield at least one batch per epoch, got none")
        whole: Any = torch.cat([part.reshape(-1) for part in self.sums]) / self.size
        if place.accelerator is not None:
            whole = place.accelerator.reduce(whole, reduction="mean")
        total, *rest = whole.cpu().unbind()
        nll, divergence = torch.stack(rest).chunk(2)
        if self.sums[1].dim():
            fine, finite = finite_trials(model), nll.isfinite() & divergence.isfinite()
            parts = [torch.where(finite, part, 0.0).sum().item() for part in (nll, divergence)]
            trials = [torch.where(fine, part, torch.nan) for part in (nll, divergence)]
            return EpochLoss(total.item(), *parts), TrialLosses(*trials)
        where, name = f"epoch {objective.epoch + 1}", broken(model, objective)
        if not math.isfinite(total.item()):
            raise Diverged(_diagnosis(nll.item(), where, ()))
        if name is not None:
            told = f"{name} is NaN or infinite after {where}, by a gradient that was"
            raise Diverged(f"{told}: lower the learning rate, or clip gradients")
        return EpochLoss(total.item(), nll.item(), divergence.item()), None


def _diagnosis(nll: float, where: str, batch: tuple[Any, ...]) -> str:
    data = [tensor for tensor in leaves(batch) if tensor.is_floating_point()]
    if not all(bool(tensor.isfinite().all()) for tensor in data):
        return f"the data of {where} hold NaN or infinite values: clean them first"
    if not math.isfinite(nll):
        told, advice = f"nll of {where} is {nll}", "standardise inputs and targets, or start the"
        return f"the {told}: lower the learning rate, {advice} noise scale higher"
    remedy = "use JSA, which is bounded, a prior whose support holds the posterior"
    start = "a wider start, such as bayesianize(…, start=0.8)"
    return f"the divergence in {where} is not finite: {remedy}, or {start}"
