"""The image experiments of the paper: ResNet-18 without batch norm, one network per run.

A run is described by what all losses share (`Protocol`), what one loss chooses (`Setting`) and how
the machine goes about it (`Execution`), which changes speed and rounding alone. It is trained by
`bayesdiv.fit`, with images that stay on the device; on a GPU its steps are recorded.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.optim.lr_scheduler import LambdaLR

import bayesdiv
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.nets.images import ResNet
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.model.bayesianize import bayesianize
from bayesdiv.model.posteriors import Point
from bayesdiv.objective.objective import Objective
from bayesdiv.training.best import Best
from bayesdiv.training.fit import Diverged, fit
from reproduction.contenders import CONTENDERS
from reproduction.hardware import hardware
from reproduction.images.assessing import Network, accuracy, assessed, nll, predicted
from reproduction.images.inputs import Execution, seen, shown
from reproduction.images.protocol import OURS, Protocol, Setting
from reproduction.item import Tell

PARTS = ("train", "validation", "test")


class Called(Categorical):
    """Classes that count, as their probabilities are asked for, how often the largest is right."""

    def __init__(self, logits: Tensor, hits: Tensor) -> None:
        super().__init__(logits=logits, validate_args=False)
        self.hits = hits

    def log_prob(self, value: Tensor) -> Tensor:
        """Log probability of the classes."""
        self.hits.add_((self.logits.detach().argmax(-1) == value).double().mean())
        return cast(Tensor, super().log_prob(value))  # type: ignore[no-untyped-call]


class Counting(nn.Module):
    """The likelihood of classes in float32, with the share of them called right, step by step."""

    hits: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hits", torch.zeros((), dtype=torch.float64))

    def forward(self, outputs: Tensor) -> Called:
        """The distribution of the labels."""
        return Called(outputs.float(), self.hits)


def build(data: Splits, setting: Setting, protocol: Protocol, execution: Execution) -> Network:
    """The network before training, on the device of the data."""
    classes = int(max(part.y.max() for part in data.parts)) + 1
    network = ResNet(classes=max(classes, 2), stem=protocol.stem, width=protocol.width).build()
    network = network.to(memory_format=execution.images)  # type: ignore[call-overload]
    contender = CONTENDERS[setting.contender]
    # A point estimate has no scale that could shrink: its Gaussian is the prior's.
    start = 1.0 if contender.posterior is Point else setting.start
    model: Bayesian = bayesianize(
        network, protocol.prior, posterior=contender.posterior, start=start
    ).to(data.train.x.device)
    return Network(model, setting, protocol, execution)


class _Line(NamedTuple):
    """What an epoch of training came to."""

    number: int
    nll: float
    divergence: float
    accuracy: float
    seconds: float


class Training:
    """One network in training: what `fit` is given, and what it yields.

    Args:
        network: before training.
        data: on the device that is to compute.
        seed: of order and noise.
    """

    def __init__(self, network: Network, data: Splits, seed: int) -> None:
        model, setting, protocol, execution = network
        self.network, self.seed = network, seed
        x, y = data.train
        size = min(protocol.batch_size, len(y))
        self.batches = protocol.order(
            x, y, size, seed, lambda some: seen(some, protocol.pixels, execution)
        )
        self.counting = Counting()
        self.objective = Objective(
            self.counting, network.divergence, num_data=len(y), strength=setting.strength
        )
        on_gpu = x.device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=setting.learning_rate, fused=True, capturable=on_gpu
        )
        steps = len(self.batches)
        self.schedule = LambdaLR(
            self.optimizer, lambda done: protocol.schedule(done / steps, protocol.epochs)
        )

    def epochs(self) -> Iterator[_Line]:
        """A line per epoch, as they end; raises `Diverged`."""
        model, _, protocol, execution = self.network
        autocast = None if execution.dtype == torch.float32 else execution.dtype
        steps = len(self.batches)
        for epoch in fit(
            model,
            self.objective,
            self.batches,
            self.optimizer,
            protocol.epochs,
            seed=self.seed,
            step=execution.stepping(),
            schedule=self.schedule,
            autocast=autocast,
            device=model.loc.device,
        ):
            right = float(self.counting.hits) / steps
            divergence = epoch.loss.divergence if self.network.learns_scale else 0.0
            yield _Line(epoch.number, epoch.loss.nll, divergence, right, epoch.seconds)
            self.counting.hits.zero_()


def run(
    data: Splits,
    setting: Setting,
    protocol: Protocol = OURS,
    *,
    seed: int = 0,
    execution: Execution | None = None,
    tell: Tell = lambda line: None,
) -> dict[str, Any]:
    """Train one network; the result as it is written to disk.

    Args:
        data: on the device that is to compute: uint8 patches, or floats of CIFAR with noise.
        setting: of the loss.
        protocol: what all losses share.
        seed: of weights, order and noise.
        execution: how; None is what is fastest on the device.
        tell: called with a line per epoch.
    """
    began = time.perf_counter()
    device = data.train.x.device
    execution = Execution.of(device) if execution is None else execution
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
    torch.manual_seed(seed)
    network = build(data, setting, protocol, execution)
    kept = shown(data, protocol, execution)
    history, best, diverged = _trained(network, kept, seed, tell)
    at_end = at_best = None
    wanted = protocol.test_samples > 0
    if wanted and history and diverged is None:
        at_end = assessed(network, kept, history[-1]["epoch"])
    number = best.restore()
    if wanted and number:
        same = at_end is not None and number == at_end["epoch"]
        at_best = at_end if same else assessed(network, kept, number)
    return {
        "setting": asdict(setting),
        "protocol": protocol.told(),
        "seed": seed,
        "sizes": {name: len(part.y) for name, part in zip(PARTS, data.parts, strict=True)},
        "weights": network.model.layout.size,
        "history": history,
        "diverged": diverged is not None,
        "diverged_epoch": diverged,
        "best_epoch": number or None,
        "at_best": at_best,
        "at_end": at_end,
        "seconds_per_epoch": _typical([line["seconds"] for line in history]),
        "seconds": time.perf_counter() - began,
        "execution": execution.told(),
        "hardware": hardware(device),
        "torch": torch.__version__,
        "version": bayesdiv.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _trained(
    network: Network, data: Splits, seed: int, tell: Tell
) -> tuple[list[dict[str, Any]], Best, int | None]:
    """A line per epoch, the best epoch's weights, and the epoch that diverged, if any.

    The best epoch is the first of those with the highest validation accuracy at the mean.
    """
    history: list[dict[str, Any]] = []
    best = Best(model=network.model)
    try:
        for epoch in Training(network, data, seed).epochs():
            validated = _validated(network, data, epoch.number)
            history.append(
                {
                    "epoch": epoch.number,
                    "nll": epoch.nll,
                    "divergence": epoch.divergence,
                    "train_accuracy": epoch.accuracy,
                    **validated,
                    "seconds": epoch.seconds,
                }
            )
            best.after(epoch.number, -validated["validation_accuracy"])
            tell(
                f"epoch {epoch.number}: nll {epoch.nll:.3f}, training {epoch.accuracy:.1%}, "
                f"validation {validated['validation_accuracy']:.1%}, {epoch.seconds:.1f} s"
            )
    except Diverged:
        number = len(history) + 1
        tell(f"diverged in epoch {number}")
        return history, best, number
    return history, best, None


def _validated(network: Network, data: Splits, number: int) -> dict[str, Any]:
    """Validation accuracy and nll at the mean, and at some epochs averaged over a few draws."""
    part, protocol = data.validation, network.protocol
    at_mean = predicted(network, part)
    told: dict[str, Any] = {
        "validation_accuracy": accuracy(at_mean, part.y),
        "validation_nll": nll(at_mean, part.y),
        "validation_accuracy_averaged": None,
        "validation_nll_averaged": None,
    }
    if number % protocol.averaged_every == 0 or number == protocol.epochs:
        averaged = predicted(network, part, protocol.validation_samples)
        told["validation_accuracy_averaged"] = accuracy(averaged, part.y)
        told["validation_nll_averaged"] = nll(averaged, part.y)
    return told


def _typical(seconds: Sequence[float]) -> float | None:
    """The median without the first epoch, in which kernels are chosen and steps recorded."""
    later = sorted(seconds[1:] or seconds)
    return later[len(later) // 2] if later else None
