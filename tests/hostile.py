"""What the tests of faults share: a small table, quick settings, and mutators with fixed seeds."""

import contextlib
import copy
import io
import json
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from command import call

QUICK = ["--epochs", "2", "--test_samples", "3", "--members", "1", "--samples", "1"]
PATIENCE = 60  # seconds after which a case hangs


def rows(count: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, count))
    colour = np.where(random.random(count) > 0.5, "red", "blue")
    y = 2 * a - b + (colour == "red") + 0.1 * random.normal(size=count)
    return pd.DataFrame({"a": a, "b": b, "colour": colour, "y": y})


# Running a case ------------------------------------------------------------------------------


class Hangs(BaseException):
    """A case that does not end."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def hangs(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(*arguments: object) -> tuple[int, str]:
    """Exit code and what is said on stderr; anything but 0, 2 and 130 is a fault."""
    said = io.StringIO()
    with limited(), warnings.catch_warnings(), contextlib.redirect_stderr(said):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(io.StringIO()):
            code = call(*arguments)
    text = said.getvalue()
    assert code in (0, 2), f"{arguments}: {code}: {text}"
    assert "Traceback" not in text, f"{arguments}: {text}"
    if code == 2:
        assert text.count("bayesdiv: ") == 1, f"{arguments}: {text}"
    return code, text


# Mutators ------------------------------------------------------------------------------------

Random = random.Random
CELLS = [
    *("", " ", "NaN", "nan", "inf", "-inf", "1e400", "-1e308", "1e-400", "0", "-0.0", "1,5", "5%"),
    *("$3", "007", "1_000", "0x10", "True", "red", "None", "NA", "?", '"', '""', "'", "=1+1", "#"),
    *("\x00", "\x1b[2J", "\u202e", "\ud7ff", "é", "1e39", "2024-01-01", "1;2", "a\tb", "(1)", "−1"),
    *("9" * 400, "x" * 5000, "٣", "½", "1e", "+", "-", ".", "1.2.3", "1 000", "1'000", "NaT", "[]"),
]
NUMBERS = [0, -1, 1, 2**31, 2**63, 10**400, 1e308, 1e-308, -0.0, 1e400, 0.5, float("nan")]
VALUES: list[Any] = [*NUMBERS, None, True, "", "x", "\x00", [], {}, [[]], {"a": 1}, "9" * 50]


def bytes_of(content: bytes, r: Random) -> bytes:
    """A few bytes changed, removed, doubled or put in; or an end cut off."""
    found = bytearray(content)
    for _ in range(r.choice([1, 1, 2, 8])):
        at, size = r.randrange(len(found) + 1), r.choice([1, 1, 4, 64])
        kind = r.randrange(5)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << r.randrange(8)
        elif kind == 1:
            del found[at : at + size]
        elif kind == 2:
            found[at:at] = found[at : at + size]
        elif kind == 3:
            found[at:at] = r.randbytes(size)
        elif r.random() < 0.2:
            del found[at:]
    return bytes(found)


def csv_of(content: bytes, r: Random) -> bytes:
    """Cells, lines and separators as no program should write them, and people do."""
    if r.random() < 0.25:
        return bytes_of(content, r)
    lines = content.decode().splitlines()
    for _ in range(r.choice([1, 1, 1, 3])):
        k, kind = r.randrange(len(lines)), r.randrange(7)
        cells = lines[k].split(",")
        if kind <= 2:
            cells[r.randrange(len(cells))] = r.choice(CELLS)
        elif kind == 3:
            r.shuffle(cells)
        elif kind == 4:
            cells = cells[:-1] if r.random() < 0.5 else [*cells, r.choice(CELLS)]
        elif kind == 5:
            lines.insert(k, lines[r.randrange(len(lines))])
        else:
            lines = lines[: k + 1]
        if k < len(lines):
            lines[k] = ",".join(cells)
    text = r.choice(["\n", "\n", "\r\n", "\r"]).join(lines)
    text = text.replace(",", r.choice([",", ",", ",", ";", "\t", "|"]))
    return r.choice([b"", b"", b"\xef\xbb\xbf", b"\n\n"]) + text.encode("utf-8", "surrogatepass")


def json_of(content: bytes, r: Random) -> bytes:
    """One value of a file replaced, removed or moved."""
    if r.random() < 0.3:
        return bytes_of(content, r)
    told = json.loads(content)
    places = list(_places(told))
    holder, key = r.choice(places)
    kind = r.randrange(4)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        other, name = r.choice(places)
        holder[key] = copy.deepcopy(other[name]) if name in _keys(other) else None
    else:
        holder[key] = r.choice(VALUES)
    return json.dumps(told).encode()


def _keys(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def _places(told: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(_keys(told)):
        yield told, key
        if isinstance(told[key], dict | list):
            yield from _places(told[key])


def lines_of(content: bytes, r: Random) -> bytes:
    """One line of JSON lines damaged."""
    lines = content.splitlines() or [b""]
    k = r.randrange(len(lines))
    with contextlib.suppress(ValueError, IndexError):
        lines[k] = json_of(lines[k], r)
    return b"\n".join(lines)


def damaged(name: str) -> Callable[[bytes, Random], bytes]:
    """What suits a file of this name."""
    kinds = {"json": json_of, "jsonl": lines_of, "csv": csv_of}
    return kinds.get(name.rpartition(".")[2], bytes_of)
