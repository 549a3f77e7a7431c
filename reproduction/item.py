"""What every table, figure, theorem, algorithm and claim of the paper is made of.

A file in this folder is a module with two functions, called by `python -m reproduction`,

    draw(results, out) -> list[Path]        writes the figure or the table, without training
    verdict(results) -> Verdict             ours against theirs, by a stated rule

and with what it needs: two functions of its own, or those of a value `NEEDS` that items share,

    missing(results) -> list[str]           what is still to be computed, in words
    compute(results, effort, tell) -> None  computes what is missing, one result file at a time

`results` is the folder that is committed; `effort` says how much work may be done; `tell` is called
with a line of progress.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Protocol, cast

import bayesdiv
from reproduction.verdict import Verdict

Tell = Callable[[str], None]


class Effort(Enum):
    """How much an item may compute."""

    FULL = "full"
    """What the paper did, or as near as the available data allow."""
    QUICK = "quick"
    """A toy size that shows that the code runs, in seconds; never mixed with full results."""


def stamp() -> dict[str, str]:
    """What made a result: the version and the date."""
    return {"version": bayesdiv.__version__, "date": datetime.now(UTC).date().isoformat()}


class Needs(Protocol):
    """The results that an item is made of."""

    def missing(self, results: Path) -> list[str]: ...
    def compute(self, results: Path, effort: Effort, tell: Tell) -> None: ...


class Item(Protocol):
    """The functions of a module in this folder."""

    def draw(self, results: Path, out: Path) -> list[Path]: ...
    def verdict(self, results: Path) -> Verdict: ...


@dataclass(frozen=True)
class Entry:
    """An item of the paper, by the name of its file here.

    Args:
        name: of the module.
        title: what it shows.
        label: its number in the paper.
        group: what it is computed with: items of a group share their results.
    """

    name: str
    title: str
    label: str
    group: str

    def module(self) -> Item:
        """The code of the item, imported when it is needed."""
        own = self.name.removeprefix(f"{self.group}_")
        return cast(Item, importlib.import_module(f"reproduction.{self.group}.{own}"))

    def needs(self) -> Needs:
        """What it is made of: the module's `NEEDS`, or the module itself."""
        module = self.module()
        return cast(Needs, getattr(module, "NEEDS", module))
