"""The image experiments of the paper: ResNet-18 without batch norm, one network a run.

A run is told by what all losses share (`Protocol`), what one loss chooses (`Setting`) and how the
machine goes about it (`Execution`), which changes speed and rounding alone. Images stay on the
device; a step takes its batch there by index, resizes it, draws all weights once and updates them:
on a GPU the whole of it is a recorded graph. The host waits once an epoch.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import bayesdiv
from bayesdiv import metrics
from bayesdiv.app.data.images import complement, resized
from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.app.nets.resnet import ResNet
from bayesdiv.compute.backend import prepare
from bayesdiv.divergence.auto import Auto
from bayesdiv.model.bayesian import Bayesian, bayesianize
from bayesdiv.model.posteriors.mean_field import MeanField
from bayesdiv.model.posteriors.point import Point
from bayesdiv.predictive import Predictive
from bayesdiv.training.steps import aside
from reproduction.contenders import CONTENDERS
from reproduction.hardware import hardware
from reproduction.images.protocol import (
    OURS,
    Protocol,
    Setting,
    in_order,
    readable,
)
from reproduction.item import Tell

ROC_POINTS = 200
ROOM = 1 << 32
"""Bytes of images that are resized once and kept; more are resized in each step."""
_AT_A_TIME = 2000  # images that are resized together
_WARM_STEPS = 2  # before a recording: they build the optimizer's state and choose algorithms
PARTS = ("train", "validation", "test")


def as_stored(kernel: Tensor) -> Tensor:
    """A convolution's weights in the order of torch: output, input, height, width."""
    return kernel


def converted(kernel: Tensor) -> Tensor:
    """The same, copied in each step to where channels come last."""
    return kernel.contiguous(memory_format=torch.channels_last) if kernel.dim() == 4 else kernel


def channels_last(kernel: Tensor) -> Tensor:
    """The flat vector read as if channels came last: no copy, forward or backward."""
    if kernel.dim() != 4:
        return kernel
    outputs, inputs, height, width = kernel.shape
    return kernel.reshape(outputs, height, width, inputs).permute(0, 3, 1, 2)


class Plain:
    """Steps one by one."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.step = step

    def __call__(self) -> None:
        """One step."""
        self.step()


class Recorded:
    """The first steps as usual, then a CUDA graph of one step, replayed."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.step = step
        self.done = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """One step."""
        if self.done < _WARM_STEPS:
            aside(self.step)
            self.done += 1
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.step()
        self.graph.replay()


@dataclass(frozen=True)
class Execution:
    """How a machine goes about a run: speed and rounding, nothing else.

    Args:
        dtype: of images, weights and activations inside the network; loc, rho, loss and divergence
            are float32 whatever it is.
        kernels: how the flat weights are read as convolutions: `as_stored`, `converted` or
            `channels_last`.
        images: memory format of the images.
        stepping: `Recorded` or `Plain`.
    """

    dtype: torch.dtype = torch.float32
    kernels: Callable[[Tensor], Tensor] = as_stored
    images: torch.memory_format = torch.contiguous_format
    stepping: Callable[[Callable[[], None]], Callable[[], None]] = Plain

    @classmethod
    def of(cls, device: torch.device) -> "Execution":
        """What is fastest on this device."""
        if device.type != "cuda":
            return cls()
        return cls(torch.bfloat16, channels_last, torch.channels_last, Recorded)


def seen(x: Tensor, pixels: int, execution: Execution) -> Tensor:
    """Stored images as the network takes them.

    Pixels from 0 to 255 are complemented, (255 - p)/255, as the paper does for histopathology;
    floats are those of CIFAR with their noise.
    """
    x = x.to(execution.dtype) if x.is_floating_point() else complement(x, execution.dtype)
    if x.shape[-1] != pixels:
        x = resized(x, pixels)
    return x.contiguous(memory_format=execution.images)


def shown(data: Splits, protocol: Protocol, execution: Execution) -> Splits:
    """All images as the network takes them, where they are few enough to be kept; else as stored.

    At 64 pixels resizing would be a tenth of a step; at 224 all images would not leave much room.
    """
    pixels = sum(len(part.x) for part in data.parts) * 3 * protocol.pixels**2
    if pixels * execution.dtype.itemsize > ROOM:
        return data

    def whole(x: Tensor) -> Tensor:
        pieces = [seen(piece, protocol.pixels, execution) for piece in x.split(_AT_A_TIME)]
        return torch.cat(pieces).contiguous(memory_format=execution.images)

    return data.mapped(lambda part: Part(whole(part.x), part.y))


def taken(x: Tensor, at: Tensor) -> Tensor:
    """Some of the images, in the memory format in which they lie."""
    if x.is_contiguous():
        return x[at]
    return x.permute(0, 2, 3, 1)[at].permute(0, 3, 1, 2)


def outputs(model: Bayesian, weights: Tensor, x: Tensor, execution: Execution) -> Tensor:
    """Logits in float32 for one draw of the weights."""
    tensors = model.layout.unflatten(weights)
    kernels = {name: execution.kernels(tensor) for name, tensor in tensors.items()}
    found = functional_call(model.module, kernels, (x,), tie_weights=False)
    return cast(Tensor, found).float()


class _Sums(NamedTuple):
    """Means over the steps of an epoch."""

    nll: float
    divergence: float
    accuracy: float


class Training:
    """One network in training: its parameters, its optimizer and what a step reads and writes."""

    def __init__(
        self, data: Splits, setting: Setting, protocol: Protocol, seed: int, execution: Execution
    ) -> None:
        device = data.train.x.device
        data = shown(data, protocol, execution)
        self.data, self.setting, self.protocol, self.execution = data, setting, protocol, execution
        self.device = device
        torch.manual_seed(seed)
        self.model = _network(data, setting, protocol).to(device)
        rate = torch.tensor(setting.learning_rate, device=device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=rate, fused=True, capturable=device.type == "cuda"
        )
        self.rate = rate
        self.num_data = len(data.train.y)
        self.batch_size = min(protocol.batch_size, self.num_data)
        self.steps = self.num_data // self.batch_size
        self.order = in_order(self.num_data, device)
        self.places = torch.arange(self.batch_size, device=device)
        self.position = torch.zeros((), dtype=torch.long, device=device)
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)
        self.learns_scale = isinstance(self.model.posterior, MeanField)
        contender = CONTENDERS[setting.contender]
        self.divergence = contender.divergence(setting.alpha or 0.0)
        if self.learns_scale:
            q, p = self.model.q(), self.model.p()
            self.total = prepare(Auto(), self.divergence, q, p)

    def step(self) -> None:
        """One update; nothing in it waits for the device or depends on the host."""
        self.optimizer.zero_grad(set_to_none=True)
        at = self.order[self.position + self.places]
        x = seen(taken(self.data.train.x, at), self.protocol.pixels, self.execution)
        y = self.data.train.y[at]
        weights, divergence = self.drawn()
        logits = outputs(self.model, weights, x, self.execution)
        nll = cross_entropy(logits, y)
        total = nll
        if self.setting.strength > 0:
            total = nll + self.setting.strength / self.num_data * divergence
        total.backward()
        self.optimizer.step()
        hits = (logits.detach().argmax(-1) == y).double().mean()
        self.sums += torch.stack([nll.detach().double(), divergence.detach().double(), hits])
        self.position += self.batch_size

    def drawn(self) -> tuple[Tensor, Tensor]:
        """One draw of the weights, and the divergence; a point estimate has neither noise nor D."""
        if not self.learns_scale:
            loc = cast(Tensor, self.model.posterior.loc)
            return loc.to(self.execution.dtype), loc.new_zeros(())
        weights, divergence = self.total.draw_and_total(
            self.model.q(), self.model.p(), 1, self.execution.dtype
        )
        return weights[0], divergence

    def epoch(self, number: int, step: Callable[[], None]) -> _Sums:
        """All steps of an epoch, counted from 0; the host waits at its end."""
        self.order.copy_(self.protocol.order(self.num_data, self.device))
        self.position.zero_()
        self.sums.zero_()
        for index in range(self.steps):
            factor = self.protocol.schedule(number + index / self.steps, self.protocol.epochs)
            self.rate.fill_(self.setting.learning_rate * factor)
            step()
        return _Sums(*(self.sums / self.steps).tolist())

    def kept(self) -> list[Tensor]:
        """A copy of the parameters, on the device."""
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def restore(self, kept: Sequence[Tensor]) -> None:
        """Put kept parameters back."""
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), kept, strict=True):
                parameter.copy_(value)


def _network(data: Splits, setting: Setting, protocol: Protocol) -> Bayesian:
    classes = int(max(part.y.max() for part in data.parts)) + 1
    network = ResNet(classes=max(classes, 2), stem=protocol.stem, width=protocol.width).build()
    contender = CONTENDERS[setting.contender]
    # A point estimate has no scale that could shrink: its Gaussian is the prior's.
    start = 1.0 if contender.posterior is Point else setting.start
    return bayesianize(network, protocol.prior, posterior=contender.posterior, start=start)


@torch.no_grad()
def predicted(training: Training, part: Part, samples: int | None = None) -> Predictive:
    """Predictions of a part: at the posterior mean, or averaged over draws that are always alike.

    Args:
        training: the network as it stands.
        part: images and labels.
        samples: how many draws; None is the mean.
    """
    model, execution, protocol = training.model, training.execution, training.protocol
    loc = cast(Tensor, model.posterior.loc)
    count = samples if samples is not None and training.learns_scale else 0
    scale = cast(MeanField, model.posterior).scale if count else loc
    # Its own generator: neither the noise of training nor its recording is disturbed.
    generator = torch.Generator(loc.device).manual_seed(0)
    found = []
    for _ in range(max(count, 1)):
        noise = torch.empty_like(loc).normal_(generator=generator) if count else 0.0 * loc
        weights = torch.addcmul(loc, scale, noise).to(execution.dtype)
        pieces = (
            outputs(model, weights, seen(x, protocol.pixels, execution), execution)
            for x in part.x.split(protocol.evaluation_size)
        )
        found.append(torch.cat(list(pieces)))
    return Predictive(Categorical(logits=torch.stack(found), validate_args=False))  # (S, N, C)


def accuracy(predictive: Predictive, y: Tensor) -> float:
    """Share of labels that have the largest mean probability."""
    return float((predictive.probabilities.argmax(-1) == y).double().mean())


def nll(predictive: Predictive, y: Tensor) -> float:
    """Mean negative log-likelihood of the mixture of all draws."""
    return float(metrics.nll(predictive, y))


@torch.no_grad()
def penalty(training: Training) -> float:
    """The divergence of all weights as they stand; 0 for a point estimate."""
    if not training.learns_scale:
        return 0.0
    model = training.model
    return float(training.divergence(model.q(), model.p()).double().sum())


def pull(training: Training) -> dict[str, float]:
    """How hard the loss draws the means of the weights to the prior: λ|∂D/∂m|.

    In nats per unit of the weight: mean, median and the deciles at both ends. A point estimate is
    not drawn at all.
    """
    model = training.model
    loc = cast(Tensor, model.posterior.loc).detach().clone().requires_grad_()
    if not training.learns_scale:
        return dict.fromkeys(("mean", "low", "median", "high"), 0.0)
    q = Normal(loc, cast(MeanField, model.posterior).scale.detach())
    (slope,) = torch.autograd.grad(training.divergence(q, model.p()).sum(), loc)
    found = training.setting.strength * slope.abs().double()
    low, median, high = found.quantile(found.new_tensor([0.1, 0.5, 0.9])).tolist()
    return {"mean": found.mean().item(), "low": low, "median": median, "high": high}


def right(predictive: Predictive, y: Tensor) -> str:
    """Which rows were called right, a bit each, in hexadecimal: what a bootstrap of rows needs."""
    called = predictive.probabilities.argmax(-1) == y
    return np.packbits(called.cpu().numpy()).tobytes().hex()


def scores(predictive: Predictive, y: Tensor, penalised: float) -> dict[str, Any]:
    """What a table says of predictions; with two classes also who was missed.

    The loss is the paper's, (λ D + Σ nll)/N with N the number of these images.

    Args:
        predictive: of the images.
        y: their labels.
        penalised: λ D.
    """
    likelihood = nll(predictive, y)
    told: dict[str, Any] = {
        "accuracy": accuracy(predictive, y),
        "nll": likelihood,
        "loss": penalised / len(y) + likelihood,
        "ece": float(metrics.ece(predictive, y)),
    }
    if predictive.probabilities.shape[-1] == 2:
        counts = metrics.confusion(predictive, y)
        told |= {"confusion": counts.tolist(), "false_negatives": int(counts[1, 0])}
        if len(y.unique()) == 2:
            told |= {"auc": float(metrics.auroc(predictive, y)), "roc": _thin(predictive, y)}
    return told


def _thin(predictive: Predictive, y: Tensor) -> dict[str, list[float]]:
    """A ROC curve of few enough points to be kept."""
    curve = metrics.roc(predictive, y)
    last = len(curve.thresholds) - 1
    count = min(ROC_POINTS, last + 1)
    at = torch.linspace(0, last, count, dtype=torch.float64).round().long().to(y.device)
    sides = {
        name: getattr(curve, name)[at] for name in ("false_positive_rate", "true_positive_rate")
    }
    return {name: [round(rate, 5) for rate in side.tolist()] for name, side in sides.items()}


def assessed(training: Training, epoch: int) -> dict[str, Any]:
    """All scores of the network as it stands, at the mean and averaged over draws."""
    train, validation, test = training.data.parts
    samples = training.protocol.test_samples
    divergence = penalty(training)
    penalised = training.setting.strength * divergence
    told: dict[str, Any] = {"epoch": epoch, "divergence": divergence}
    for name, part in (("validation", validation), ("test", test)):
        at_mean = predicted(training, part)
        told[name] = {
            "mean": scores(at_mean, part.y, penalised),
            "averaged": scores(predicted(training, part, samples), part.y, penalised),
        }
        if name == "test":
            told[name]["mean"]["right"] = right(at_mean, part.y)
        if name == "validation":
            for each in told[name].values():
                each.pop("roc", None)  # the figure shows the test images
    fitted = accuracy(predicted(training, train), train.y)
    return {
        **told,
        "train_accuracy": fitted,
        "gap": fitted - told["validation"]["mean"]["accuracy"],
        "pull": pull(training),
    }


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
        tell: called with a line an epoch.
    """
    began = time.perf_counter()
    device = data.train.x.device
    execution = Execution.of(device) if execution is None else execution
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
    training = Training(data, setting, protocol, seed, execution)
    history, best, diverged = _trained(training, tell)
    at_end = at_best = None
    wanted = protocol.test_samples > 0
    if wanted and history and diverged is None:
        at_end = assessed(training, history[-1]["epoch"])
    if wanted and best is not None:
        number, kept = best
        training.restore(kept)
        same = at_end is not None and number == at_end["epoch"]
        at_best = at_end if same else assessed(training, number)
    return {
        "setting": asdict(setting),
        "protocol": protocol.told(),
        "seed": seed,
        "sizes": {name: len(part.y) for name, part in zip(PARTS, data.parts, strict=True)},
        "weights": training.model.layout.size,
        "history": history,
        "diverged": diverged is not None,
        "diverged_epoch": diverged,
        "best_epoch": None if best is None else best[0],
        "at_best": at_best,
        "at_end": at_end,
        "seconds_per_epoch": _typical([line["seconds"] for line in history]),
        "seconds": time.perf_counter() - began,
        "execution": {
            each.name: readable(getattr(execution, each.name)) for each in fields(execution)
        },
        "hardware": hardware(device),
        "torch": torch.__version__,
        "version": bayesdiv.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


_Best = tuple[int, list[Tensor]]


def _trained(
    training: Training, tell: Tell
) -> tuple[list[dict[str, Any]], _Best | None, int | None]:
    """A line an epoch, the best epoch with its parameters, and the epoch that diverged, if any.

    The best epoch is the first of those with the highest validation accuracy at the mean.
    """
    # Not kept in `training`, which would then hold itself, and its memory, beyond its use.
    step = training.execution.stepping(training.step)
    history: list[dict[str, Any]] = []
    best, highest = None, -math.inf
    for number in range(1, training.protocol.epochs + 1):
        began = time.perf_counter()
        sums = training.epoch(number - 1, step)
        seconds = time.perf_counter() - began
        if not (math.isfinite(sums.nll) and math.isfinite(sums.divergence)):
            tell(f"diverged in epoch {number}")
            return history, best, number
        line = {
            "epoch": number,
            "nll": sums.nll,
            "divergence": sums.divergence,
            "train_accuracy": sums.accuracy,
            **_validated(training, number),
            "seconds": seconds,
        }
        history.append(line)
        if line["validation_accuracy"] > highest:
            highest, best = line["validation_accuracy"], (number, training.kept())
        tell(
            f"epoch {number}: nll {sums.nll:.3f}, training {sums.accuracy:.1%}, validation "
            f"{line['validation_accuracy']:.1%}, {seconds:.1f} s"
        )
    return history, best, None


def _validated(training: Training, number: int) -> dict[str, Any]:
    """Validation accuracy and nll at the mean, and at some epochs averaged over a few draws."""
    part, protocol = training.data.validation, training.protocol
    at_mean = predicted(training, part)
    told: dict[str, Any] = {
        "validation_accuracy": accuracy(at_mean, part.y),
        "validation_nll": nll(at_mean, part.y),
        "validation_accuracy_averaged": None,
        "validation_nll_averaged": None,
    }
    if number % protocol.averaged_every == 0 or number == protocol.epochs:
        averaged = predicted(training, part, protocol.validation_samples)
        told["validation_accuracy_averaged"] = accuracy(averaged, part.y)
        told["validation_nll_averaged"] = nll(averaged, part.y)
    return told


def _typical(seconds: Sequence[float]) -> float | None:
    """The median without the first epoch, in which kernels are chosen and steps recorded."""
    later = sorted(seconds[1:] or seconds)
    return later[len(later) // 2] if later else None
