"""Images in memory: five folds, pixels as numbers, noise that is drawn once."""

import math
import tempfile
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data.splits import Part, Splits, ensure
from bayesdiv.app.tasks.classification import Classification

FOLDS = 5  # the paper's runs
_WHITE = 255
AT_A_TIME = 1024  # images whose noise is held in float32 at once
CEILING = 2 << 30  # bytes of images that are held in memory; more lie in a file


@dataclass(frozen=True, eq=False)
class Images:
    """Images of some classes, each with the batch of its set that it came in.

    Examples:
        >>> pixels = torch.zeros(6, 3, 32, 32, dtype=torch.uint8)
        >>> images = Images(pixels, torch.zeros(6).long(), ("cat",), torch.arange(6), "cats")
        >>> [len(part.x) for part in images.fold(2).parts]
        [4, 1, 1]
    """

    images: Tensor  # (N, 3, height, width), uint8 as read; floats once `noisy`
    labels: Tensor  # (N,) indices of `classes`, int64
    classes: tuple[str, ...]
    batch: Tensor  # (N,) from 1 to 5 for what is trained or validated on, 0 for the test images
    name: str  # of the set
    notes: tuple[str, ...] = ()  # sentences on what is not as published
    target: str = ""  # what the classes are called
    files: tuple[str, ...] = ()  # of each, below the folder of the data; or none

    def fold(self, number: int) -> Splits:
        """Run `number` of five, as in the paper: batch `number` validates, the other four train."""
        check_fold(number)
        test, validation = self.batch == 0, self.batch == number
        masks = (~(test | validation), validation, test)
        rows = [mask.nonzero().squeeze(1) for mask in masks]
        parts = [Part(gathered(self.images, some), self.labels[some]) for some in rows]
        files = tuple(self.files[k] for k in rows[2].tolist()) if self.files else ()
        about = (None, self.name, self.target, self.notes, (), files)
        return Splits(parts[0], parts[1], parts[2], Classification(self.classes), *about)

    def noisy(
        self,
        noise: float,
        seed: int = 0,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> "Images":
        """Pixels in [0, 1] plus Gaussian noise, p/255 + noise·ε with ε ~ N(0, 1), drawn once.

        The paper adds it at the size the images come in, before they are resized, and does not
        clip. A seed gives the same noise whatever the device and, but for rounding, the type.
        Taken before `fold`, every fold, loss and epoch sees an image with the same noise.
        """
        rule = "noise must be a finite standard deviation of at least 0"
        ensure(0 <= noise < math.inf, f"{rule}, got {noise}")
        rule = "images must be uint8, pixels from 0 to 255"
        ensure(self.images.dtype == torch.uint8, f"{rule}, got {self.images.dtype}")
        generator = torch.Generator().manual_seed(seed)
        found = torch.empty(self.images.shape, dtype=dtype, device=device or self.images.device)
        for start in range(0, len(found), AT_A_TIME):
            some = self.images[start : start + AT_A_TIME].float() / _WHITE
            if noise > 0:
                # Drawn on the CPU, since other devices have random numbers of their own.
                some += noise * torch.randn(some.shape, generator=generator).to(some.device)
            found[start : start + AT_A_TIME] = some
        labels, batch = self.labels.to(found.device), self.batch.to(found.device)
        return replace(self, images=found, labels=labels, batch=batch)


def room(count: int, size: int) -> NDArray[np.uint8]:
    """An array for so many images; beyond the ceiling it lies in a file without a name."""
    shape = (count, 3, size, size)
    if math.prod(shape) <= CEILING:
        return np.zeros(shape, np.uint8)
    with tempfile.TemporaryFile() as file:  # its mapping outlives it
        return np.memmap(file, np.uint8, "w+", shape=shape)


def gathered(x: Tensor, rows: Tensor) -> Tensor:
    """Some images as their own tensor, in memory or, if they are many bytes, in a file."""
    if x.dtype != torch.uint8 or x.is_cuda or len(rows) * x[0].numel() <= CEILING:
        return x[rows]
    found = torch.from_numpy(room(len(rows), x.shape[-1]))
    for first in range(0, len(rows), AT_A_TIME):
        found[first : first + AT_A_TIME] = x[rows[first : first + AT_A_TIME]]
    return found


def check_fold(number: int) -> None:
    """Complain of a fold that is not one of the five."""
    ensure(1 <= number <= FOLDS, f"fold must lie between 1 and {FOLDS}, got {number}")
