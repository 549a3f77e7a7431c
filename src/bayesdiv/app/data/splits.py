"""Data in three parts, ready to train on."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from pandas import DataFrame

    from bayesdiv.app.data.columns import Encoder
    from bayesdiv.app.task import Task


class DataError(ValueError):
    """A complaint about data: a rule with the value that breaks it, and advice for training."""

    def __init__(self, said: str, advice: str = "") -> None:
        super().__init__(said + advice)
        self.said = said


def ensure(holds: object, said: str, advice: str = "") -> None:
    """Complain of data in this sentence unless the rule holds."""
    if not holds:
        raise DataError(said, advice)


class Part(NamedTuple):
    """Inputs and targets of some rows."""

    x: Tensor  # (rows, *shape)
    y: Tensor  # (rows,): float for quantities, int64 for classes


@dataclass(frozen=True, eq=False)
class Splits:
    """Data to train on, with what a later prediction needs to treat new rows alike.

    Encoder and task have their moments from the training part alone; the validation part is for
    choices such as the strength or when to stop, the test part for the final numbers.

    Examples:
        >>> from bayesdiv.app.data.loading import load
        >>> splits = load("diabetes")
        >>> splits.shape, splits.num_features, splits.num_data
        ((10,), 10, 266)
    """

    train: Part
    validation: Part  # empty if asked for
    test: Part
    task: "Task"  # what y is
    encoder: "Encoder | None" = None  # turns new rows into x as it did these; None for images
    name: str = ""  # of the data set or the file
    target: str = ""  # the column that y comes from
    notes: tuple[str, ...] = ()  # sentences on what was decided on the user's behalf
    test_rows: tuple[int, ...] = ()  # where they are in the table, from 1 on below its header
    test_files: tuple[str, ...] = ()  # of pictures, below the folder of the data
    frame: "DataFrame | None" = None  # all rows of a table; its index counts those of the file

    @property
    def parts(self) -> tuple[Part, Part, Part]:
        """Training, validation and test part."""
        return self.train, self.validation, self.test

    def mapped(self, change: Callable[[Part], Part]) -> "Splits":
        """The same with each part changed, in the order of `parts`."""
        train, validation, test = map(change, self.parts)
        return replace(self, train=train, validation=validation, test=test)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one x."""
        return tuple(self.train.x.shape[1:])

    @property
    def num_features(self) -> int:
        """How many numbers one x has."""
        return math.prod(self.shape)

    @property
    def num_data(self) -> int:
        """N, the size of the training part."""
        return len(self.train.x)
