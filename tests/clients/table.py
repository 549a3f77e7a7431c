"""The page with the table of architectures, written and read."""

from collections.abc import Mapping
from importlib.metadata import version
from itertools import groupby

from clients.architectures import ARCHITECTURES
from clients.cases import CASES

PACKAGES = {
    "transformers": "transformers",
    "PyTorch Geometric": "torch_geometric",
    "MONAI": "monai",
    "torch": "torch",
}
HEAD = """# Networks that were run

`make clients` runs each of these {count} networks, tiny and from random weights, on a CPU; with
`--table` it writes this page. With one weight draw and with four, in float32 and under bfloat16
autocast: the outputs have the dtype and, to rounding, the values of the plain network with the same
weights written into it, and a training step with JS-A gives every parameter a finite gradient that
is not zero. Save and load: a second network reads the file of the first and returns the same
numbers.
"""


def page(cells: Mapping[tuple[str, str], str]) -> str:
    """The page: a table per package, a cell per network and case."""
    parts = [HEAD.format(count=len(ARCHITECTURES))]
    for family, networks in groupby(ARCHITECTURES, lambda one: one.family):
        package = PACKAGES[family]
        rows = [[one.name, *(cells[one.name, case] for case in CASES)] for one in networks]
        parts.append(f"## {family} {version(package).partition('+')[0]}\n\n{_table(rows)}")
    return "\n".join(parts)


def _table(rows: list[list[str]]) -> str:
    lines = [["network", *CASES], ["---"] * (1 + len(CASES)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cells_of(text: str) -> dict[tuple[str, str], str]:
    """The cells of a page, by network and case."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    named = [[cell.strip() for cell in line] for line in lines if "---" not in line[0]]
    return {
        (name, case): did
        for name, *rest in named
        if name != "network"
        for case, did in zip(CASES, rest, strict=True)
    }
