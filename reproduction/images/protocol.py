"""What the image experiments share, what one loss chooses, and the losses themselves."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv.app.nets.images import Stem, imagenet_stem
from bayesdiv.model.layout import Layout
from bayesdiv.model.priors import FanIn, Prior, PriorFor
from bayesdiv.training.batches import Batches
from reproduction.contenders import CONTENDERS

Schedule = Callable[[float, int], float]


def cosine(epoch: float, epochs: int) -> float:
    """Half a cosine from 1 to 0: the factor of the learning rate after so many epochs.

    Examples:
        >>> cosine(0, 10), cosine(5, 10)
        (1.0, 0.5)
    """
    return 0.5 * (1 + math.cos(math.pi * min(epoch / epochs, 1.0)))


def constant(epoch: float, epochs: int) -> float:
    """The learning rate as it is, the paper's for CIFAR."""
    return 1.0


@dataclass(frozen=True)
class SameScale:
    """A prior N(0, scale) that is the same in all layers, as in the paper."""

    scale: float

    def __call__(self, layout: Layout, weights: Tensor) -> Prior:
        """The prior for weights of this layout."""
        return Prior(Normal, loc=weights.new_zeros(()), scale=weights.new_tensor(self.scale))


def shuffled(
    x: Tensor, y: Tensor, size: int, seed: int, transform: Callable[[Tensor], Tensor]
) -> Batches:
    """Every epoch in another order; what fills no batch waits for another epoch."""
    return Batches(x, y, size, seed, transform=transform, drop_last=True)


class InOrder(Batches):
    """Batches in the order of the data."""

    def places(self) -> Iterator[Tensor]:
        """Where the examples of each batch stand."""
        order = torch.arange(self.rows, device=self.y.device)
        return iter(order.split(self.size)[: len(self)])


def in_order(
    x: Tensor, y: Tensor, size: int, seed: int, transform: Callable[[Tensor], Tensor]
) -> Batches:
    """Every epoch in the order of the data, as the authors' program did."""
    return InOrder(x, y, size, seed, transform=transform, drop_last=True)


@dataclass(frozen=True)
class Protocol:
    """What all losses share.

    Args:
        pixels: side of the images that the network sees.
        stem: what they go through first.
        width: channels after the stem; 64 is ResNet-18.
        batch_size: images per step; those left over at the end of an epoch are left out.
        epochs: passes over the training images.
        schedule: of the learning rate.
        order: of the training images in an epoch.
        prior: made for the network.
        test_samples: weight draws for averaged predictions; with 0 there are no predictions, as
            where only time matters.
        validation_samples: the same for the validation images while training.
        averaged_every: after so many epochs, and after the last one.
        evaluation_size: images at once where nothing is learned.
    """

    pixels: int = 64
    stem: Stem = imagenet_stem
    width: int = 64
    batch_size: int = 128
    epochs: int = 15
    schedule: Schedule = cosine
    order: Callable[..., Batches] = shuffled
    prior: PriorFor = field(default_factory=lambda: FanIn(math.sqrt(2)))
    test_samples: int = 16
    validation_samples: int = 4
    averaged_every: int = 5
    evaluation_size: int = 2000

    def told(self) -> dict[str, Any]:
        """As a result file says it: functions and priors by name."""
        return {each.name: readable(getattr(self, each.name)) for each in fields(self)}


def readable(value: object) -> object:
    """A value of a protocol as JSON can hold it."""
    if isinstance(value, int | float | str):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        numbers = {n: v for n, v in asdict(value).items() if isinstance(v, int | float)}
        inside = ", ".join(f"{name}={number:.6g}" for name, number in numbers.items())
        return f"{type(value).__name__}({inside})"
    return getattr(value, "__name__", str(value))


OURS = Protocol()
"""Every layer's prior scale suits the layer, so that every loss trains."""

PAPER = Protocol(
    pixels=224,
    batch_size=64,
    epochs=50,
    schedule=constant,
    order=in_order,
    prior=SameScale(0.1),
)
"""The authors' program as far as it is consistent: 0.1 is a standard deviation for all losses."""

PAPER_START = math.log1p(math.exp(-10)) / 0.1
"""Their start, rho = -10, as a fraction of the prior's scale."""


@dataclass(frozen=True)
class Setting:
    """What one run of a loss chooses.

    Args:
        contender: a key of `CONTENDERS`.
        learning_rate: initial rate of Adam.
        strength: λ in front of the divergence.
        alpha: of the divergence; None where it has none.
        start: initial posterior scale, as a fraction of the prior's.
    """

    contender: str
    learning_rate: float = 3e-4
    strength: float = 1.0
    alpha: float | None = None
    start: float = 0.05

    def __post_init__(self) -> None:
        if self.contender not in CONTENDERS:
            known = ", ".join(CONTENDERS)
            raise ValueError(f"contender must be one of {known}, got {self.contender!r}")
        if "alpha" in CONTENDERS[self.contender].chooses and self.alpha is None:
            raise ValueError(f"alpha must be given for {self.contender}, got None")


@dataclass(frozen=True)
class Search:
    """What a search of a contender chooses.

    Args:
        ranges: what is searched, with the ends of its range; all but alpha on a log scale.
        first: the setting that a search tries first, found to train in earlier tries.
    """

    ranges: dict[str, tuple[float, float]]
    first: dict[str, float]


_RATE = {"learning_rate": (1e-4, 1e-3)}
_START = _RATE | {"start": (0.02, 0.3)}
_STRENGTH = _START | {"strength": (0.03, 3.0)}
_SKEWED = _STRENGTH | {"alpha": (0.05, 0.95)}
# The reverse KL inside JS-G grows with the squared ratio of the scales: a large share crushes it.
_LEANING = _STRENGTH | {"alpha": (0.02, 0.5)}
_FIRST = {"learning_rate": 3e-4, "start": 0.05}
_LEANING_FIRST = _FIRST | {"alpha": 0.1, "strength": 0.1}
_SKEWED_FIRST = _FIRST | {"alpha": 0.5, "start": 0.02}

SEARCHES: dict[str, Search] = {
    "kl": Search(_START, _FIRST | {"start": 0.02}),
    "lambda_kl": Search(_STRENGTH, _FIRST | {"start": 0.02, "strength": 0.1}),
    "js_g": Search(_LEANING, _LEANING_FIRST),
    "js_a": Search(_SKEWED, _SKEWED_FIRST),
    "deterministic": Search(_RATE, {"learning_rate": 3e-4, "strength": 0.0}),
    "unmodified_js_g": Search(_LEANING, _LEANING_FIRST),
    "unmodified_js_a": Search(_SKEWED, _SKEWED_FIRST),
    "weighted_kl": Search(_LEANING, _LEANING_FIRST),
}
"""The contenders of the image experiments, in the order of their tables."""
