"""Columns of a table: what kind each is, and how the training rows say to make numbers of it."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data.splits import DataError, ensure
from bayesdiv.serving.graph import Category, Encoded, Number

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_DATES = {"date", "datetime", "datetime64"}
_NUMBERS = {"decimal", "floating", "integer", "mixed-integer-float"}
_CATEGORIES = {"boolean", "categorical", "empty", "mixed-integer", "string", "mixed"}
_UNIT = r"-?\d*\.?\d+(?:[eE][+-]?\d+)? ?([^\d\s.,()]{1,8})"
FEW_ODD = 0.2  # a smaller share of values that are no numbers is taken for mistakes
POINTS = " with decimal points, not decimal commas"


@dataclass(frozen=True)
class Numeric(Number):
    """Numbers, by the moments of training rows; where these had gaps, their median fills all."""

    called: ClassVar[str] = "numbers"

    def fit(self, column: "Series") -> "Numeric | None":
        """With mean and standard deviation (by 1/N) of the rows; None where they are constant."""
        there = column.dropna()
        if not len(there):
            return None
        values = self.values(there)
        _refuse(there, np.isnan(values), self.called)
        with np.errstate(over="ignore", invalid="ignore"):
            loc, scale, width = float(values.mean()), float(values.std()), np.ptp(values)
        rule = f"column {column.name!r} must have a finite standard deviation, got values of "
        ensure(math.isfinite(loc + scale), f"{rule}{np.abs(values).max():g}")
        # What differs by rounding alone, such as 0.1 + 0.2 and 0.3, is constant.
        if scale == 0 or not width > 10 * np.finfo(np.float64).eps * np.abs(values).max():
            return None
        fill = float(np.median(values)) if len(there) < len(column) else None
        return replace(self, loc=loc, scale=scale, fill=fill)

    def values(self, column: "Series") -> NDArray[np.float64]:
        """The column as floats, NaN where a value is not a number or has another unit."""
        return parsed(column, self.unit)

    def raw(self, column: "Series") -> NDArray[np.float64]:
        """What `Encoded` takes: where gaps and words alone are filled, other text is infinite."""
        values = self.values(column)
        if self.fill is None:
            return values
        wordy = [isinstance(v, str) and not any(map(str.isdigit, v)) for v in column]
        wrong = np.isnan(values) & column.notna().to_numpy() & ~np.array(wordy, dtype=bool)
        return np.where(wrong, np.inf, values)

    def problems(self, column: "Series") -> list[str]:
        """What hinders each row, or nothing."""
        found, values, wrong = [""] * len(column), self.values(column), ~_known(self, column)
        bad = column[wrong]
        commas = _with_commas(bad) & (self.called == "numbers")
        parts = np.flatnonzero(wrong), bad.tolist(), bad.isna().to_numpy(), commas.tolist()
        for row, cell, missing, comma in zip(*parts, strict=True):
            rule = self.called + f" in {self.unit}" * bool(self.unit) + POINTS * comma
            said = f"must hold {rule}, got {label_of(cell)!r}"
            if not math.isnan(values[row]):
                said = f"must hold finite numbers of the training rows' size, got {values[row]:g}"
            found[row] = f"column {self.name!r} {'has no value' if missing else said}"
        return found


@dataclass(frozen=True)
class Dates(Numeric):
    """A column of dates, as days since 1970; the format of `strptime` is empty for real dates."""

    format: str = ""
    called: ClassVar[str] = "dates"

    def values(self, column: "Series") -> NDArray[np.float64]:
        """Days since 1970, NaN where a value is not a date of the format."""
        import pandas as pd

        how = self.format if self.format and words_for(column) == "string" else None
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of text of no format
            times = pd.to_datetime(column, format=how, errors="coerce", utc=True)
        # In seconds, since nanoseconds end in 2262 and tables have 9999-12-31.
        days = times - pd.Timestamp("1970-01-01", tz="UTC").as_unit("s")
        return np.asarray(days / np.timedelta64(1, "D"), dtype=np.float64)


@dataclass(frozen=True)
class OneHot(Category):
    """The categories of training rows; where these had gaps, the commonest fills all."""

    def fit(self, column: "Series") -> "OneHot | None":
        """With the categories of the rows; None where they are constant."""
        there = column.dropna()
        categories = labels_of(there)
        if len(categories) < 2:
            return None
        fill = there.map(label_of).mode().iloc[0] if len(there) < len(column) else None
        return replace(self, categories=categories, fill=fill)

    def problems(self, column: "Series") -> list[str]:
        name, values = f"column {self.name!r}", quoted(self.categories)
        rule = f"{name} must have one of the training rows' values {values}, got "
        labels = column.astype(object).map(label_of, na_action="ignore")
        wrong = labels.map(lambda own: f"{rule}{own!r}", na_action="ignore")
        return list(wrong.fillna(f"{name} has no value").mask(_known(self, column), ""))

    def raw(self, column: "Series") -> NDArray[np.float64]:
        index = {label: place for place, label in enumerate(self.categories)}
        places = np.array([index.get(label_of(value), -1) for value in column], dtype=np.float64)
        return np.where(column.isna(), np.nan, places)


def _known(kind: Numeric | OneHot, column: "Series") -> NDArray[np.bool_]:
    """Which rows can be encoded."""
    raw = torch.from_numpy(np.column_stack([kind.raw(column)]))
    return np.asarray(Encoded((kind,), (kind.width,))(raw)[1])


def words_for(column: "Series") -> str:
    """What the values are, in pandas' words."""
    from pandas.api.types import infer_dtype

    return "floating" if column.dtype.kind in "iuf" else str(infer_dtype(column, skipna=True))


def unit_of(column: "Series") -> str | None:
    """The unit that stands beside every number of a column of text, such as € or %; or None."""
    if words_for(column) != "string":
        return None
    units = column.dropna().drop_duplicates().str.extract(f"^{_UNIT}$")[0]
    return str(units.iloc[0]) if units.notna().all() and units.nunique() == 1 else None


def format_of(column: "Series") -> list[str]:
    """The formats that every value of a column of text fits as a date, the likeliest first."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    texts = column.dropna().drop_duplicates()
    if not len(texts):
        return []
    first = str(texts.iloc[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a day comes first, which is what is asked
        days = ("." in first, "." not in first)
        guessed = dict.fromkeys(guess_datetime_format(first, dayfirst=day) for day in days)
    whole = [how for how in guessed if how and "%d" in how and "%Y" in how and "%Y%" not in how]
    read = {how: pd.to_datetime(texts, format=how, errors="coerce", utc=True) for how in whole}
    return [how for how, found in read.items() if found.notna().all()]


def parsed(column: "Series", unit: str = "") -> NDArray[np.float64]:
    """A column as floats, in this unit or without any, NaN where a value is no such number."""
    import pandas as pd

    if unit and column.dtype.kind not in "iuf":
        column = column.map(lambda v: v.strip().removesuffix(unit) if isinstance(v, str) else v)
    values = pd.to_numeric(column, errors="coerce")
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def _with_commas(column: "Series") -> NDArray[np.bool_]:
    """Which values are numbers if their first comma is a decimal point."""
    texts = column.astype(object).astype(str)  # Arrow takes no numbers of another byte order
    return ~np.isnan(parsed(texts.str.replace(",", ".", n=1, regex=False)))


def kind_of(column: "Series", advice: str = "") -> Numeric | OneHot:
    """How a column without missing values can be encoded, by moments or categories to be fitted."""
    found, name = words_for(column), str(column.name)
    if found in _NUMBERS:
        return Numeric(name)
    if found in _DATES:
        return Dates(name)
    plain = (str, int, float, bool, np.generic)
    fine = found != "mixed" or all(isinstance(v, plain) for v in column.dropna())
    rule = f"column {column.name!r} must hold numbers or categories, got {found}"
    advice = advice or f": drop it with --drop {column.name}"
    ensure(fine and found in _CATEGORIES, rule, advice)
    if found != "string":
        return OneHot(name, ())
    if unit := unit_of(column):
        return Numeric(name, unit=unit)
    formats = format_of(column)
    return Dates(name, format=formats[0]) if formats else OneHot(name, ())


def numbers_of(column: "Series") -> NDArray[np.float64]:
    """A column without missing values as floats; text that is not a number is refused."""
    kind_of(column)
    values = parsed(column, unit_of(column) or "")
    _refuse(column, np.isnan(values))
    return values


def check_text(column: "Series", remedy: str | None = None) -> None:
    """Complain of text that is numbers but for a few values, or for decimal commas."""
    wrong = _odd_ones(column)
    if wrong.mean() >= FEW_ODD:
        commas = _with_commas(column)
        wrong &= commas if commas.mean() > 0.5 else False
    _refuse(column, wrong, remedy=remedy)


def _odd_ones(column: "Series") -> NDArray[np.bool_]:
    """Which values of a column of text, some of them numbers, are none."""
    plain = column.dtype.name in ("bool", "boolean", "category")
    if plain or isinstance(kind_of(column), Numeric):
        return np.zeros(len(column), dtype=bool)
    bare = column.map(lambda value: value.partition(" ")[0] if isinstance(value, str) else value)
    return np.isnan(parsed(bare)) & np.asarray(column.notna(), dtype=np.bool_)


def without_odd_ones(column: "Series") -> "Series":
    """A column that is numbers but for a few values, with these missing; others as they are."""
    wrong = _odd_ones(column)
    few = wrong.any() and wrong.sum() < FEW_ODD * column.count()
    if not few or _with_commas(column[wrong]).any():
        return column
    there = column.mask(wrong)
    return there if unit_of(there) else there.astype(float)


def _refuse(
    column: "Series", wrong: NDArray[np.bool_], called: str = "numbers", remedy: str | None = None
) -> None:
    """Complain of the first value that is wrong: not a number or a date."""
    if not wrong.any():
        return
    row = int(wrong.argmax())
    rule, value = f"column {column.name!r} must hold {called}", column.iloc[row]
    usual = "correct or remove it, fill it with --impute, or drop the column with --drop"
    remedy = remedy or f"{usual} {column.name}"
    if called == "numbers" and _with_commas(column.iloc[[row]]).all():
        grouped = re.fullmatch(r"-?[1-9]\d{0,2},\d{3}", str(value))
        either = " or, where commas group thousands, --decimal ." if grouped else ""
        rule += POINTS
        remedy = f"give --decimal ,{either}"
    raise DataError(f"{rule}, got {label_of(value)!r} in row {row + 1}", f": {remedy}")


def _check_rows(problems: Iterable[str]) -> None:
    """Complain of the first row that has a problem."""
    for row, problem in enumerate(problems):
        advice = ": give --decimal ," if POINTS in problem else ": correct or remove it"
        ensure(not problem, f"{problem} in row {row + 1}", advice)


def label_of(value: object) -> str:
    """A category's name, the same whether a file had it read as 1, 1.0 or "1"."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def labels_of(column: "Series") -> tuple[str, ...]:
    """Names of the categories that occur, in ascending order."""
    ordered = sorted(set(column), key=lambda value: (isinstance(value, str), value))
    return tuple(dict.fromkeys(map(label_of, ordered)))


def codes_of(column: "Series", labels: tuple[str, ...]) -> NDArray[np.int64]:
    """For each row the index of its category's name."""
    kind = OneHot(str(column.name), labels)
    codes = kind.raw(column)
    if not (codes >= 0).all():
        _check_rows(kind.problems(column))
    return codes.astype(np.int64)


def quoted(names: Iterable[object], most: int = 20) -> str:
    """Names for a message, the first few where there are many."""
    shown = [repr(str(name)) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


@dataclass(frozen=True)
class Encoder:
    """How rows of a table become x: learned from the training rows, the same for all others."""

    columns: tuple[Numeric | OneHot, ...]  # in the order of x
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
        rule = "a column besides the target must vary in the training rows, got the constant "
        ensure(columns, f"{rule}{quoted(frame.columns)}")
        return cls(columns, (sum(column.width for column in columns),))

    def encode(self, frame: "DataFrame") -> Tensor:
        """Rows as x, (rows, *shape); columns that the encoder does not know are ignored."""
        used = self._used(frame)
        raw = np.column_stack([column.raw(used[column.name]) for column in self.columns])
        x: Tensor
        x, fine = Encoded(self.columns, self.shape)(torch.from_numpy(raw))
        if not fine.all():
            _check_rows(self.problems(frame))
        return x

    def problems(self, frame: "DataFrame") -> list[str]:
        """For each row what hinders its encoding, in sentences; nothing where it can be encoded."""
        used = self._used(frame)
        found = [column.problems(used[column.name]) for column in self.columns]
        return ["; ".join(filter(None, row)) for row in zip(*found, strict=True)]

    def _used(self, frame: "DataFrame") -> "DataFrame":
        check_unique(frame.columns)
        absent = [name for name in self.names if name not in frame.columns]
        rule = "a table must have the columns that the run was trained on"
        ensure(not absent, f"{rule}, got none named {quoted(absent)}")
        return frame[list(self.names)]

    def to_json(self) -> dict[str, object]:
        """Plain values for `json.dump`."""
        return {"columns": [asdict(column) for column in self.columns], "shape": self.shape}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> "Encoder":
        """The encoder that `to_json` described."""
        try:
            columns = []
            for entry in saved["columns"]:
                fields = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
                numbers = Dates if "format" in fields else Numeric
                kind: Any = OneHot if "categories" in fields else numbers
                columns.append(kind(**fields))
            return cls(tuple(columns), tuple(saved["shape"]))
        except (AttributeError, KeyError, TypeError) as problem:
            rule = "a saved encoder must hold columns and a shape"
            raise DataError(f"{rule}, got {saved!r}") from problem


def check_unique(names: Iterable[str]) -> None:
    """No two columns have the same name."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    said = f"column names must differ, got {quoted(repeated)} more than once: rename one of them"
    ensure(not repeated, said)


def check_there(frame: "DataFrame") -> None:
    """No value is missing."""
    missing = frame.isna().sum()
    counts = ", ".join(f"{count} in {name!r}" for name, count in missing.items() if count)
    row = int(frame.isna().any(axis=1).to_numpy().argmax()) + 1
    said = f"no value may be missing, got missing values: {counts}, the first in row {row}"
    advice = ": fill them with --impute, drop columns with --drop, or drop those rows"
    ensure(not missing.any(), said, advice)
