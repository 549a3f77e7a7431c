"""The images of the experiments, cut into folds, on the device that computes."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from bayesdiv.app.data.images import Images
from bayesdiv.app.data.splits import DataError, Splits
from reproduction.images.inputs import Execution
from reproduction.images.results import BY_PATIENT, Place


def _cifar10(folder: Path | None) -> Images:
    from bayesdiv.app.data import cifar

    return cifar.cifar10(folder)


def _cifar100(folder: Path | None) -> Images:
    from bayesdiv.app.data import cifar

    return cifar.cifar100(folder)


def _digits(folder: Path | None, rare: int | None = None) -> Images:
    """Handwritten digits of scikit-learn as colour images; `rare` makes one of them a class."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels * 15).to(torch.uint8).reshape(-1, 1, 8, 8)
    y = torch.from_numpy(labels).long()
    classes: tuple[str, ...] = tuple(map(str, range(10)))
    if rare is not None:
        y, classes = (y == rare).long(), ("another", str(rare))
    return Images(images.expand(-1, 3, 8, 8), y, classes, torch.arange(len(y)) % 6, "digits")


def _synthetic(folder: Path | None) -> Images:
    """As many patches as the paper trains on, of noise: what a step costs depends on no image."""
    count = TRAINED + 512
    pixels = torch.empty(count, 3, 50, 50, dtype=torch.uint8).random_(256)
    batch = torch.full((count,), 2)
    batch[:256], batch[256:512] = 0, 1
    return Images(pixels, torch.arange(count) % 2, ("no cancer", "cancer"), batch, "synthetic")


TRAINED = 177_615
"""Patches that the paper trains on: 80 % of 80 % of 277,524."""

_IMAGES: dict[str, Callable[[Path | None], Images]] = {
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "digits": _digits,
    "rare_digit": partial(_digits, rare=8),
    "synthetic": _synthetic,
}
SETS = (*_IMAGES, "histopathology")
TOYS = ("digits", "rare_digit")


@lru_cache(maxsize=1)
def _read(data: str, folder: Path | None) -> Images:
    return _IMAGES[data](folder)


@lru_cache(maxsize=1)
def _images(data: str, noise: float | None, folder: Path | None, device: torch.device) -> Images:
    """Images on the device; with noise as floats, half as long on a GPU."""
    read = _read(data, folder)
    dtype = Execution.of(device).dtype
    if noise is not None:
        return read.noisy(noise, dtype=dtype, device=device)
    return replace(read, images=read.images.to(device), labels=read.labels.to(device))


@lru_cache(maxsize=1)
def _patches(folder: Path | None, device: torch.device) -> Any:
    from bayesdiv.app.data.downloads import data_folder
    from reproduction.data import histopathology

    around = folder or data_folder()
    packed = None if around is None else around / histopathology.CACHE
    if packed is not None and packed.is_file():
        read = histopathology.load_patches(packed)
    else:
        read = histopathology.read_patches(folder)
    return replace(read, images=read.images.to(device), labels=read.labels.to(device))


def parts(data: str, place: Place, folder: Path | None, device: torch.device) -> Splits:
    """The data of a run, on the device."""
    if data not in SETS:
        raise DataError(f"data must be one of {', '.join(SETS)}, got {data!r}")
    if data != "histopathology":
        return _images(data, place.noise, folder, device).fold(place.fold)
    from reproduction.data import patches

    unseen = BY_PATIENT in place.tag
    split = patches.by_patient if unseen else patches.at_random
    whole: Splits = _patches(folder, device).fold(place.fold, by=split)
    return whole
