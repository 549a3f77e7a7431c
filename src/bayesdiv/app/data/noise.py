"""Data made harder, as the paper's experiments do: noise on the inputs, too few of one class."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bayesdiv.app.data.splits import DataError, Part, Splits
from bayesdiv.app.tasks.classification import Classification


@dataclass(frozen=True)
class Bias:
    """Too little of one class: of its rows the share `keep` is left.

    Args:
        label: the name of the class; where no class has that name, its index.
        keep: in (0, 1].

    Examples:
        >>> Bias.parse("malignant:0.2")
        Bias(label='malignant', keep=0.2)
    """

    label: str | int
    keep: float

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise DataError(f"keep must lie in (0, 1], got {self.keep}")

    @classmethod
    def parse(cls, text: str) -> "Bias":
        """A bias written as LABEL:KEEP; the last colon counts."""
        label, _, keep = text.rpartition(":")
        try:
            share = float(keep)
        except ValueError:
            share = math.nan
        if not label or math.isnan(share):
            raise DataError(
                f"bias must be written LABEL:KEEP, such as 'malignant:0.2', got {text!r}"
            )
        return cls(label, share)

    def index(self, classes: tuple[str, ...]) -> int:
        """Which of the classes is meant."""
        label = str(self.label)
        if label in classes:
            return classes.index(label)
        if label.isdecimal() and int(label) < len(classes):
            return int(label)
        known = ", ".join(map(repr, classes))
        raise DataError(f"label must be one of the classes {known} or an index, got {label!r}")


def add_noise(splits: Splits, scale: float, seed: int = 0) -> Splits:
    """Gaussian noise of one standard deviation on x of all three parts, drawn once.

    It is added after scaling, so that `scale` counts in standard deviations of a numeric column
    (in grey levels from 0 to 1 for images); columns of categories get it as well.

    Examples:
        >>> from bayesdiv.app.data.loading import load
        >>> clean = load("digits")
        >>> noisy = add_noise(clean, scale=0.5)
        >>> (noisy.train.x - clean.train.x).std()
        tensor(0.4995)
    """
    if not 0 <= scale < math.inf:
        raise DataError(f"noise must be a finite standard deviation of at least 0, got {scale}")
    if scale == 0:
        return splits
    generator = torch.Generator().manual_seed(seed)

    def noisy(part: Part) -> Part:
        return Part(part.x + scale * torch.randn(part.x.shape, generator=generator), part.y)

    return splits.mapped(noisy)


def thin(splits: Splits, bias: Bias, seed: int = 0) -> Splits:
    """Biased data: one class thinned out where the model learns, and whole where it is tested.

    Encoder and task stay as they are: they were fitted to the training part before.

    Examples:
        >>> from bayesdiv.app.data.loading import load
        >>> thin(load("breast_cancer"), Bias("malignant", keep=0.2)).notes
        ("bias leaves 25 of 127 training rows of class 'malignant'",)
    """
    if not isinstance(splits.task, Classification):
        raise DataError(f"bias must name a class, but {splits.name} is a regression, got {bias}")
    code = bias.index(splits.task.classes)
    generator = torch.Generator().manual_seed(seed)
    train = _thinned(splits.train, code, bias.keep, generator)
    before, after = (int((part.y == code).sum()) for part in (splits.train, train))
    name = splits.task.classes[code]
    if after == 0:
        raise DataError(
            f"keep must leave a training row of class {name!r}, got {bias.keep} of {before} rows"
        )
    return replace(
        splits,
        train=train,
        validation=_thinned(splits.validation, code, bias.keep, generator),
        notes=(*splits.notes, f"bias leaves {after} of {before} training rows of class {name!r}"),
    )


def _thinned(part: Part, code: int, keep: float, generator: torch.Generator) -> Part:
    """The part with a random share of one class, in its order."""
    rows: Tensor = (part.y == code).nonzero().squeeze(1)
    rows = rows[torch.randperm(len(rows), generator=generator)]
    kept = torch.ones(len(part.y), dtype=torch.bool)
    kept[rows[round(keep * len(rows)) :]] = False
    return Part(part.x[kept], part.y[kept])
