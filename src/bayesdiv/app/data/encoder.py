"""How rows of a table become x: each column by what the training rows alone have shown."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data import DataError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})([T ]\d{1,2}:.*)?")
_DATES = {"date", "datetime", "datetime64", "period", "time", "timedelta", "timedelta64"}
_NUMBERS = {"decimal", "floating", "integer", "mixed-integer-float"}
_CATEGORIES = {"boolean", "categorical", "empty", "mixed-integer", "string"}


@dataclass(frozen=True)
class Numeric:
    """A column of numbers, standardised: (value - loc) / scale."""

    name: str
    loc: float
    scale: float

    @property
    def width(self) -> int:
        """How many columns of x it takes."""
        return 1

    @classmethod
    def fit(cls, column: "Series") -> "Numeric | None":
        """Mean and standard deviation (by 1/N) of the rows; None where they are constant."""
        values = numbers_of(column)
        with np.errstate(over="ignore", invalid="ignore"):
            loc, scale = float(values.mean()), float(values.std())
        if not (math.isfinite(loc) and math.isfinite(scale)):
            raise DataError(
                f"column {column.name!r} must have a finite standard deviation, got values of "
                f"{np.abs(values).max():g}"
            )
        # Rounding gives a constant column such as 0.1, 0.1, ... a scale that is not quite zero.
        if values.min() == values.max() or scale == 0:
            return None
        return cls(str(column.name), loc, scale)

    def encode(self, column: "Series") -> NDArray[np.float32]:
        """Standardised values, (rows, 1)."""
        values = numbers_of(column)
        with np.errstate(over="ignore"):
            scaled = ((values - self.loc) / self.scale).astype(np.float32)
        beyond = np.flatnonzero(~np.isfinite(scaled))
        if len(beyond):
            raise DataError(
                f"column {self.name!r} must hold finite numbers of the training rows' size, got "
                f"{values[beyond[0]]:g} in row {beyond[0] + 1}"
            )
        return scaled[:, None]


@dataclass(frozen=True)
class OneHot:
    """A column of categories: each has a column of x, 1 in the rows that have it and else 0."""

    name: str
    categories: tuple[str, ...]

    @property
    def width(self) -> int:
        """How many columns of x it takes."""
        return len(self.categories)

    @classmethod
    def fit(cls, column: "Series") -> "OneHot | None":
        """The categories of the rows; None where they are constant."""
        categories = labels_of(column)
        return cls(str(column.name), categories) if len(categories) > 1 else None

    def encode(self, column: "Series") -> NDArray[np.float32]:
        """Zeros and ones, (rows, categories)."""
        return np.eye(self.width, dtype=np.float32)[codes_of(column, self.categories)]


@dataclass(frozen=True)
class Encoder:
    """How rows of a table become x: learned from the training rows, the same for all others.

    Args:
        columns: those used, in the order of x.
        shape: of one encoded row, which the columns fill together.

    Examples:
        >>> import pandas as pd
        >>> encoder = Encoder.fit(pd.DataFrame({"age": [20, 40], "smoker": ["no", "yes"]}))
        >>> encoder.encode(pd.DataFrame({"smoker": ["no"], "age": [50]}))
        tensor([[2., 1., 0.]])
    """

    columns: tuple[Numeric | OneHot, ...]
    shape: tuple[int, ...]

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
        check_columns(frame)
        found = [kind_of(frame[name]).fit(frame[name]) for name in frame.columns]
        columns = tuple(column for column in found if column is not None)
        if not columns:
            raise DataError(
                f"a column besides the target must vary in the training rows, got the constant "
                f"{quoted(frame.columns)}"
            )
        return cls(columns, (sum(column.width for column in columns),))

    def encode(self, frame: "DataFrame") -> Tensor:
        """Rows as x, (rows, *shape); columns that the encoder does not know are ignored."""
        check_unique(frame.columns)
        absent = [name for name in self.names if name not in frame.columns]
        if absent:
            raise DataError(
                f"a table must have the columns that the encoder was fitted to, got none named "
                f"{quoted(absent)}"
            )
        used = frame[list(self.names)]
        _check_rows(used)
        parts = [column.encode(used[column.name]) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, axis=1)).reshape(len(used), *self.shape)

    def to_json(self) -> dict[str, object]:
        """Plain lists, numbers and strings, for `json.dump`.

        Examples:
            >>> Encoder((Numeric("age", 30.0, 10.0),), (1,)).to_json()
            {'columns': [{'name': 'age', 'loc': 30.0, 'scale': 10.0}], 'shape': [1]}
        """
        columns = [asdict(column) for column in self.columns]
        for column in columns:
            if "categories" in column:
                column["categories"] = list(column["categories"])
        return {"columns": columns, "shape": list(self.shape)}

    @classmethod
    def from_json(cls, saved: Mapping[str, object]) -> "Encoder":
        """The encoder that `to_json` described."""
        entries = cast("Mapping[str, Any]", saved)
        try:
            columns = tuple(_column(entry) for entry in entries["columns"])
            return cls(columns, tuple(entries["shape"]))
        except (KeyError, TypeError) as problem:
            raise DataError(
                f"a saved encoder must hold columns and a shape, got {saved!r}"
            ) from problem


def kind_of(column: "Series") -> type[Numeric] | type[OneHot]:
    """How a column can be encoded."""
    from pandas.api.types import infer_dtype

    if column.dtype.kind in "iuf":
        return Numeric
    found = infer_dtype(column, skipna=True)
    if found in _NUMBERS:
        return Numeric
    dates = found == "string" and len(column) and all(map(_DATE.fullmatch, column.dropna()))
    if found in _DATES or dates:
        raise DataError(
            f"column {column.name!r} must hold numbers or categories, got dates: drop it, or "
            "replace it by numbers such as the year or the days since a first day"
        )
    if found not in _CATEGORIES:
        raise DataError(f"column {column.name!r} must hold numbers or categories, got {found}")
    return OneHot


def numbers_of(column: "Series") -> NDArray[np.float64]:
    """A column without missing values as floats; text that is not a number is refused."""
    kind_of(column)
    values = parsed(column)
    wrong = np.flatnonzero(np.isnan(values))
    if len(wrong):
        raise no_number(column, int(wrong[0]))
    return values


def parsed(column: "Series") -> NDArray[np.float64]:
    """A column as floats, NaN where a value is no number."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def parsed_with_commas(column: "Series") -> NDArray[np.float64]:
    """A column as floats where a comma may stand for the decimal point."""
    return parsed(column.astype(str).str.replace(",", ".", n=1, regex=False))


def parsed_without_percent(column: "Series") -> NDArray[np.float64]:
    """A column as floats where a percent sign ends each value; NaN where there is none."""
    texts = column.astype(str).str.strip()
    values = parsed_with_commas(texts.str.removesuffix("%"))
    return np.where(texts.str.endswith("%"), values, np.nan)


def no_number(column: "Series", row: int) -> DataError:
    """What to say of a value that is no number."""
    got = f"got {column.iloc[row]!r} in row {row + 1}"
    if not np.isnan(parsed_without_percent(column.iloc[[row]])).any():
        return DataError(
            f"column {column.name!r} must hold numbers, {got}: take the percent signs away, so "
            "that 5% is 5"
        )
    if np.isnan(parsed_with_commas(column.iloc[[row]])).any():
        return DataError(f"column {column.name!r} must hold numbers, {got}: correct or remove it")
    return DataError(
        f"column {column.name!r} must hold numbers with decimal points, not decimal commas, and "
        f"nothing between thousands, {got}"
    )


def label_of(value: object) -> str:
    """A category's name, the same whether a file had it read as 1, 1.0 or "1"."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def labels_of(column: "Series") -> tuple[str, ...]:
    """Names of the categories that occur, in ascending order."""
    values = set(column)
    try:
        ordered = sorted(values)
    except TypeError:  # numbers among text
        ordered = sorted(values, key=str)
    return tuple(dict.fromkeys(map(label_of, ordered)))


def codes_of(column: "Series", labels: tuple[str, ...]) -> NDArray[np.int64]:
    """For each row the index of its category's name."""
    index = {label: code for code, label in enumerate(labels)}
    codes = np.array([index.get(label_of(value), -1) for value in column], dtype=np.int64)
    unseen = np.flatnonzero(codes < 0)
    if len(unseen):
        raise DataError(
            f"column {column.name!r} must have one of the training rows' values "
            f"{quoted(labels)}, got {label_of(column.iloc[unseen[0]])!r} in row {unseen[0] + 1}"
        )
    return codes


def _column(entry: Mapping[str, Any]) -> Numeric | OneHot:
    """A column from its JSON form."""
    if "categories" in entry:
        return OneHot(entry["name"], tuple(entry["categories"]))
    return Numeric(entry["name"], entry["loc"], entry["scale"])


def check_unique(names: Iterable[str]) -> None:
    """No two columns have the same name."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(f"column names must differ, got {quoted(repeated)} more than once")


def check_columns(frame: "DataFrame") -> None:
    """Every value is there and finite, every column of a kind that can be encoded."""
    missing = frame.isna().sum()
    if missing.any():
        counts = ", ".join(f"{count} in {name!r}" for name, count in missing.items() if count)
        first = int(frame.isna().any(axis=1).to_numpy().argmax()) + 1
        raise DataError(
            f"no value may be missing, got missing values: {counts}, the first in row {first}: "
            "fill them or drop those rows"
        )
    for name in frame.columns:
        if kind_of(frame[name]) is Numeric and not np.isfinite(numbers_of(frame[name])).all():
            raise DataError(f"column {name!r} must hold finite numbers, got an infinite one")


def _check_rows(frame: "DataFrame") -> None:
    """No value is missing from rows to encode."""
    for name in frame.columns:
        rows = np.flatnonzero(frame[name].isna()) + 1
        if len(rows):
            places = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
            raise DataError(
                f"no value may be missing, got {len(rows)} missing in column {name!r}, in row "
                f"{places}: fill them or drop those rows"
            )


def quoted(names: Iterable[object], most: int = 20) -> str:
    """Names for a message, the first few where there are many."""
    shown = [repr(str(name)) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
