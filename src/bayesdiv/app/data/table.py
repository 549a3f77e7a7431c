"""Tables: read, checked, and split into three parts."""

import csv
import difflib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data import Classification, DataError, Part, Regression, Splits, Task
from bayesdiv.app.data.encoder import (
    Encoder,
    Numeric,
    OneHot,
    check_columns,
    check_unique,
    codes_of,
    kind_of,
    label_of,
    labels_of,
    no_number,
    parsed,
    parsed_with_commas,
    parsed_without_percent,
    quoted,
)

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_Reader = Callable[[Path], tuple["DataFrame", str]]
FEWEST_ROWS = 10
MOST_CLASSES = 20  # a target of whole numbers with more different values is a quantity
FEW_ODD_ONES = 0.2  # a smaller share of values that are no numbers is taken for mistakes
MOST_CATEGORIES = 1000  # each takes a column of x


@dataclass(frozen=True, eq=False)
class Table:
    """Rows with a target, checked and not yet split.

    Args:
        name: of the data set or the file.
        frame: a pandas table, one row an example.
        target: the column to predict.
        task: what the target is.
        encoder: a known one, as for pixels; None learns it from the training rows.
        notes: sentences on what was decided on the user's behalf.

    Examples:
        >>> import pandas as pd
        >>> list(Table("two", pd.DataFrame({"x": [1], "y": [2]}), "y", Regression).features)
        ['x']
    """

    name: str
    frame: "DataFrame"
    target: str
    task: type[Regression] | type[Classification]
    encoder: Encoder | None = None
    notes: tuple[str, ...] = ()

    @property
    def features(self) -> "DataFrame":
        """All columns but the target."""
        return self.frame.drop(columns=self.target)


def read(path: str | Path, encoder: Encoder | None = None) -> "DataFrame":
    """A pandas table from a .csv or .parquet file.

    A CSV file is UTF-8 text with a header, its fields parted by commas, semicolons or tabs. Empty
    fields, `?` and what pandas takes for missing (`NA`, `nan`, ...) are missing values.

    Args:
        path: of the file.
        encoder: the one that is to encode it, if there is one already: a few rows do not show
            that the codes 007 and 010 are text.

    Examples:
        >>> read("rows.txt")
        Traceback (most recent call last):
        bayesdiv.app.data.DataError: a table must be a .csv or .parquet file, got rows.txt
    """
    texts = encoder.texts if encoder else ()
    # Many tables of the UCI collection have a question mark for what is missing.
    return _read(path, {"dtype": dict.fromkeys(texts, str), "na_values": ["?"]})[0]


def read_text(path: str | Path) -> tuple["DataFrame", str]:
    """A table to write back: every cell of a .csv file as the text it is, and its separator.

    Rows and column names are those of `read`, and nothing is missing: an empty field is "", `NA`
    is "NA". Spaces after a separator are no part of a cell. A .parquet file gives the table of
    `read` and a comma.

    Examples:
        >>> read_text("rows.txt")
        Traceback (most recent call last):
        bayesdiv.app.data.DataError: a table must be a .csv or .parquet file, got rows.txt
    """
    return _read(path, {"dtype": str, "keep_default_na": False, "na_filter": False})


def checked(
    frame: "DataFrame",
    name: str,
    *,
    target: str | None = None,
    task: type[Regression] | type[Classification] | None = None,
    drop: Iterable[str] = (),
) -> Table:
    """A pandas table with target and task settled, and nothing in it that cannot be encoded.

    Args:
        frame: one row an example.
        name: what to call it in messages.
        target: the column to predict; None is the last one.
        task: None decides: floats, and whole numbers with more than 20 different values, are a
            regression; text, bools and other whole numbers are classes.
        drop: columns to leave out.

    Examples:
        >>> import pandas as pd
        >>> checked(pd.DataFrame({"x": range(12), "y": ["no", "yes"] * 6}), "rows").notes
        ("the target is the last column, 'y'",)
    """
    check_unique(frame.columns)
    if len(frame) < FEWEST_ROWS:
        raise DataError(f"{name} must have at least {FEWEST_ROWS} rows, got {len(frame)}")
    frame, notes = _without(frame, name, [_known(column, frame, name) for column in drop])
    if target is None:
        target = str(frame.columns[-1])
        notes += (f"the target is the last column, {target!r}",)
    target = _known(target, frame, name)
    check_columns(frame)
    _check_texts(frame.drop(columns=target) if task is Classification else frame)
    found, why = (task, ()) if task else _decided(frame[target])
    (_check_classes if found is Classification else _check_quantity)(frame[target])
    notes += why + _check_categories(frame.drop(columns=target))
    return Table(name, frame, target, found, notes=notes)


def split(table: Table, *, seed: int = 0, test: float = 0.2, validation: float = 0.2) -> Splits:
    """A table in three parts, encoded by what its training rows show.

    Rows are drawn at random; for classes each part gets its share of each (stratified) and the
    training part at least one row of each. Rows of the other parts that alone have some category
    join the training part, since they could not be encoded.

    Args:
        table: what to split.
        seed: of the draw.
        test: share of the rows, above 0.
        validation: share of the rows; 0 leaves that part empty.

    Examples:
        >>> from bayesdiv.app.data import DATASETS
        >>> split(DATASETS["digits"](), seed=1).train.x.shape
        torch.Size([1079, 1, 8, 8])
    """
    features, targets = table.features, table.frame[table.target]
    rows, notes = _encodable(features, _drawn(table, seed, test, validation))
    encoder = table.encoder or Encoder.fit(features.iloc[rows.train])
    constant = [name for name in features.columns if name not in encoder.names]
    if constant:
        notes += (f"left out, as constant in the training rows: {quoted(constant)}",)
    task = _fitted(table.task, targets.iloc[rows.train])
    train, validated, tested = (
        Part(encoder.encode(features.iloc[at]), encode_target(task, targets.iloc[at]))
        for at in rows
    )
    return Splits(
        train,
        validated,
        tested,
        task,
        encoder,
        table.name,
        table.target,
        table.notes + notes,
        tuple((rows.test + 1).tolist()),
    )


def encode_target(task: Task, target: "Series") -> Tensor:
    """Targets as y: standardised, or class indices.

    Examples:
        >>> import pandas as pd
        >>> encode_target(Classification(("no", "yes")), pd.Series(["yes", "no"]))
        tensor([1, 0])
    """
    if isinstance(task, Classification):
        return torch.from_numpy(codes_of(target, task.classes))
    values = Numeric(str(target.name), task.loc, task.scale).encode(target)
    return torch.from_numpy(values).squeeze(1)


class _Rows(NamedTuple):
    """Which rows are in which part."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def _drawn(table: Table, seed: int, test: float, validation: float) -> _Rows:
    """Rows at random in three parts."""
    if not (test > 0 and validation >= 0 and test + validation < 1):
        raise DataError(
            "test must be above 0, validation at least 0 and their sum below 1, got "
            f"test={test} and validation={validation}"
        )
    generator = torch.Generator().manual_seed(seed)
    order: NDArray[np.int64] = torch.randperm(len(table.frame), generator=generator).numpy()
    fewest = 2
    if table.task is Classification:
        classes = labels_of(table.frame[table.target])
        order = _interleaved(order, codes_of(table.frame[table.target], classes))
        fewest = len(classes)
    shares = (test, validation)
    sizes = [max(1, round(len(order) * share)) if share else 0 for share in shares]
    tested, validated, trained = np.split(order, np.cumsum(sizes))
    if len(trained) < fewest:
        raise DataError(
            f"the training part must have at least {fewest} of {len(order)} rows, got "
            f"{len(trained)} with test={test} and validation={validation}"
        )
    return _Rows(trained, validated, tested)


def _interleaved(order: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows so ordered that any stretch has its share of each class, the end one of each."""
    codes = codes[order]
    place = np.empty(len(codes))
    for code, size in zip(*np.unique(codes, return_counts=True), strict=True):
        place[codes == code] = np.arange(1, size + 1) / size
    return order[np.argsort(place, kind="stable")]


def _encodable(features: "DataFrame", rows: _Rows) -> tuple[_Rows, tuple[str, ...]]:
    """The parts after rows with a category of their own have joined the training part."""
    known = np.ones(len(features), dtype=bool)
    for name in features.columns:
        if kind_of(features[name]) is OneHot:
            seen = features[name].isin(features[name].iloc[rows.train])
            known &= seen.to_numpy(dtype=bool)
    if known.all():
        return rows, ()
    moved = np.flatnonzero(~known)
    validation, test = (part[known[part]] for part in rows[1:])
    if not (len(test) and (len(validation) or not len(rows.validation))):
        raise DataError(
            "validation and test must have rows whose categories training rows have, got "
            f"{len(validation)} and {len(test)} such rows: drop columns with many rare values"
        )
    note = f"rows moved to the training part, as only they have some category: {len(moved)}"
    return _Rows(np.concatenate([rows.train, moved]), validation, test), (note,)


def _fitted(task: type[Regression] | type[Classification], target: "Series") -> Task:
    """The task with its moments or classes from training targets."""
    if task is Classification:
        return Classification(labels_of(target))
    found = Numeric.fit(target)
    if found is None:
        raise DataError(
            f"target {target.name!r} must vary in the training rows, got {target.iloc[0]} in all"
        )
    return Regression(found.loc, found.scale)


def _read(path: str | Path, options: Mapping[str, object]) -> tuple["DataFrame", str]:
    """A table and its separator; the options are what pandas is to make of a CSV file's cells."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise DataError(f"a table must be a .csv or .parquet file, got the folder {path}")
    from_csv = partial(_read_csv, options=options)
    readers: dict[str, _Reader] = {".csv": from_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise DataError(f"a table must be a .csv or .parquet file, got {path}")
    if not path.exists():
        raise DataError(f"a table must be a file that exists, got {path}")
    try:
        frame, separator = readers[path.suffix.lower()](path)
    except OSError as problem:
        raise DataError(f"{path} must be readable, got: {problem}") from problem
    check_unique(frame.columns)
    if frame.empty:
        raise DataError(f"{path} must have rows, got none below its header")
    return frame.reset_index(drop=True), separator


def _read_csv(path: Path, options: Mapping[str, object]) -> tuple["DataFrame", str]:
    """A CSV file and its separator, or one sentence on why it is none."""
    import pandas as pd

    try:
        separator = _separator(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                sep=separator,
                encoding="utf-8-sig",
                skipinitialspace=True,
                index_col=False,  # else a surplus field would make the first column row names
                low_memory=False,  # else a long column may be read in pieces of different types
                **options,
            )
        return frame, separator
    except UnicodeDecodeError as problem:
        raise DataError(f"{path} must be UTF-8 text, got: {problem}") from problem
    except (csv.Error, pd.errors.ParserError, pd.errors.ParserWarning) as problem:
        reason = " ".join(str(problem).split())
        raise DataError(
            f"{path} must have as many fields in each row as in its header, got: {reason}"
        ) from problem


def _separator(path: Path) -> str:
    """What parts the fields of a CSV file, after a look at what pandas would let pass.

    pandas takes zero bytes for text and renames a second column of the same name.
    """
    with path.open("rb") as file:
        if b"\0" in file.read(1 << 16):
            raise DataError(f"{path} must be UTF-8 text, got a binary file")
    with path.open(encoding="utf-8-sig", newline="") as lines:
        first = next((line for line in lines if line.strip()), "")
        if not first:
            raise DataError(f"{path} must have a header and rows, got an empty file")
        separator = max(",;\t", key=first.count)
        lines.seek(0)
        rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        check_unique(name for name in next(filter(any, rows)) if name)
    return separator


def _read_parquet(path: Path) -> tuple["DataFrame", str]:
    """A Parquet file and a comma, or one sentence on why it is none."""
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    try:
        with ParquetFile(path) as file:
            return file.read().to_pandas(), ","
    except ValueError as problem:  # what Arrow raises for a broken file
        raise DataError(f"{path} must be a Parquet file, got: {problem}") from problem


def _decided(
    target: "Series",
) -> tuple[type[Regression] | type[Classification], tuple[str, ...]]:
    """What a target is when nobody says, with a note where it could be taken either way."""
    if kind_of(target) is OneHot:
        return Classification, ()
    different = target.nunique()
    if target.dtype.kind == "f" or different > MOST_CLASSES:
        return Regression, ()
    return Classification, (
        f"target {target.name!r} has {different} different whole numbers, taken as classes; "
        "if it is a quantity, say so by --as_classes false, or in Python by task=Regression",
    )


def _without(frame: "DataFrame", name: str, drop: list[str]) -> tuple["DataFrame", tuple[str, ...]]:
    """A table without the columns to drop and those that its header has no name for."""
    nameless = [column for column in frame.columns if re.fullmatch(r"Unnamed: \d+", str(column))]
    kept = frame.drop(columns=list({*drop, *nameless}))
    if len(kept.columns) < 2:
        raise DataError(
            f"{name} must have a target and a column to predict it from, got "
            f"{quoted(kept.columns) or 'no column'}"
        )
    notes = (f"columns without a name left out: {len(nameless)}",) if nameless else ()
    return kept, notes


def _known(column: str, frame: "DataFrame", name: str) -> str:
    """The column, if the table has it."""
    if column in frame.columns:
        return column
    lower = {str(known).lower(): known for known in frame.columns}
    close = difflib.get_close_matches(column.lower(), lower, n=1)
    hint = f"; did you mean {lower[close[0]]!r}?" if close else ""
    raise DataError(f"{name} must have the column {column!r}, got {quoted(frame.columns)}{hint}")


def _check_texts(frame: "DataFrame") -> None:
    """No column of text is one of numbers but for a few values, decimal commas or percent signs."""
    for name in frame.columns:
        column = frame[name]
        if kind_of(column) is Numeric or column.dtype.name in ("bool", "boolean", "category"):
            continue
        wrong = np.isnan(parsed(column))
        if not wrong.any():  # codes that were asked for as text
            continue
        if wrong.mean() < FEW_ODD_ONES:
            raise no_number(column, int(wrong.argmax()))
        still = np.isnan(parsed_with_commas(column))
        commas = wrong & ~still
        if commas.any() and still.mean() < 0.5:
            raise no_number(column, int(commas.argmax()))
        _check_percents(column)


def _check_percents(column: "Series") -> None:
    """A few shares such as 5% may be categories; where there are many they are numbers."""
    if column.nunique() <= min(MOST_CLASSES, len(column) / 2):
        return
    shares = ~np.isnan(parsed_without_percent(column))
    if shares.mean() > 0.5:
        raise no_number(column, int(shares.argmax()))


def _check_categories(features: "DataFrame") -> tuple[str, ...]:
    """Notes on columns with many categories; with too many they are refused."""
    notes: tuple[str, ...] = ()
    for name in features.columns:
        if kind_of(features[name]) is Numeric:
            continue
        different = features[name].nunique()
        if different > min(MOST_CATEGORIES, len(features) / 2):
            raise DataError(
                f"column {name!r} must repeat its categories, at most {MOST_CATEGORIES} and half "
                f"the rows, got {different} in {len(features)} rows: drop it"
            )
        if different > MOST_CLASSES:
            notes += (f"column {name!r} holds text: each of its {different} values is a column",)
    return notes


def _check_quantity(target: "Series") -> None:
    if kind_of(target) is not Numeric:
        raise DataError(
            f"the target of a regression must hold numbers, got {label_of(target.iloc[0])!r} in "
            f"{target.name!r}"
        )


def _check_classes(target: "Series") -> None:
    counts = Counter(map(label_of, target))
    if len(counts) < 2:
        raise DataError(
            f"target {target.name!r} must have at least 2 classes, got {quoted(counts)} alone"
        )
    single = [label for label, count in counts.items() if count == 1]
    if single:
        raise DataError(
            f"every class of target {target.name!r} must have at least 2 rows, got one of "
            f"{quoted(single)}"
        )
