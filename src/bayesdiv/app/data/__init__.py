"""Data in three parts: from a file or a known set, encoded, with noise or bias if asked."""

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import Tensor


class DataError(ValueError):
    """A complaint about data: one sentence with the rule and the value that breaks it.

    Examples:
        >>> load("rows.txt")
        Traceback (most recent call last):
        bayesdiv.app.data.DataError: a table must be a .csv or .parquet file, got rows.txt
    """


@dataclass(frozen=True)
class Regression:
    """A target that is a quantity; y is (target - loc) / scale, by the moments of training rows.

    Examples:
        >>> import torch
        >>> Regression(loc=150.0, scale=50.0).to_units(torch.tensor([0.0, 2.0]))
        tensor([150., 250.])
    """

    loc: float
    scale: float

    def to_units(self, y: Tensor) -> Tensor:
        """Standardised targets or predicted means in the target's units.

        What is a distance, such as a standard deviation or a root mean squared error, is only
        multiplied by `scale`.
        """
        return self.loc + self.scale * y

    @property
    def log_scale(self) -> float:
        """To add to a negative log density of y: it then holds in the target's units."""
        return math.log(self.scale)


@dataclass(frozen=True)
class Classification:
    """A target that is one of some classes; y is the index of its name in `classes`.

    Examples:
        >>> Classification(("benign", "malignant")).classes[1]
        'malignant'
    """

    classes: tuple[str, ...]


Task = Regression | Classification


class Part(NamedTuple):
    """Inputs and targets of some rows.

    Examples:
        >>> x, y = load("digits").test
        >>> x.shape, y.shape
        (torch.Size([359, 1, 8, 8]), torch.Size([359]))
    """

    x: Tensor  # (rows, *shape)
    y: Tensor  # (rows,): float for a regression, int64 for classes


@dataclass(frozen=True, eq=False)
class Splits:
    """Data to train on, with what a later prediction needs to treat new rows alike.

    Args:
        train: what is fitted; encoder and task have their moments from here alone.
        validation: for choices such as the strength or when to stop; empty if asked for.
        test: for the final numbers.
        task: what y is.
        encoder: turns new rows into x as it did these.
        name: of the data set or the file.
        target: the column that y comes from.
        notes: sentences on what was decided on the user's behalf.
        test_rows: where each row of `test` is in the table, counted from 1 below its header; empty
            where that is not known.

    Examples:
        >>> splits = load("diabetes")
        >>> splits.shape, splits.num_features, splits.num_data
        ((10,), 10, 266)
    """

    train: Part
    validation: Part
    test: Part
    task: Task
    encoder: "Encoder"
    name: str
    target: str
    notes: tuple[str, ...] = ()
    test_rows: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one x."""
        return self.encoder.shape

    @property
    def num_features(self) -> int:
        """How many numbers one x has."""
        return math.prod(self.shape)

    @property
    def num_data(self) -> int:
        """N, the size of the training part."""
        return len(self.train.x)


# These build on the names above.
from bayesdiv.app.data import uci  # noqa: E402
from bayesdiv.app.data.embedded import breast_cancer, diabetes, digits  # noqa: E402
from bayesdiv.app.data.encoder import Encoder  # noqa: E402
from bayesdiv.app.data.noise import Bias, add_noise, thin  # noqa: E402
from bayesdiv.app.data.table import Table, checked, read, split  # noqa: E402

DATASETS: dict[str, Callable[[], Table]] = {
    "breast_cancer": breast_cancer,
    "diabetes": diabetes,
    "digits": digits,
    **{name: partial(uci.read, name) for name in uci.SETS},
}


def load(
    name_or_path: str | Path,
    *,
    target: str | None = None,
    task: type[Regression] | type[Classification] | None = None,
    seed: int = 0,
    noise: float = 0.0,
    bias: Bias | None = None,
    test: float = 0.2,
    validation: float = 0.2,
    drop: Iterable[str] = (),
) -> Splits:
    """A known data set or a table from a file, ready to train on.

    Args:
        name_or_path: a name in `DATASETS`, or a .csv or .parquet file.
        target: for a file, the column to predict; None is its last one.
        task: for a file, what the target is; None decides, see `table.checked`.
        seed: of the split, the noise and the thinning.
        noise: standard deviation of the Gaussian noise on x, see `add_noise`.
        bias: which class to thin out, see `thin`.
        test: share of the rows that is tested on.
        validation: share of the rows that choices are made on; 0 leaves that part empty.
        drop: for a file, columns to leave out.

    Examples:
        >>> splits = load("breast_cancer", bias=Bias("malignant", keep=0.2))
        >>> splits.task
        Classification(classes=('benign', 'malignant'))
    """
    drop = tuple(drop)
    if str(name_or_path) in DATASETS:
        table = DATASETS[str(name_or_path)]()
        if drop or task not in (None, table.task) or target not in (None, table.target):
            raise DataError(
                f"target, task and drop must be left out for the data set {table.name!r}, "
                f"got target={target!r}, task={task and task.__name__} and drop={drop!r}"
            )
    else:
        path = _file(name_or_path)
        table = checked(read(path), path.name, target=target, task=task, drop=drop)
    # Noise comes first, so that the test part is the same with and without bias.
    noisy = add_noise(split(table, seed=seed, test=test, validation=validation), noise, seed)
    return noisy if bias is None else thin(noisy, bias, seed)


def _file(name_or_path: str | Path) -> Path:
    """The path, unless it looks like the misspelt name of a known set."""
    path = Path(name_or_path)
    if path.suffix or path.exists():
        return path
    close = difflib.get_close_matches(str(name_or_path), DATASETS, n=1)
    known = "the name of a data set" if close else f"one of {', '.join(sorted(DATASETS))}"
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise DataError(
        f"data must be a .csv or .parquet file or {known}, got {str(name_or_path)!r}{hint}"
    )


__all__ = [
    "DATASETS",
    "Bias",
    "Classification",
    "DataError",
    "Encoder",
    "Part",
    "Regression",
    "Splits",
    "Table",
    "Task",
    "add_noise",
    "checked",
    "load",
    "read",
    "split",
    "thin",
]
