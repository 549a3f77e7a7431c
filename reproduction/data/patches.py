"""Histopathology patches in memory: their splits, at random or by patient, and what these leak."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bayesdiv.app.data.images import FOLDS, check_fold
from bayesdiv.app.data.splits import DataError, Part, Splits
from bayesdiv.app.tasks.classification import Classification

CLASSES = ("no IDC", "IDC")


@dataclass(frozen=True, eq=False)
class Patches:
    """Patches with their classes and the patients that they come from.

    Args:
        images: (N, 3, 50, 50) uint8.
        labels: (N,) indices of `classes`, int64.
        patient: (N,) indices of `patients`, int64.
        patients: their ids, as the folders are named.
        skipped: how many patches at the border of a slide were smaller, and left out.
        classes: names of the two classes.

    Examples:
        >>> pixels = torch.zeros(10, 3, 50, 50, dtype=torch.uint8)
        >>> patches = Patches(pixels, torch.zeros(10).long(), torch.arange(10) // 5, ("7", "8"), 0)
        >>> [len(part.x) for part in patches.fold(1).parts]
        [6, 2, 2]
    """

    images: Tensor
    labels: Tensor
    patient: Tensor
    patients: tuple[str, ...]
    skipped: int
    classes: tuple[str, ...] = CLASSES

    def __len__(self) -> int:
        return len(self.labels)

    def fold(self, number: int, seed: int = 0, by: "Split | None" = None) -> Splits:
        """Run `number` of five: a fifth is tested on, of the rest the `number`-th fifth validates.

        Args:
            number: from 1 to 5; the test part is the same in all.
            seed: of the order that the parts are cut from.
            by: `at_random`, as in the paper and where this is None, or `by_patient`.
        """
        return self.at((by or at_random)(self, number, seed))

    def at(self, rows: "Rows") -> Splits:
        """The patches of these rows."""
        train, validation, test = (Part(self.images[some], self.labels[some]) for some in rows)
        return Splits(train, validation, test, Classification(self.classes))


class Rows(NamedTuple):
    """Which patches are in each part.

    Examples:
        >>> Rows(torch.tensor([0, 2]), torch.tensor([1]), torch.tensor([3])).train
        tensor([0, 2])
    """

    train: Tensor
    validation: Tensor
    test: Tensor


Split = Callable[[Patches, int, int], Rows]


def at_random(patches: Patches, fold: int, seed: int = 0) -> Rows:
    """Each patch for itself, as in the paper: 20 % test, then five folds of the rest.

    Such a test part flatters: neighbouring patches of one slide, which look alike, fall into both
    training and test part. `leak` says how many; `by_patient` keeps them together.

    Examples:
        >>> pixels = torch.zeros(50, 3, 50, 50, dtype=torch.uint8)
        >>> patches = Patches(pixels, torch.zeros(50).long(), torch.arange(50) // 5, tuple("ab"), 0)
        >>> [len(part) for part in at_random(patches, fold=2)]
        [32, 8, 10]
    """
    check_fold(fold)
    order = torch.randperm(len(patches), generator=torch.Generator().manual_seed(seed))
    test, rest = order.tensor_split([round(len(order) / 5)])
    fifths = list(rest.tensor_split(FOLDS))
    validation = fifths.pop(fold - 1)
    return _checked(Rows(torch.cat(fifths), validation, test), patches)


def by_patient(patches: Patches, fold: int, seed: int = 0) -> Rows:
    """All patches of a patient in one part, so that the test part holds unseen patients only.

    Patients are taken in a random order and the parts cut where about 20 % of the patches, and
    then each fifth of the rest, are reached.

    Examples:
        >>> pixels = torch.zeros(50, 3, 50, 50, dtype=torch.uint8)
        >>> patches = Patches(pixels, torch.zeros(50).long(), torch.arange(50) // 2, tuple("ab"), 0)
        >>> leak(patches, by_patient(patches, fold=1))
        0.0
    """
    check_fold(fold)
    sizes = patches.patient.bincount()
    order = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(seed))
    test, rest = order.tensor_split(_cuts(sizes[order], [0.2]))
    fifths = list(rest.tensor_split(_cuts(sizes[rest], [0.2, 0.4, 0.6, 0.8])))
    validation = fifths.pop(fold - 1)
    parts = (torch.cat(fifths), validation, test)
    rows = (torch.isin(patches.patient, part).nonzero().squeeze(1) for part in parts)
    return _checked(Rows(*rows), patches)


def _cuts(sizes: Tensor, shares: list[float]) -> list[int]:
    """Before which patient to cut, so that those before have these shares of the patches."""
    reached = sizes.cumsum(0) - sizes / 2  # a patient belongs where his middle patch does
    return [int((reached < share * sizes.sum()).sum()) for share in shares]


def _checked(rows: Rows, patches: Patches) -> Rows:
    if min(map(len, rows)) == 0:
        raise DataError(
            f"every part must have patches, got {tuple(map(len, rows))} of {len(patches)} patches "
            f"and {len(patches.patient.unique())} patients"
        )
    return rows


def leak(patches: Patches, rows: Rows) -> float:
    """The share of test patches whose patient has patches in the training part too.

    Examples:
        >>> pixels = torch.zeros(4, 3, 50, 50, dtype=torch.uint8)
        >>> patches = Patches(pixels, torch.zeros(4).long(), torch.tensor([0, 0, 1, 2]), ("7",), 0)
        >>> leak(patches, Rows(torch.tensor([0]), torch.tensor([2]), torch.tensor([1, 3])))
        0.5
    """
    seen = torch.isin(patches.patient[rows.test], patches.patient[rows.train])
    return seen.double().mean().item()
