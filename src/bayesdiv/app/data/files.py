"""Tables read from .csv and .parquet files."""

import csv
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bayesdiv.app.data.encoder import Encoder, check_unique
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.extra import require

if TYPE_CHECKING:
    from pandas import DataFrame

require("pandas", "pyarrow")


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
        bayesdiv.app.data.splits.DataError: a table must be a .csv or .parquet file, got rows.txt
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
        bayesdiv.app.data.splits.DataError: a table must be a .csv or .parquet file, got rows.txt
    """
    return _read(path, {"dtype": str, "keep_default_na": False, "na_filter": False})


def _read(path: str | Path, options: Mapping[str, object]) -> tuple["DataFrame", str]:
    """A table and its separator; the options are what pandas is to make of a CSV file's cells."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise DataError(f"a table must be a .csv or .parquet file, got the folder {path}")
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise DataError(f"a table must be a .csv or .parquet file, got {path}")
    if not path.exists():
        raise DataError(f"a table must be a file that exists, got {path}")
    try:
        frame, separator = _read_csv(path, options) if suffix == ".csv" else _read_parquet(path)
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
