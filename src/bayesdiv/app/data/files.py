"""Tables read from text, Excel and Parquet files."""

import csv
import itertools
import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zipfile import ZipFile

import numpy as np

from bayesdiv.app.data import columns as kinds
from bayesdiv.app.data.columns import FEW_ODD, Encoder, label_of, quoted, words_for
from bayesdiv.app.data.splits import DataError, ensure
from bayesdiv.app.extra import require

if TYPE_CHECKING:
    from pandas import DataFrame, Series

require("pandas", "pyarrow")

TEXT = (".csv", ".tsv", ".txt", ".dat", ".data")
KNOWN = "a .csv, .tsv, .txt, .xlsx or .parquet file"
CELL = 8  # bytes of a number
SHEET = 50  # bytes of memory per byte of a spreadsheet's XML
GROUPS = "'’ \u00a0\u202f"  # that may stand between thousands in any file
_MONEY = "[$€£¥₹]|US\\$"
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_NAMED = {"tab": "\t", "\\t": "\t", "space": r"\s+", " ": r"\s+"}


@dataclass(frozen=True)
class Written:
    """How a file is written, as far as its user says; what is None is found out from the file."""

    separator: str | None = None  # of fields: comma, semicolon, tab, bar or white space
    decimal: str | None = None  # sign; 1,234 in a file of semicolons is a number only with this
    encoding: str | None = None  # such as latin-1; UTF-8 or what a byte-order mark says
    header: bool | None = None  # whether the first line has the names of the columns
    sheet: str | None = None  # of an Excel file; the first
    texts: tuple[str, ...] = ()  # columns to read as text, such as codes

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be . or , got {self.decimal}")
        object.__setattr__(self, "separator", _NAMED.get(self.separator or "", self.separator))
        if len(self.separator or "") > 1 and self.separator != r"\s+":
            raise ValueError(f"separator must be one character or tab, got {self.separator!r}")


class Read(NamedTuple):
    """A table from a file, what parts the file's fields, and what was decided on the way."""

    frame: "DataFrame"
    separator: str = ","
    notes: tuple[str, ...] = ()


def read(
    path: str | Path, encoder: Encoder | None = None, written: Written | None = None
) -> "DataFrame":
    """A pandas table from a file; its encoder knows what few rows do not show: 007 is text.

    A text file has a header, unless its first line looks like the rows below it. Empty fields, `?`
    and what pandas takes for missing (`NA`, `nan`, ...) are missing values.
    """
    return table_of(path, encoder, written).frame


def table_of(
    path: str | Path, encoder: Encoder | None = None, written: Written | None = None
) -> Read:
    """The table of `read` with notes: 1,234.50 is a number, $5 is left for the column to judge."""
    written = written or Written()
    texts = (*(encoder.texts if encoder else ()), *written.texts)
    # Many tables of the UCI collection have a question mark for what is missing.
    decimal = written.decimal or "."
    options = {"dtype": dict.fromkeys(texts, str), "na_values": ["?"], "decimal": decimal}
    found = _read(path, options, written)
    share = 0.0 if encoder else 1 - FEW_ODD
    either = written.decimal is None and found.separator == ";"
    groups = GROUPS + ("" if either else "," if decimal == "." else ".")
    columns, notes = {}, list(found.notes)
    for name, given in found.frame.items():
        coded = name in texts
        column = given.map(label_of, na_action="ignore").astype(object) if coded else given
        column = column.str.strip() if words_for(column) == "string" else column
        new = column if coded else plain_numbers(column, decimal, share, groups)
        columns[str(name)] = new
        if new.dtype.kind in "iuf" and given.dtype.kind not in "iufb":
            odd = int((np.isnan(kinds.parsed(given)) & new.notna().to_numpy()).argmax())
            example = f"{given.iloc[odd]!r} is {new.iloc[odd]:.12g}"
            notes.append(f"column {name!r} is read as numbers: {example}")
    return found._replace(frame=found.frame.assign(**columns), notes=tuple(notes))


def plain_numbers(column: "Series", decimal: str, share: float, groups: str) -> "Series":
    """A column of text with its numbers, and a unit, as Python writes them, if so many are."""
    import pandas as pd

    if words_for(column) != "string":
        return column
    number = re.compile(
        rf"(?P<open>\()?(?P<sign>[+\-−]?)\s?(?P<before>{_MONEY})?\s?(?P<minus>[\-−]?)"
        rf"(?P<whole>[1-9]\d{{0,2}}(?:[{groups}]\d{{3}})+|\d+)?"
        rf"(?:{re.escape(decimal)}(?P<part>\d+))?(?P<power>[eE][+-]?\d+)?"
        r"\s?(?P<after>[^\d\s.,()]{1,8})?(?(open)\))"
    )
    texts = column.dropna().unique()
    plain = {text: new for text in texts if (new := _plain(number.fullmatch(text.strip())))}
    units = {new.partition(" ")[2] for new in plain.values()}
    if share and (len(units) != 1 or column.isin(list(plain)).sum() < share * column.count()):
        return column
    new = column.astype(object).map(lambda text: plain.get(text, text), na_action="ignore")
    values = pd.to_numeric(new, errors="coerce")
    return values if values.count() == column.count() else new


def _plain(found: re.Match[str] | None) -> str | None:
    """A number as Python writes it, with its unit."""
    if found is None or not (found["whole"] or found["part"]):
        return None
    sign = "-" if found["open"] or found["minus"] or found["sign"] in ("-", "−") else ""
    part = f".{found['part']}" if found["part"] else ""
    number = sign + re.sub(r"\D", "", found["whole"] or "0") + part + (found["power"] or "")
    return f"{number} {found['before'] or found['after'] or ''}".strip()


def read_text(path: str | Path, written: Written | None = None) -> tuple["DataFrame", str]:
    """A table to write back: every cell as the text it is, and the separator to write it with."""
    options = {"dtype": str, "keep_default_na": False, "na_filter": False}
    written = written or Written()
    found = _read(path, options, written)
    own = Path(path).suffix.lower() in TEXT and found.separator != r"\s+"
    return found.frame, found.separator if own else ";" if written.decimal == "," else ","


def _read(path: str | Path, options: Mapping[str, object], written: Written) -> Read:
    """A table from a file; the options are what pandas is to make of a text file's cells."""
    path = Path(path).expanduser()
    suffix, folder = path.suffix.lower(), path.is_dir()
    known = not folder and suffix in (*TEXT, ".xlsx", ".parquet")
    ensure(known, f"a table must be {KNOWN}, got {'the folder ' * folder}{path}")
    ensure(path.exists(), f"the file {path} does not exist: check its name and folder")
    # A pipe would be waited for.
    ensure(path.is_file(), f"a table must be an ordinary file, got {path}")
    size = path.stat().st_size
    ensure(size <= memory(), f"{path} must fit into memory, got {size:,} bytes")
    kind = {".parquet": "a Parquet file", ".xlsx": "an Excel file (.xlsx)"}.get(suffix, "text")
    try:
        if suffix == ".parquet":
            found = _read_parquet(path)
        elif suffix == ".xlsx":
            found = _read_excel(path, written.sheet)
        else:
            found = _read_csv(path, options, written)
    except DataError:
        raise
    except OSError as problem:
        raise DataError(f"{path} must be readable, got: {problem}") from problem
    except Exception as problem:  # of Arrow, zipfile, openpyxl and XML, of many kinds
        raise DataError(f"{path} must be {kind}, got: {problem}") from problem
    frame = found.frame.set_axis([str(name).strip() for name in found.frame.columns], axis=1)
    kinds.check_unique(frame.columns)
    ensure(len(frame), f"{path} must have rows, got none below its header")
    return found._replace(frame=frame.reset_index(drop=True))


def _read_csv(path: Path, options: Mapping[str, object], written: Written) -> Read:
    """A text file, or one sentence on why it is none and which option may help."""
    import pandas as pd

    encoding = written.encoding or _encoding(path)
    try:
        with path.open(encoding=encoding, newline="") as lines:
            first = list(itertools.islice(filter(str.strip, lines), 50))
        ensure(first, f"{path} must have a header and rows, got an empty file")
        # Some spreadsheets have the line sep=; above the header.
        skip = int(re.fullmatch(r"sep=.[\r\n]*", first[0]) is not None)
        separator = written.separator or (first[0][4] if skip else _separator(first[:6]))
        rows: Iterable[list[str]] = map(str.split, first[skip:])
        if separator != r"\s+":
            rows = csv.reader(first[skip:], delimiter=separator, skipinitialspace=True)
        names, notes = _names(list(itertools.islice(filter(any, rows), 6)), written)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                sep=separator,
                encoding=encoding,
                skiprows=skip,
                names=names,
                header=None if names else 0,
                skipinitialspace=True,
                index_col=False,  # else a surplus field would make the first column row names
                low_memory=False,  # else a long column may be read in pieces of different types
                **options,
            )
        return Read(frame, separator, notes)
    except LookupError as problem:
        raise DataError(f"encoding must be one that Python knows, got {encoding}") from problem
    except UnicodeError as problem:
        kind = "UTF-8 text" if encoding == "utf-8-sig" else f"text in {encoding}"
        reason = " ".join(str(problem).split())
        if isinstance(problem, UnicodeDecodeError):
            reason = f"the byte {problem.object[problem.start]:#04x} at place {problem.start:,}"
        advice = "; give its encoding, such as --encoding latin-1"
        raise DataError(f"{path} must be {kind}, got: {reason}", advice) from problem
    except (csv.Error, pd.errors.ParserError, pd.errors.ParserWarning) as problem:
        reason = " ".join(str(problem).split()).removeprefix("Error tokenizing data. C error: ")
        if isinstance(problem, pd.errors.ParserWarning):
            reason = "more in the rows"
        rule = f"{path} must have as many fields in each row as in its header, got: {reason}"
        advice = "; remove lines above the header, or give the --separator"
        raise DataError(rule, advice) from problem


def _encoding(path: Path) -> str:
    """What a byte-order mark says, else UTF-8; a file with zero bytes is not text."""
    with path.open("rb") as file:
        head = file.read(1 << 16)
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    text = marked == "utf-16" or b"\0" not in head
    ensure(text, f"{path} must be UTF-8 text, got a binary file")
    return marked or "utf-8-sig"


def _separator(first: list[str]) -> str:
    """The separator of the first line that has one; white space where none is."""
    for line in first:
        bare = re.sub('"[^"]*"', "", line)
        found = max(",;\t|", key=bare.count)
        if found in bare:
            return found
    return r"\s+" if len(first[0].split()) > 1 else ","


def _names(rows: list[list[str]], written: Written) -> tuple[list[str] | None, tuple[str, ...]]:
    """Names for columns whose file has none, else None; with notes."""
    # The first line is a row if it has a number over every column of numbers.
    head, *below = rows
    names = [f"column_{k + 1}" for k in range(len(head))]
    numeric = [k for k in range(len(head)) if below and all(_is_number(r, k) for r in below)]
    looks = bool(numeric) and all(_is_number(head, k) for k in numeric)
    years = all(re.fullmatch(r"(1[89]|20)\d\d", text) for text in head)
    if written.header is None and looks and not years:
        return names, (
            "the first line holds numbers like the rows below it, so it is taken for a row and "
            f"columns are called {quoted(names, 2)}; if it is the header, give --header yes",
        )
    if written.header is False:
        return names, ()
    kinds.check_unique(filter(None, map(str.strip, head)))
    return None, tuple(
        f"column {name!r} has leading zeros and is read as numbers; if it names something, give "
        f"--categories {name}"
        for k, name in enumerate(head)
        if name not in written.texts
        and any(re.fullmatch(r"0\d+", row[k]) for row in below if row[k:])
    )


def _is_number(row: list[str], place: int) -> bool:
    with suppress(IndexError, ValueError):
        float(row[place].replace(",", "."))
        return True
    return False


def _read_excel(path: Path, wanted: str | None) -> Read:
    import pandas as pd

    check_unpacked(path)
    with pd.ExcelFile(path, engine="openpyxl") as book:
        sheet, names = wanted or book.sheet_names[0], book.sheet_names
        ensure(sheet in names, f"{path} must have the sheet {sheet!r}, got {quoted(names)}")
        frame = pd.read_excel(book, sheet_name=sheet, na_values=["?"])
    others = [name for name in names if name != sheet]
    said = f"sheet {sheet!r} is read, not {quoted(others)}; choose one with --sheet"
    return Read(frame, notes=(said,) if others and wanted is None else ())


def _read_parquet(path: Path) -> Read:
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

    with ParquetFile(path) as file:
        rows, columns = file.metadata.num_rows, file.metadata.num_columns
        got = f"got {rows:,} rows of {columns:,} columns"
        ensure(CELL * rows * columns <= memory(), f"{path} must fit into memory, {got}")
        return Read(file.read().to_pandas())


def memory() -> float:
    """Bytes of memory that the machine has, where it says: a few can stand for very many."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def check_unpacked(source: Path | bytes, most: float | None = None) -> None:
    """Refuse an archive that is larger inside than this; None is what a spreadsheet may be."""
    with ZipFile(BytesIO(source) if isinstance(source, bytes) else source) as archive:
        size = sum(member.file_size for member in archive.infolist())
    most = memory() / SHEET if most is None else most
    name = "an archive" if isinstance(source, bytes) else source
    ensure(size <= most, f"{name} must hold at most {most:,.0f} bytes unpacked, got {size:,}")
