"""Images of the harness: packed into small files, read back, split, and given false labels."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MEAN = [0.49139968, 0.48215841, 0.44653091]
SCALE = [0.24703223, 0.24348513, 0.26158784]
FAR = ("cifar100", "mnist", "fashion")
_VALIDATION = 5000
_SPLIT = 20261  # the seed of every split, so that all methods see the same images

Bytes = NDArray[np.uint8]


class Part(NamedTuple):
    """Images (N, 3, 32, 32) in bytes, and labels (N,)."""

    x: Tensor
    y: Tensor

    def to(self, device: torch.device) -> "Part":
        """The same on a device."""
        return Part(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Case:
    """What is trained on.

    Args:
        images: how many of the training images; None takes all.
        noise: share of the training labels that are replaced by another class.
        epochs: of every method.
    """

    images: int | None = None
    noise: float = 0.0
    epochs: int = 60


CASES = {
    "clean": Case(),
    "images1000": Case(images=1000, epochs=400),
    "noise40": Case(noise=0.4, epochs=20),
    "images5000": Case(images=5000, epochs=200),
    "noise20": Case(noise=0.2),
}


def encoded(images: Bytes) -> Bytes:
    """Differences of channels, columns and rows modulo 256: they deflate to 60 % of the pixels."""
    planes = images.transpose(1, 0, 2, 3).copy()
    planes[0] -= planes[1]
    planes[2] -= planes[1]
    across = np.diff(planes, axis=-1, prepend=np.uint8(0))
    return np.diff(across, axis=-2, prepend=np.uint8(0))


def decoded(differences: Bytes) -> Bytes:
    """The images that `encoded` was given."""
    planes = differences.cumsum(-2, dtype=np.uint8).cumsum(-1, dtype=np.uint8)
    planes[0] += planes[1]
    planes[2] += planes[1]
    return np.ascontiguousarray(planes.transpose(1, 0, 2, 3))


def read(folder: Path) -> dict[str, Part]:
    """Every set whose pieces lie in a folder: train, test, and what is far from both."""
    pieces: dict[str, list[Part]] = {}
    for file in sorted(folder.glob("field_*.npz")):
        with np.load(file) as archive:
            for key in sorted(name for name in archive.files if name.startswith("x_")):
                name = key.split("_")[1]
                labels = torch.from_numpy(archive["y" + key[1:]].astype(np.int64))
                part = Part(torch.from_numpy(decoded(archive[key])), labels)
                pieces.setdefault(name, []).append(part)
    if not {"train", "test"} <= pieces.keys():
        raise SystemExit(f"{folder} must hold field_*.npz made by pack.py, got {sorted(pieces)}")
    return {
        name: Part(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))
        for name, parts in pieces.items()
    }


def training_part(train: Part, case: Case, seed: int) -> Part:
    """The images of a case, their labels noisy if it says so."""
    order = _order(len(train.y))
    return _noisy(_taken(train, order[: case.images]), case, seed)


def tuning_parts(train: Part, case: Case, seed: int) -> tuple[Part, Part]:
    """Training and validation images of a search; neither knows the test images.

    The whole set is divided; a case of few images validates on as many others. Labels of both are
    noisy alike, since a user would not have clean ones.
    """
    order = _order(len(train.y))
    if case.images is None:
        held = min(_VALIDATION, len(order) // 5)
        inside, outside = order[:-held], order[-held:]
    else:
        inside, outside = order[: case.images], order[-case.images :]
    part = _noisy(_taken(train, inside), case, seed)
    return part, _noisy(_taken(train, outside), case, seed + 1)


def _order(count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(_SPLIT))


def _taken(part: Part, places: Tensor) -> Part:
    return Part(part.x[places], part.y[places])


def _noisy(part: Part, case: Case, seed: int) -> Part:
    """A share of the labels replaced by another class, each of the nine as likely."""
    if not case.noise:
        return part
    generator = torch.Generator().manual_seed(_SPLIT + seed)
    hit = torch.rand(len(part.y), generator=generator) < case.noise
    other = (part.y + torch.randint(1, 10, part.y.shape, generator=generator)) % 10
    return Part(part.x, torch.where(hit, other, part.y))
