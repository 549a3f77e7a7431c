"""The table of a claim: what is compared, our figure with its interval, and the published one."""

from collections.abc import Sequence
from pathlib import Path

from reproduction import tables
from reproduction.verdict import Comparison


def write(
    out: Path, name: str, claims: Sequence[Comparison], beside: Sequence[Comparison], note: str
) -> list[Path]:
    """The judged comparison first, then those beside it."""
    rows = [_row(one) for one in (*claims, *beside)]
    head = ["compared", "ours", "95 % interval or wider", "n", "standing", "published"]
    return tables.write(out, name, head, rows, note)


def _row(one: Comparison) -> list[str]:
    shown = one.interval.times(one.factor)
    theirs = "–" if one.published is None else f"{one.factor * one.published:+.1f} {one.unit}"
    return [
        one.name,
        f"{shown.mean:+.1f} {one.unit}",
        f"{shown.low:+.1f} to {shown.high:+.1f}",
        str(shown.n),
        one.standing.value,
        theirs,
    ]
