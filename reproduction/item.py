"""What every table and figure of the paper is made of: results on disk, and what is drawn of them.

A file in this folder is a module with four functions, called by `python -m reproduction`:

    missing(results) -> list[str]           what is still to be computed, in words
    compute(results, effort, tell) -> None  computes what is missing, a result file at a time
    draw(results, out) -> list[Path]        writes the figure or the table, without training
    verdict(results) -> Verdict             ours against theirs, by stated tolerances

`results` is the folder that is committed; `effort` says how much work may be done; `tell` is called
with a line of progress.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import bayesdiv

Tell = Callable[[str], None]


class Effort(Enum):
    """How much an item may compute."""

    FULL = "full"
    """What the paper did, or as near as the data at hand allow."""
    QUICK = "quick"
    """A toy size that shows that the code runs, in seconds; never mixed with full results."""


class Outcome(Enum):
    """How a result of ours stands to the published one."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT = "not reproduced"
    OPEN = "not computed yet"


class Verdict(NamedTuple):
    """An outcome, and the sentence with figures that it rests on."""

    outcome: Outcome
    sentence: str


def stamp() -> dict[str, str]:
    """What made a result: the version and the date."""
    return {"version": bayesdiv.__version__, "date": datetime.now(UTC).date().isoformat()}


class Item(Protocol):
    """The four functions of a module in this folder."""

    def missing(self, results: Path) -> list[str]: ...  # noqa: D102
    def compute(self, results: Path, effort: Effort, tell: Tell) -> None: ...  # noqa: D102
    def draw(self, results: Path, out: Path) -> list[Path]: ...  # noqa: D102
    def verdict(self, results: Path) -> Verdict: ...  # noqa: D102


@dataclass(frozen=True)
class Entry:
    """A table or figure of the paper, by the name of its file here.

    Args:
        name: of the module.
        title: what it shows.
        label: what the paper calls it.
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
