"""`bayesdiv reproduce`: the paper's tables and figures, from committed results or computed anew."""

import time
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from bayesdiv.cli.console import errors, output, say
from bayesdiv.cli.options import command_parser
from bayesdiv.paper.catalogue import CATALOGUE, chosen
from bayesdiv.paper.item import Effort, Entry, Outcome

COLOURS = {
    Outcome.REPRODUCED: "green",
    Outcome.PARTLY: "yellow",
    Outcome.NOT: "red",
    Outcome.OPEN: "dim",
}


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = command_parser(
        "Make the paper's tables and figures: what is missing is computed, the rest only drawn.",
        "bayesdiv reproduce regression",
    )
    command.add_argument(
        "names", type=str, nargs="*", help="tables, figures or groups of them, or all; see --list"
    )
    command.add_argument("--list", action="store_true", help="show what there is and how it stands")
    command.add_argument(
        "--quick",
        action="store_true",
        help="compute toy sizes in seconds, apart from the real results",
    )
    command.add_argument(
        "--results", type=str, default="results", help="folder of the computed numbers"
    )
    command.add_argument(
        "--out", "-o", type=str, default="reproduced", help="folder for tables and figures"
    )
    return command


def reproduce(settings: Namespace) -> None:
    """Compute what is missing, draw, and say how ours stands to theirs."""
    results, out = Path(settings.results), Path(settings.out)
    if settings.list or not settings.names:
        output.print(_overview(list(CATALOGUE), results))
        return
    entries = chosen(settings.names)
    effort = Effort.QUICK if settings.quick else Effort.FULL
    if settings.quick:
        results, out = out / "quick" / "results", out / "quick"
    written: list[Path] = []
    for entry in entries:
        written += _made(entry, results, out, effort)
    output.print(_overview(entries, results))
    for path in written:
        say(f"written: {path}")


def _made(entry: Entry, results: Path, out: Path, effort: Effort) -> list[Path]:
    item = entry.module()
    open_ = item.missing(results)
    if open_:
        what = f"{len(open_)} results are missing" if len(open_) > 1 else "a result is missing"
        errors.print(f"[dim]{escape(entry.name)}: {what}, computing[/]", soft_wrap=True)
    began = time.perf_counter()
    with errors.status(escape(entry.name)) as status:

        def tell(line: str) -> None:
            spent = time.perf_counter() - began
            status.update(f"{escape(entry.name)}: {escape(line)} ({spent:.0f} s so far)")

        if open_:
            item.compute(results, effort, tell)
        return item.draw(results, out)


def _overview(entries: list[Entry], results: Path) -> Table:
    table = Table(title="The paper's tables and figures", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("name", "group", "in the paper", "stands"):
        table.add_column(column, no_wrap=column in ("name", "group"))
    for entry in entries:
        verdict = entry.module().verdict(results)
        colour, missing = COLOURS[verdict.outcome], len(entry.module().missing(results))
        lacks = f"; {missing} results missing" if missing else ""
        stands = f"[{colour}]{verdict.outcome.value}[/]: {escape(verdict.sentence)}{lacks}"
        table.add_row(entry.name, entry.group, f"{escape(entry.title)} ({entry.label})", stands)
    return table
