"""How rows of a table become x: each column by what the training rows alone have shown."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from bayesdiv.app.data.columns import Dates, Kind, Numeric, OneHot, kind_of, quoted
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.data.values import parsed

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Encoder:
    """How rows of a table become x: learned from the training rows, the same for all others."""

    columns: tuple[Kind, ...]  # in the order of x
    shape: tuple[int, ...]  # of one encoded row

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return tuple(column.name for column in self.columns)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of categories other than True and False."""
        kinds = (column for column in self.columns if isinstance(column, OneHot))
        return tuple(kind.name for kind in kinds if kind.categories != ("False", "True"))

    @classmethod
    def fit(cls, frame: "DataFrame") -> "Encoder":
        """An encoder of all columns that vary, so the target must not be among them."""
        found = [kind_of(column.dropna()).fit(column) for _, column in frame.items()]
        columns = tuple(column for column in found if column is not None)
        if not columns:
            raise DataError(
                f"a column besides the target must vary in the training rows, got the constant "
                f"{quoted(frame.columns)}"
            )
        return cls(columns, (sum(column.width for column in columns),))

    def encode(self, frame: "DataFrame") -> Tensor:
        """Rows as x, (rows, *shape); columns that the encoder does not know are ignored."""
        used = self._used(frame)
        parts = [column.encode(used[column.name]) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1)).reshape(len(used), *self.shape)

    def problems(self, frame: "DataFrame") -> list[str]:
        """For each row what hinders its encoding, in sentences; nothing where it can be encoded."""
        used = self._used(frame)
        found = [column.problems(used[column.name]) for column in self.columns]
        return ["; ".join(filter(None, row)) for row in zip(*found, strict=True)]

    def _used(self, frame: "DataFrame") -> "DataFrame":
        check_unique(frame.columns)
        absent = [name for name in self.names if name not in frame.columns]
        if absent:
            raise DataError(
                f"a table must have the columns that the encoder was fitted to, got none named "
                f"{quoted(absent)}"
            )
        return frame[list(self.names)]

    def to_json(self) -> dict[str, object]:
        """Plain values for `json.dump`; no unit and nothing to fill are left out."""
        usual = (("unit", ""), ("fill", None))
        columns = [asdict(column).items() for column in self.columns]
        entries = [{key: v for key, v in entry if (key, v) not in usual} for entry in columns]
        return {"columns": entries, "shape": self.shape}

    @classmethod
    def from_json(cls, saved: Mapping[str, object]) -> "Encoder":
        """The encoder that `to_json` described."""
        entries = cast("Mapping[str, Any]", saved)
        try:
            columns = []
            for entry in entries["columns"]:
                fields = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
                numbers = Dates if "format" in fields else Numeric
                kind: Any = OneHot if "categories" in fields else numbers
                columns.append(kind(**fields))
            return cls(tuple(columns), tuple(entries["shape"]))
        except (AttributeError, KeyError, TypeError) as problem:
            raise DataError(
                f"a saved encoder must hold columns and a shape, got {saved!r}"
            ) from problem


def check_unique(names: Iterable[str]) -> None:
    """No two columns have the same name."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(
            f"column names must differ, got {quoted(repeated)} more than once: rename one of them"
        )


def check_there(frame: "DataFrame") -> tuple["DataFrame", tuple[str, ...]]:
    """The same table and nothing to note; a missing value is refused."""
    missing = frame.isna().sum()
    if missing.any():
        counts = ", ".join(f"{count} in {name!r}" for name, count in missing.items() if count)
        first = int(frame.isna().any(axis=1).to_numpy().argmax()) + 1
        raise DataError(
            f"no value may be missing, got missing values: {counts}, the first in row {first}: "
            "fill them with --impute, drop columns with --drop, or drop those rows"
        )
    return frame, ()


def check_finite(frame: "DataFrame") -> None:
    """Every column of numbers holds finite ones, every other is of a kind that can be encoded."""
    for name in frame.columns:
        if kind_of(frame[name]) is Numeric and np.isinf(parsed(frame[name])).any():
            raise DataError(
                f"column {name!r} must hold finite numbers, got an infinite one: correct it, or "
                f"leave the column out with --drop {name}"
            )
