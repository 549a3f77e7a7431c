"""How much a file may hold, looked at before it is read: a few bytes can stand for very many."""

import math
import os
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from bayesdiv.app.data.splits import DataError

CELL = 8  # bytes of a number
SHEET = 50  # bytes of memory per byte of a spreadsheet's XML


def memory() -> float:
    """Bytes of memory that the machine has, where it says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def check_size(path: Path) -> None:
    """Refuse what is no ordinary file, as a pipe would be waited for, and one beyond memory."""
    if not path.is_file():
        raise DataError(f"a table must be an ordinary file, got {path}")
    if path.stat().st_size > memory():
        raise DataError(f"{path} must fit into memory, got {path.stat().st_size:,} bytes")


def check_cells(path: Path, rows: int, columns: int) -> None:
    """Refuse a table of more numbers than there is room for."""
    if CELL * rows * columns > memory():
        raise DataError(f"{path} must fit into memory, got {rows:,} rows of {columns:,} columns")


def check_unpacked(source: Path | bytes, most: float | None = None) -> None:
    """Refuse an archive that is larger inside than this; None is what a spreadsheet may be."""
    with ZipFile(BytesIO(source) if isinstance(source, bytes) else source) as archive:
        size = sum(member.file_size for member in archive.infolist())
    most = memory() / SHEET if most is None else most
    if size > most:
        name = "an archive" if isinstance(source, bytes) else source
        raise DataError(f"{name} must hold at most {most:,.0f} bytes unpacked, got {size:,}")
