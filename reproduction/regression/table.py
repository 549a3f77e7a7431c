"""The two regression tables: ours beside the published figures, best marked, in three formats."""

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bayesdiv.app import runs
from bayesdiv.app.data.uci import SETS
from reproduction.contenders import title
from reproduction.item import Effort, Tell
from reproduction.published import NOT_RERUN, PUBLISHED_AS, Spread
from reproduction.regression import results as regression_results
from reproduction.regression.halving import LOSSES, Search
from reproduction.regression.rows import SETS as PAPER
from reproduction.regression.training import COLUMNS, Protocol
from reproduction.tables import tex

Published = Mapping[str, Mapping[str, Spread]]
TOY = Protocol(trials=3, epochs=5, candidates=2, search_samples=2, test_samples=10)
TOY_SEARCH = Search(rounds=((4, 1), (2, 2)), finalists=1, draws=2, lengths=(3, 5))
TOY_SETS = ("yacht",)
UNITS = {"rmse": "the units of the target", "nll": "nats"}
CAVEAT = (
    "χ-VI and TV-VI are our own estimators (reproduction.evidence) over 100 draws of several "
    "hundred weights. About one of the draws counts, so χ-VI hardly trains and TV-VI trains "
    "slowly; this says nothing about the published columns."
)


class Cell(NamedTuple):
    """One contender on one data set: mean and standard deviation over the trials that ended."""

    mean: float
    spread: float
    trials: int
    diverged: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.spread / math.sqrt(max(self.trials, 1))

    @property
    def text(self) -> str:
        """As a table shows it."""
        if self.trials == 0:
            return f"diverged ({self.diverged})"
        shown = spread_text(self.mean, self.spread)
        return f"{shown} ({self.diverged} diverged)" if self.diverged else shown


def spread_text(mean: float, spread: float) -> str:
    """Mean ± spread with digits that fit.

    Examples:
        >>> spread_text(2.0712, 0.2291), spread_text(264.8, 62.0)
        ('2.07±0.23', '265±62')
    """
    digits = 2 if abs(mean) < 10 else 1 if abs(mean) < 100 else 0
    return f"{mean:.{digits}f}±{spread:.{digits}f}"


def cells(results: Path, key: str) -> dict[str, dict[str, Cell]]:
    """All results there are, by data set and contender."""
    return {
        data: {name: _cell(told, key) for name, told in each.items()}
        for data, each in regression_results.found(results).items()
    }


def _cell(told: Mapping[str, Any], key: str) -> Cell:
    every = regression_results.values(told, key)
    ended = [value for value in every if value is not None]
    mean = statistics.mean(ended) if ended else math.nan
    spread = statistics.stdev(ended) if len(ended) > 1 else 0.0
    return Cell(mean, spread, len(ended), len(every) - len(ended))


def marks(row: Mapping[str, Cell]) -> dict[str, str]:
    """`**` for the best mean, `*` for those within one standard error of it; ours alone.

    A contender with a diverged trial has no mean to compare: its bad trials are not in it.

    Examples:
        >>> marks({"a": Cell(1.0, 0.2, 4, 0), "b": Cell(1.05, 0.2, 4, 0), "c": Cell(2.0, 0, 4, 0)})
        {'a': '**', 'b': '*', 'c': ''}
    """
    whole = {name: cell for name, cell in row.items() if cell.trials and not cell.diverged}
    if not whole:
        return dict.fromkeys(row, "")
    best = min(whole, key=lambda name: whole[name].mean)
    reach = whole[best].mean + whole[best].error
    return {
        name: "**" if name == best else "*" if name in whole and cell.mean <= reach else ""
        for name, cell in row.items()
    }


def missing(results: Path) -> list[str]:
    """Which results have no file yet: columns, and searches with equal budgets."""
    kinds = {
        regression_results.FOLDER: (COLUMNS, ""),
        regression_results.SEARCHED: (LOSSES, ", searched"),
    }
    return [
        f"{data} with {title(name)}{said}"
        for folder, (names, said) in kinds.items()
        for data in PAPER
        for name in names
        if not regression_results.place(results, data, name, folder).exists()
    ]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """Compute what is missing: hours on two cores, minutes on a GPU."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    quick = effort is Effort.QUICK
    if not quick and not (results / regression_results.FOLDER / regression_results.CHOICE).exists():
        tell("choosing learning rate and start scale on validation rows")
        regression_results.choose(results, Protocol(), 1, device)
    protocol = TOY if quick else regression_results.protocol(results)
    data = TOY_SETS if quick else PAPER
    for job, told in regression_results.missing(results, protocol, 1, device, data):
        tell(f"{job.data} with {title(job.contender)}: {told['seconds']:.0f} s")
    if quick:
        regression_results.halve(
            results, device, search=TOY_SEARCH, protocol=TOY, data=data, tell=tell
        )
    else:
        regression_results.halve(results, device, tell=tell)


def draw(results: Path, out: Path, name: str, key: str, published: Published) -> list[Path]:
    """The table as CSV, Markdown and LaTeX."""
    found = {data: row for data, row in cells(results, key).items() if row}
    if not found:
        raise runs.RunError(
            f"there are no regression results in {results}: run python -m reproduction regression"
        )
    written = {
        ".csv": _csv(found, published),
        ".md": _markdown(found, published, key),
        ".tex": _latex(found, published, key),
    }
    for ending, text in written.items():
        runs.write(out / f"{name}{ending}", text.encode())
    return [out / f"{name}{ending}" for ending in written]


def _trials(found: Mapping[str, Mapping[str, Cell]]) -> int:
    return max(cell.trials + cell.diverged for row in found.values() for cell in row.values())


def _columns(found: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    return [name for name in COLUMNS if any(name in row for row in found.values())]


def _csv(found: Mapping[str, Mapping[str, Cell]], published: Published) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["data", "loss", "mean", "standard_deviation", "trials", "diverged", "mark"]
    writer.writerow([*head, "published_mean", "published_spread", "published_column"])
    for data, row in found.items():
        marked, theirs = marks(row), published.get(data, {})
        for name in [*_columns(found), *(n for n in NOT_RERUN if n in theirs)]:
            cell = row.get(name)
            ours = ["", "", "", "", "published, not rerun" if name in NOT_RERUN else "missing"]
            if cell is not None:
                ours = [*(f"{v:.6g}" for v in cell[:2]), *map(str, cell[2:]), marked[name]]
            pair = [f"{v:g}" for v in theirs[name]] if name in theirs else ["", ""]
            writer.writerow([data, name, *ours, *pair, PUBLISHED_AS.get(name, "")])
    return text.getvalue()


def _markdown(found: Mapping[str, Mapping[str, Cell]], published: Published, key: str) -> str:
    names = _columns(found)
    lines = [
        f"Test {key.upper()} in {UNITS[key]}, mean ± standard deviation over {_trials(found)} "
        "trials; our result, followed by the published one in square brackets. **Bold**: our best "
        "loss; *italic*: within one standard error of it.",
        "",
        _row(["data", *(title(n) for n in names), *(PUBLISHED_AS[n] for n in NOT_RERUN)]),
        _row(["---", *("---:" for _ in [*names, *NOT_RERUN])]),
    ]
    for data, row in found.items():
        marked, theirs = marks(row), published.get(data, {})
        shown = [_markdown_cell(row.get(n), marked.get(n, ""), theirs.get(n)) for n in names]
        rest = [f"[{spread_text(*theirs[n])}]" if n in theirs else "" for n in NOT_RERUN]
        lines.append(_row([data.replace("_", " "), *shown, *rest]))
    rest_of_them = " and ".join(PUBLISHED_AS[name] for name in NOT_RERUN)
    note = f"{rest_of_them} are published and not rerun: their functions are not given. {CAVEAT}"
    return "\n".join([*lines, "", note, ""])


def _row(entries: Sequence[str]) -> str:
    return f"| {' | '.join(entries)} |"


def _markdown_cell(cell: Cell | None, mark: str, theirs: Spread | None) -> str:
    around = {"**": "**", "*": "*", "": ""}[mark]
    ours = "missing" if cell is None else f"{around}{cell.text}{around}"
    return ours if theirs is None else f"{ours} [{spread_text(*theirs)}]"


def _latex(found: Mapping[str, Mapping[str, Cell]], published: Published, key: str) -> str:
    names = _columns(found)
    titles = [*(title(n) for n in names), *(PUBLISHED_AS[n] for n in NOT_RERUN)]
    head = " & ".join(["Data", *map(tex, titles)])
    body = []
    for data, row in found.items():
        marked, theirs = marks(row), published.get(data, {})
        ours = [_tex_cell(row.get(n), marked.get(n, "")) for n in names]
        body.append(" & ".join([tex(SETS[data].title), *ours, *("" for _ in NOT_RERUN)]) + r" \\")
        if theirs:
            shown = [
                rf"{{\footnotesize {tex(spread_text(*theirs[n]))}}}" if n in theirs else ""
                for n in [*names, *NOT_RERUN]
            ]
            body.append(" & ".join([r"\quad published", *shown]) + r" \\")
    return "\n".join(
        [
            rf"% Test {key.upper()}, mean and standard deviation over {_trials(found)} trials.",
            "% Needs the package booktabs.",
            f"% {CAVEAT}",
            rf"\begin{{tabular}}{{l{'c' * (len(names) + len(NOT_RERUN))}}}",
            r"\toprule",
            head + r" \\ \midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _tex_cell(cell: Cell | None, mark: str) -> str:
    if cell is None:
        return "--"
    style = {"**": r"\textbf", "*": r"\textit", "": ""}[mark]
    return f"{style}{{{tex(cell.text)}}}" if style else tex(cell.text)
