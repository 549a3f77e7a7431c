"""`python -m reproduction`: the paper's tables and figures, from committed results or new ones."""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from bayesdiv.app import runs
from bayesdiv.app.command import Command
from bayesdiv.app.console import complain, errors, output, say
from reproduction.catalogue import CATALOGUE, chosen
from reproduction.item import Effort
from reproduction.page import TAKES_HOURS, Shown, counted, page, standing, told
from reproduction.report import report
from reproduction.verdict import Badge, Outcome

BADGE_COLOURS = {
    Badge.YES: "green",
    Badge.PARTLY: "yellow",
    Badge.UNDECIDED: "yellow",
    Badge.NO: "red",
    Badge.UNSTATED: "dim",
    Badge.OPEN: "dim",
}
LEAST = max(len(entry.name) for entry in CATALOGUE)  # names are typed: never cut
WHOLE = 2000  # columns of the list where there is no terminal: no line is cut
TOYS = "Toy sizes: they show that the code runs, and no number here is of the paper's experiment."


def parser() -> Command:
    """The parser of this command."""
    command = Command(
        "Draw the paper's tables and figures from the committed results and write one page that "
        "shows all of them. Missing results that take seconds are computed; those that need "
        "training only with --compute.",
        "python -m reproduction all",
    )
    command.prog = "python -m reproduction"
    command.add_argument(
        "names", type=str, nargs="*", help="items, groups of items, or all; --list shows them"
    )
    command.add_argument(
        "--list",
        action="store_true",
        help="print one line per item: verdict, interval, what was not run",
    )
    command.add_argument(
        "--compute",
        action="store_true",
        help=f"also train what is missing of {', '.join(sorted(TAKES_HOURS))}: minutes on a GPU, "
        "hours on a CPU",
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
    """Draw what is asked for, print how it compares with the paper, and write the page."""
    results, out = Path(settings.results), Path(settings.out)
    wanted = chosen(settings.names)
    if not results.is_dir() and not settings.quick:
        errors.print(
            f"[dim]note: there is no folder {escape(str(results))}, so nothing counts as computed: "
            "run in the project's repository or give --results FOLDER[/]",
            soft_wrap=True,
        )
    if settings.list or not settings.names:
        _show([standing(entry, results) for entry in CATALOGUE])
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
    _show(list(shown.values()))
    for path in (path for one in shown.values() for path in one.files):
        say(f"wrote {path}")
    if len(wanted) == len(CATALOGUE) and not settings.quick:
        runs.write(out / "report.md", report(results).encode())
        say(f"wrote {out / 'report.md'}: every claim, our figure, the verdict and why")
    say(f"wrote {index}: open it in a browser")
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
    except Exception as error:  # the page says so, and shows the other items
        return replace(after, drawn=True, problem=problem or ("" if after.missing else told(error)))
    return replace(after, drawn=True, files=files, problem=problem)


def _computed(before: Shown, results: Path, effort: Effort) -> str:
    """Compute what is missing; return what went wrong, or nothing."""
    entry, began = before.entry, time.perf_counter()
    _remark(before, f"{_count(before)}, computing")
    with errors.status(escape(entry.name)) as status:

        def tell(line: str) -> None:
            spent = time.perf_counter() - began
            status.update(f"{escape(entry.name)}: {escape(line)} ({spent:.0f} s so far)")

        try:
            entry.needs().compute(results, effort, tell)
        except Exception as error:  # the page says so, and shows the other items
            return told(error)
    return ""


def _count(one: Shown) -> str:
    missing = len(one.missing)
    return "a result is missing" if missing == 1 else f"{missing} results are missing"


def _remark(one: Shown, sentence: str) -> None:
    errors.print(f"[dim]{escape(one.entry.name)}: {escape(sentence)}[/]", soft_wrap=True)


def _overview(shown: list[Shown], width: int) -> Table:
    """One line per item, no wider than this: its last two cells are cut where they do not fit."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    label = max(len(one.entry.label) for one in shown)
    fixed = {"item": LEAST, "in the paper": label, "direction": 12, "size": 12, "n": 5}
    left = max(width - sum(fixed.values()) - 2 * len(fixed) - 4, 20)
    for column, most in {**fixed, "95 % interval": left * 3 // 5, "not run": left * 2 // 5}.items():
        table.add_column(column, no_wrap=True, max_width=most)
    for one in shown:
        verdict = one.verdict
        badges = (f"[{BADGE_COLOURS[b]}]{b.value}[/]" for b in (verdict.direction, verdict.size))
        count = "–" if verdict.n is None else str(verdict.n)
        lacks = "; ".join([*verdict.missing, *([_count(one)] if one.missing else [])]) or "–"
        figures = escape(_figures(one)), escape(lacks)
        table.add_row(one.entry.name, escape(one.entry.label), *badges, count, *figures)
    return table


def _figures(one: Shown) -> str:
    """The first interval, or the first figure where nothing was sampled."""
    verdict = one.verdict
    if verdict.outcome is Outcome.OPEN:
        problem = f": {one.problem}" if one.problem else ""
        return f"{verdict.outcome.value}: {verdict.sentence}{problem}"
    if not verdict.evidence:
        return verdict.sentence.partition("; ")[0]
    first, more = verdict.evidence[0], len(verdict.evidence) - 1
    return f"{first.figures}, {first.name}" + (f"; {more} more" if more else "")


def _show(shown: list[Shown]) -> None:
    """Print the overview; a file or a pipe gets whole lines."""
    table = _overview(shown, output.width if output.is_terminal else WHOLE)
    if not output.is_terminal:
        table.width = output.measure(table, options=output.options.update(max_width=WHOLE)).maximum
    output.print(table, crop=output.is_terminal)
    groups = ", ".join(dict.fromkeys(entry.group for entry in CATALOGUE))
    say(f"{counted(shown)} Groups of items: {groups}. docs/paper/report.md explains each verdict.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; a user's mistake is one sentence on stderr and exit code 2."""
    own = parser()
    try:
        reproduce(own.parse_args(arguments))
    except (ValueError, TypeError, RuntimeError) as error:
        complain(str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        complain(place + (error.strerror or str(error)))
    except KeyboardInterrupt:
        errors.print("[bold]reproduction:[/] stopped; the same command continues", soft_wrap=True)
        sys.exit(130)
