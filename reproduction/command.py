"""`python -m reproduction`: the paper's tables and figures, from committed results or anew."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jsonargparse import ArgumentError, ArgumentParser, Namespace
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from bayesdiv.app import runs
from bayesdiv.app.console import complain, errors, output, say
from bayesdiv.app.options import command_parser
from reproduction.catalogue import CATALOGUE, chosen
from reproduction.item import Effort
from reproduction.page import TAKES_HOURS, Shown, page, standing, told
from reproduction.verdict import Badge

BADGE_COLOURS = {
    Badge.YES: "green",
    Badge.PARTLY: "yellow",
    Badge.UNDECIDED: "yellow",
    Badge.NO: "red",
    Badge.UNSTATED: "dim",
    Badge.OPEN: "dim",
}
TOYS = "These are toy sizes that show that the code runs: no number here is the paper's experiment."


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = command_parser(
        "Draw the paper's tables and figures from the results there are, and write one page with "
        "all of them. What takes seconds is computed where it is missing; what is trained only "
        "with --compute.",
        "python -m reproduction all",
    )
    command.add_argument(
        "names", type=str, nargs="*", help="items or groups of them, or all; see --list"
    )
    command.add_argument("--list", action="store_true", help="show every item and how it compares")
    command.add_argument(
        "--compute",
        action="store_true",
        help=f"also train what is missing of {' and '.join(sorted(TAKES_HOURS))}: minutes on a "
        "GPU, hours on a CPU",
    )
    command.add_argument(
        "--quick",
        action="store_true",
        help="compute toy sizes in seconds, apart from the real results",
    )
    command.add_argument(
        "--results", type=str, default="results", help="folder of the computed numbers"
    )
    command.add_argument(
        "--out", "-o", type=str, default="reproduced", help="folder for tables, figures and page"
    )
    return command


def reproduce(settings: Namespace) -> None:
    """Draw what is asked for, say how ours compares with theirs, and write the page."""
    results, out = Path(settings.results), Path(settings.out)
    wanted = chosen(settings.names)
    if not results.is_dir() and not settings.quick:
        errors.print(
            f"[dim]note: there is no folder {escape(str(results))}, so nothing counts as computed: "
            "run in the project's repository or give --results FOLDER[/]",
            soft_wrap=True,
        )
    if settings.list or not settings.names:
        output.print(_overview([standing(entry, results) for entry in CATALOGUE]))
        return
    effort = Effort.QUICK if settings.quick else Effort.FULL
    if settings.quick:
        results, out = out / "quick" / "results", out / "quick"
    patient = settings.compute or settings.quick
    shown = {}
    for entry in wanted:
        allowed = effort if patient or entry.group not in TAKES_HOURS else None
        shown[entry.name] = _made(standing(entry, results), results, out, allowed)
    every = [shown.get(entry.name) or standing(entry, results) for entry in CATALOGUE]
    index = out / "index.html"
    runs.write(index, page(every, results, TOYS if settings.quick else "").encode())
    output.print(_overview(list(shown.values())))
    for path in (path for one in shown.values() for path in one.files):
        say(f"written: {path}")
    say(f"{index} is written: open it in a browser")
    failed = [one for one in shown.values() if one.problem]
    if failed:
        first = failed[0]
        raise RuntimeError(
            f"{len(failed)} of {len(shown)} could not be made, the rest is in {index}: "
            f"{first.entry.name}: {first.problem}"
        )


def _made(before: Shown, results: Path, out: Path, allowed: Effort | None) -> Shown:
    """An item, computed if that is allowed and drawn if it can be; no mishap stops the others."""
    problem = before.problem
    if before.missing and allowed is not None:
        problem = _computed(before, results, allowed)
    elif before.missing:
        _remark(before, f"{_count(before)}; --compute trains them, which takes hours on a CPU")
    after = standing(before.entry, results)
    problem = problem or after.problem
    try:
        files = tuple(before.entry.module().draw(results, out))
    except Exception as error:  # the page tells it, and shows the other items
        return replace(after, drawn=True, problem=problem or ("" if after.missing else told(error)))
    return replace(after, drawn=True, files=files, problem=problem)


def _computed(before: Shown, results: Path, effort: Effort) -> str:
    """Compute what is missing; what went wrong, or nothing."""
    entry, began = before.entry, time.perf_counter()
    _remark(before, f"{_count(before)}, computing")
    with errors.status(escape(entry.name)) as status:

        def tell(line: str) -> None:
            spent = time.perf_counter() - began
            status.update(f"{escape(entry.name)}: {escape(line)} ({spent:.0f} s so far)")

        try:
            entry.needs().compute(results, effort, tell)
        except Exception as error:  # the page tells it, and shows the other items
            return told(error)
    return ""


def _count(one: Shown) -> str:
    missing = len(one.missing)
    return "a result is missing" if missing == 1 else f"{missing} results are missing"


def _remark(one: Shown, sentence: str) -> None:
    errors.print(f"[dim]{escape(one.entry.name)}: {escape(sentence)}[/]", soft_wrap=True)


MOST = 3  # intervals of an item in the list; the page has them all


def _overview(shown: list[Shown]) -> Table:
    title = "Tables, figures, theorems, algorithms and claims of the paper"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("name", "group", "in the paper", "direction", "size", "n", "stands", "missing"):
        table.add_column(column, no_wrap=column in ("name", "group", "direction", "size", "n"))
    for one in shown:
        verdict = one.verdict
        badges = (f"[{BADGE_COLOURS[b]}]{b.value}[/]" for b in (verdict.direction, verdict.size))
        count = "–" if verdict.n is None else str(verdict.n)
        paper = f"{escape(one.entry.label)}: {escape(one.entry.title)}"
        cells = (escape(_stands(one)), escape("; ".join(verdict.missing) or "–"))
        table.add_row(one.entry.name, one.entry.group, paper, *badges, count, *cells)
    return table


def _stands(one: Shown) -> str:
    """The outcome and its intervals, or its sentence where there are none."""
    verdict = one.verdict
    more = len(verdict.intervals) - MOST
    said = "; ".join(verdict.intervals[:MOST]) + (f"; {more} more" if more > 0 else "")
    missing = len(one.missing)
    lacks = f"; {missing} result{'s' if missing > 1 else ''} missing" if missing else ""
    problem = f": {one.problem}" if one.problem else ""
    return f"{verdict.outcome.value}: {said or verdict.sentence}{problem}{lacks}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; a user's mistake is one sentence on stderr and exit code 2."""
    own = parser()
    try:
        reproduce(own.parse_args(arguments))
    except (ArgumentError, ValueError, TypeError, RuntimeError) as error:
        complain(str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        complain(place + (error.strerror or str(error)))
    except KeyboardInterrupt:
        errors.print("[bold]reproduction:[/] stopped; the same command goes on", soft_wrap=True)
        sys.exit(130)
