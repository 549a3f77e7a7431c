"""Patches and images of the harness: read back from their pieces, and split into folds."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bayesdiv.training.augmentation import Change, Crop, Flip
from benchmarks.field.data import Part, decoded

FOLDS = 5
FEW = 1000  # images of CIFAR-10 that a fold trains on
_SPLIT = 20262  # the seed of every split, so that all methods see the same patients

Sets = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Diagonal:
    """Mirror each image at its diagonal with probability ½: with two `Flip`s, all eight views."""

    def __call__(self, images: Tensor) -> Tensor:
        """The images, half of them mirrored."""
        mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
        return torch.where(mirrored, images.transpose(-1, -2), images)


@dataclass(frozen=True)
class Case:
    """What is fine-tuned on.

    Args:
        classes: how many.
        size: of the images as the network sees them, in pixels.
        epochs: of every method.
        changes: of training images, before they are resized.
    """

    classes: int
    size: int
    epochs: int
    changes: tuple[Change, ...]


CASES = {
    "patches": Case(2, 96, 12, (Crop(4), Flip(), Diagonal(), Flip())),
    "cifar": Case(10, 128, 40, (Crop(4), Flip())),
}


class Fold(NamedTuple):
    """The parts of one fold."""

    train: Part
    validation: Part
    test: Part


def read(folder: Path) -> Sets:
    """Every set whose pieces lie in a folder: its arrays by name."""
    pieces: dict[str, dict[str, list[np.ndarray]]] = {}
    for file in sorted(folder.glob("pretrained_*.npz")):
        with np.load(file) as archive:
            for key in sorted(archive.files):
                array, name, _ = key.split("_")
                own = decoded(archive[key]) if array == "x" else archive[key].astype(np.int64)
                pieces.setdefault(name, {}).setdefault(array, []).append(own)
    if not pieces:
        raise SystemExit(f"{folder} must hold pretrained_*.npz made by pack.py, got none")
    return {
        name: {array: torch.from_numpy(np.concatenate(own)) for array, own in arrays.items()}
        for name, arrays in pieces.items()
    }


def fold(sets: Sets, case: str, number: int) -> Fold:
    """Fold `number` of a case, from 0 to 4."""
    return _patches(sets["patches"], number) if case == "patches" else _images(sets, number)


def groups(patient: Tensor, count: int) -> Tensor:
    """For each patch one of `count` groups of patients, with about as many patches each."""
    names, of = patient.unique(return_inverse=True)
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(_SPLIT))
    sizes = of.bincount()[order]
    # A patient belongs to the group that his middle patch falls into.
    own = ((sizes.cumsum(0) - sizes / 2) * count / len(of)).long()
    return torch.empty_like(own).index_put_((order,), own)[of]


def _patches(found: dict[str, Tensor], number: int) -> Fold:
    """One group of patients is tested on, four train; a sixth validates and is never tested on."""
    group = groups(found["patient"], FOLDS + 1)
    test, validation = group == number, group == FOLDS
    parts = (~(test | validation), validation, test)
    return Fold(*(Part(found["x"][rows], found["y"][rows]) for rows in parts))


def _images(sets: Sets, number: int) -> Fold:
    """A thousand images of their own train each fold, as many others validate all."""
    x, y = sets["few"]["x"], sets["few"]["y"]
    own, last = slice(FEW * number, FEW * (number + 1)), slice(FEW * FOLDS, None)
    test = sets["test"]
    return Fold(Part(x[own], y[own]), Part(x[last], y[last]), Part(test["x"], test["y"]))
