"""What the commands show: tables, progress, notes and complaints."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bayesdiv.app import metric
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.rounding import spread
from bayesdiv.training.fit import Epoch

# A file or a pipe has no width: tables go there whole, not cut at 80 columns.
output = Console(width=None if sys.stdout.isatty() else 120)
errors = Console(stderr=True)


def complain(sentence: str) -> NoReturn:
    """End with one sentence on stderr and exit code 2."""
    text = escape(" ".join(sentence.split()))
    errors.print(f"[bold red]bayesdiv:[/] {text}", soft_wrap=True)
    sys.exit(2)


def say(text: str) -> None:
    """Print a line as it is."""
    output.print(text, markup=False, highlight=False, soft_wrap=True)


def print_notes(splits: Splits) -> None:
    """What was decided on the user's behalf."""
    for note in splits.notes:
        errors.print(f"[dim]note: {escape(note)}[/]", soft_wrap=True)


def warn_if_late(results: Sequence[Mapping[str, Any]], epochs: int) -> None:
    """Say so if training was still getting better when it ended."""
    late = [run for run in results if run["best_epoch"] > 0.95 * epochs]
    if epochs >= 10 and 2 * len(late) > len(results):
        errors.print(
            "[dim]note: the best epoch is among the last, so intervals may still be too wide: "
            "raise --epochs[/]",
            soft_wrap=True,
        )


def print_metrics(result: Mapping[str, Any], title: str = "Metrics") -> None:
    """The metrics of a run, a row for each part of the data."""
    table = Table(title=title)
    table.add_column("part")
    parts = {part: result[part] for part in ("validation", "test") if part in result}
    keys = [
        key for key in next(iter(parts.values())) if all(key in part for part in parts.values())
    ]
    for key in keys:
        table.add_column(metric.title(key), justify="right")
    for part, found in parts.items():
        table.add_row(part, *(spread([found[key]]) for key in keys))
    output.print(table)


def progress_bar() -> Progress:
    """A bar on stderr that counts epochs; see `teller`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} epochs"),
        TextColumn("{task.fields[parts]}"),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
    )


def teller(progress: Progress, name: str, epochs: int) -> Callable[[Epoch], None]:
    """What moves the bar on after each epoch of the training of this name."""
    task = progress.add_task(escape(name), total=epochs, parts="")

    def tell(epoch: Epoch) -> None:
        parts = f"nll {epoch.loss.nll:.3f}  divergence {epoch.loss.divergence:.0f}"
        progress.update(task, completed=epoch.number, parts=parts, visible=epoch.number < epochs)

    return tell
