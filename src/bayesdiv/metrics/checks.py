"""Which targets a metric accepts."""

import torch
from torch import Tensor

from bayesdiv.predictive import Predictive


def targets(predictive: Predictive, y: Tensor) -> Tensor:
    """The targets, of which there must be one at least."""
    if y.numel() == 0:
        raise ValueError(f"a metric needs at least one target, got shape {tuple(y.shape)}")
    return predictive.checked(y)


def numbers(predictive: Predictive, y: Tensor) -> Tensor:
    """The targets, which must be numbers."""
    if predictive.discrete:
        raise ValueError("this metric needs targets that are numbers, got classes")
    return targets(predictive, y)


def labelled(predictive: Predictive, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean class probabilities (N, C) and labels (N,)."""
    if not predictive.discrete:
        raise ValueError("this metric needs targets that are classes, got numbers")
    y = targets(predictive, y)
    return predictive.probabilities.detach().flatten(0, -2), y.flatten()


def every_class(predictive: Predictive, y: Tensor) -> tuple[Tensor, Tensor]:
    """As `labelled`, where no class may be missing: it would have no rate."""
    probabilities, y = labelled(predictive, y)
    classes = probabilities.shape[-1]
    missing = (torch.bincount(y, minlength=classes) == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(f"a ROC curve needs targets of every class, got none of {missing}")
    return probabilities, y


def two_classes(predictive: Predictive) -> None:
    """Refuse more classes than two."""
    if predictive.discrete and predictive.probabilities.shape[-1] != 2:
        classes = predictive.probabilities.shape[-1]
        raise ValueError(f"this metric needs two classes, got {classes}")
