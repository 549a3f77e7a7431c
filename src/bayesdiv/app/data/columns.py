"""Columns of a table: what kind each is, and how its values become numbers."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from bayesdiv.app.data.splits import DataError

if TYPE_CHECKING:
    from pandas import Series

_DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})([T ]\d{1,2}:.*)?")
_DATES = {"date", "datetime", "datetime64", "period", "time", "timedelta", "timedelta64"}
_NUMBERS = {"decimal", "floating", "integer", "mixed-integer-float"}
MOST_CLASSES = 20  # a target of whole numbers with more different values is a quantity
FEW_ODD_ONES = 0.2  # a smaller share of values that are no numbers is taken for mistakes
_CATEGORIES = {"boolean", "categorical", "empty", "mixed-integer", "string"}


@dataclass(frozen=True)
class Numeric:
    """A column of numbers, standardised: (value - loc) / scale."""

    name: str
    loc: float
    scale: float
    width: ClassVar[int] = 1  # how many columns of x it takes

    @classmethod
    def fit(cls, column: "Series") -> "Numeric | None":
        """Mean and standard deviation (by 1/N) of the rows; None where they are constant."""
        values = numbers_of(column)
        with np.errstate(over="ignore", invalid="ignore"):
            loc, scale, width = float(values.mean()), float(values.std()), np.ptp(values)
        if not (math.isfinite(loc) and math.isfinite(scale)):
            raise DataError(
                f"column {column.name!r} must have a finite standard deviation, got values of "
                f"{np.abs(values).max():g}"
            )
        # What differs by rounding alone, such as 0.1 + 0.2 and 0.3, is constant.
        if scale == 0 or not width > 10 * np.finfo(np.float64).eps * np.abs(values).max():
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
    values = _parsed(column)
    wrong = np.flatnonzero(np.isnan(values))
    if len(wrong):
        raise _no_number(column, int(wrong[0]))
    return values


def _parsed(column: "Series") -> NDArray[np.float64]:
    """A column as floats, NaN where a value is no number."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def _parsed_with_commas(column: "Series") -> NDArray[np.float64]:
    """A column as floats where a comma may stand for the decimal point."""
    return _parsed(column.astype(str).str.replace(",", ".", n=1, regex=False))


def _parsed_without_percent(column: "Series") -> NDArray[np.float64]:
    """A column as floats where a percent sign ends each value; NaN where there is none."""
    texts = column.astype(str).str.strip()
    values = _parsed_with_commas(texts.str.removesuffix("%"))
    return np.where(texts.str.endswith("%"), values, np.nan)


def _no_number(column: "Series", row: int) -> DataError:
    """What to say of a value that is no number."""
    got = f"got {column.iloc[row]!r} in row {row + 1}"
    if not np.isnan(_parsed_without_percent(column.iloc[[row]])).any():
        return DataError(
            f"column {column.name!r} must hold numbers, {got}: take the percent signs away, so "
            "that 5% is 5"
        )
    if np.isnan(_parsed_with_commas(column.iloc[[row]])).any():
        return DataError(f"column {column.name!r} must hold numbers, {got}: correct or remove it")
    return DataError(
        f"column {column.name!r} must hold numbers with decimal points, not decimal commas, and "
        f"nothing between thousands, {got}"
    )


def check_text(column: "Series") -> None:
    """Complain of text that is numbers but for a few values, decimal commas or percent signs."""
    if kind_of(column) is Numeric or column.dtype.name in ("bool", "boolean", "category"):
        return
    wrong = np.isnan(_parsed(column))
    if not wrong.any():  # codes that were asked for as text
        return
    if wrong.mean() < FEW_ODD_ONES:
        raise _no_number(column, int(wrong.argmax()))
    still = np.isnan(_parsed_with_commas(column))
    commas = wrong & ~still
    if commas.any() and still.mean() < 0.5:
        raise _no_number(column, int(commas.argmax()))
    # A few shares such as 5% may be categories; where there are many they are numbers.
    shares = ~np.isnan(_parsed_without_percent(column))
    if column.nunique() > min(MOST_CLASSES, len(column) / 2) and shares.mean() > 0.5:
        raise _no_number(column, int(shares.argmax()))


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


def quoted(names: Iterable[object], most: int = 20) -> str:
    """Names for a message, the first few where there are many."""
    shown = [repr(str(name)) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
