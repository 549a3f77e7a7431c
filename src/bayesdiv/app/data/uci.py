"""Public regression tables, most of the UCI archive: from a folder or the web, and verified.

A table comes from `uci/FILE.csv` or `FILE.csv` in the folder that BAYESDIV_DATA names, else from
the archive. Either way it is the published one or is refused: its `checksum` must be right. Rows
come in ascending order and numbers with ten significant digits, so that a seed draws the same
parts, and a run has the same encoder, wherever the table came from.
"""

import hashlib
import io
import struct
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from bayesdiv.app.data import files
from bayesdiv.app.data.columns import check_there, numbers_of, quoted
from bayesdiv.app.data.downloads import DATA, data_folder, fetch
from bayesdiv.app.data.splits import DataError, ensure
from bayesdiv.app.data.table import Table
from bayesdiv.app.tasks.regression import Regression

Numbers = NDArray[np.float64]
_ARCHIVE = "https://archive.ics.uci.edu/static/public"
_MOST_BYTES = 1 << 27


@dataclass(frozen=True)
class Source:
    """Where the archive has a table, and in which form, as the head of uci.toml explains."""

    place: str
    columns: Sequence[int]
    member: str = ""
    separator: str | None = None
    header: int = 0

    def numbers(self, path: Path) -> Numbers:
        """Features and target of the rows that have all of them, from the downloaded file."""
        import pandas as pd

        content = path.read_bytes()
        if self.member:
            files.check_unpacked(content, _MOST_BYTES)
            with ZipFile(io.BytesIO(content)) as archive:
                content = archive.read(self.member)
        if self.member.endswith(".xlsx"):
            files.check_unpacked(content, _MOST_BYTES)  # such a file is an archive too
            frame = pd.read_excel(io.BytesIO(content), header=None, engine="openpyxl")
        else:
            how = {"sep": self.separator or r"\s+", "skiprows": self.header, "header": None}
            frame = pd.read_csv(io.BytesIO(content), encoding="utf-8-sig", dtype=np.float64, **how)
        found = frame[list(self.columns)].apply(pd.to_numeric, errors="coerce")
        return np.asarray(found.dropna().to_numpy(np.float64))


@dataclass(frozen=True)
class Dataset:
    """A table by name: what it holds, how to know it and where to get it."""

    name: str
    title: str  # what its publisher calls it
    rows: int
    columns: tuple[str, ...]  # features, then the target
    checksum: str
    source: Source | None  # in the archive; None where no public address has it
    csv: str  # its file in a folder of one's own


def read(name: str) -> Table:
    """A public table by its name, verified.

    Examples:
        >>> read("concret")
        Traceback (most recent call last):
        bayesdiv.app.data.splits.DataError: a public table must be one of airfoil, ...
    """
    import pandas as pd

    ensure(name in SETS, f"a public table must be one of {', '.join(SETS)}, got {name!r}")
    known = SETS[name]
    folder = data_folder()
    names = (known.csv, f"{name}.csv")
    places = [folder / place / each for place in ("uci", ".") for each in names] if folder else []
    path = next((place for place in places if place.is_file()), None)
    values = _downloaded(known) if path is None else _from_csv(known, path)
    frame = pd.DataFrame(values, columns=list(known.columns))
    return Table(known.name, frame, known.columns[-1], Regression)


def checksum(values: Numbers) -> str:
    """What a table is known by, whatever the order of its rows and the way its numbers are written.

    Numbers are rounded to ten significant digits, halves away from zero, and rows are sorted. The
    sum is the sha256 of the two sizes, as 64-bit integers, and the numbers, row by row, as 64-bit
    floats, all little endian.
    """
    ordered = _canonical(values)
    sizes = struct.pack("<2q", *ordered.shape)
    return hashlib.sha256(sizes + ordered.astype("<f8").tobytes()).hexdigest()


def _canonical(values: Numbers) -> Numbers:
    """The rows in ascending order, their numbers with ten significant digits."""
    # The nudge settles ties, which a binary fraction would leave to chance: the archive's copy of
    # the proteins has 1291446.527 where the full number is 1291446.5265. Adding 0 unsigns a zero.
    nudged = (values * (1 + 1e-13) + 0.0).ravel().tolist()
    rounded = np.array([float(f"{value:.9e}") for value in nudged]).reshape(values.shape)
    return rounded[np.lexsort(rounded.T[::-1])]


def _from_csv(known: Dataset, path: Path) -> Numbers:
    """Features and target of a CSV file, by the names in its header."""
    try:
        frame = files.read(path)
        absent = [column for column in known.columns if column not in frame.columns]
        ensure(not absent, f"it must have the column {quoted(absent, 1)} in its header, got none")
        check_there(frame[list(known.columns)])
        numbers = np.stack([numbers_of(frame[name]) for name in known.columns], axis=1)
        return _verified(known, numbers)
    except DataError as problem:
        raise DataError(f"{path} is not the published table: {problem.said}") from problem


def _downloaded(known: Dataset) -> Numbers:
    wanted = f"{DATA} to a folder that holds uci/{known.csv}"
    if known.source is None:
        rule = f"{known.name} must come from a folder, as no public address has it"
        raise DataError(f"{rule}: set {wanted}")
    place = known.source.place
    path = fetch(f"{_ARCHIVE}/{place}", None, f"uci/{place}", f", here uci/{known.csv}")
    try:
        return _verified(known, known.source.numbers(path))
    except Exception as problem:  # whatever zipfile, zlib, openpyxl and numpy raise
        path.unlink(missing_ok=True)  # else every later call would find it in the cache
        ours = isinstance(problem, DataError)
        told = f"is not the published table: {problem}" if ours else "cannot be read"
        remedy = f"it was removed, and the next call downloads it again, or set {wanted}"
        raise DataError(f"{path} {told}; {remedy}") from problem


def _verified(known: Dataset, values: Numbers) -> Numbers:
    if (found := checksum(values)) == known.checksum:
        return _canonical(values)
    whole = len(values) == known.rows
    ensure(whole, f"it must have {known.rows} rows of numbers, got {len(values)}")
    raise DataError(f"its checksum must be {known.checksum[:12]}…, got {found[:12]}…")


def records(text: str) -> dict[str, Dataset]:
    """The sets by name that the text of .toml files describes, as the head of uci.toml explains."""
    found = {}
    for name, record in sorted(tomllib.loads(text).items()):
        columns, source = tuple(record.pop("columns")), record.pop("source", None)
        if source is not None:
            source = Source(**{"columns": range(len(columns)), **source})
        record["csv"] = f"{record.pop('file', name)}.csv"
        found[name] = Dataset(name, columns=columns, source=source, **record)
    return found


_FILES = Path(__file__).parent.glob("*.toml")
SETS = records("\n".join(path.read_text(encoding="utf-8") for path in _FILES))
