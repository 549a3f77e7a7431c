"""What the commands show: tables, progress, notes and complaints."""

import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.segment import Segment
from rich.table import Table

from bayesdiv.app import metric
from bayesdiv.app.metric import spread
from bayesdiv.training.fit import Epoch

NONE = "–"  # instead of a metric that does not exist for a part of the data
# What moves a cursor, colours or reverses text on a terminal, and halves of characters.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Text that a terminal shows and does not obey, whoever named a file, a column or a class."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


class _Console(Console):
    """A console that shows what is printed, and obeys only its own colours and bars."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


# A file or a pipe has no width: tables go there whole, not cut at 80 columns.
output = _Console(width=None if sys.stdout.isatty() else 120, emoji=False)
errors = _Console(stderr=True, emoji=False)  # a:b:c is no picture
PATIENCE, LINES = 5.0, 10  # where there is no terminal: seconds between lines, lines per training


def complain(sentence: str, code: int = 2) -> NoReturn:
    """End with one sentence on stderr and an exit code."""
    errors.print(f"[bold red]bayesdiv:[/] {escape(' '.join(sentence.split()))}", soft_wrap=True)
    sys.exit(code)


def say(text: str) -> None:
    """Print a line as it is."""
    output.print(text, markup=False, highlight=False, soft_wrap=True)


def note(*lines: str) -> None:
    """Print lines of less weight on stderr, such as what was decided on the user's behalf."""
    for line in lines:
        errors.print(f"[dim]note: {escape(line)}[/]", soft_wrap=True)


def warn_if_late(results: Sequence[Mapping[str, Any]], epochs: int) -> None:
    """Say so if training was still getting better when it ended."""
    late = [run for run in results if run["best_epoch"] > 0.95 * epochs]
    if epochs >= 10 and 2 * len(late) > len(results):
        note("the best epoch is among the last, so intervals may still be too wide: raise --epochs")


def numbers(title: str, first: str, others: Iterable[str]) -> Table:
    """An empty table: a column of names, then columns of numbers, such as metrics by their keys."""
    table = Table(title=escape(title), box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.min_width = min(len(title), 60)  # for the title to stay in one line
    table.add_column(first, no_wrap=True)
    for key in others:
        table.add_column(metric.title(key), justify="right", no_wrap=True)
    return table


def print_metrics(result: Mapping[str, Any], title: str = "Metrics", first: str = "part") -> None:
    """The metrics of a run, a row for each part of the data, or of whatever comes `first`."""
    parts = {name: found for name, found in result.items() if isinstance(found, Mapping)}
    keys = list(dict.fromkeys(key for found in parts.values() for key in found))
    table = numbers(title, first, keys)
    for name, found in sorted(parts.items(), key=lambda part: part[0] == "test"):
        table.add_row(name, *(spread([found[key]]) if key in found else NONE for key in keys))
    output.print(table)


class Pace(Progress):
    """Shows how far some trainings have come: a bar on a terminal, else a line now and then."""

    def __init__(self, trainings: int = 1, clock: Callable[[], float] = time.perf_counter) -> None:
        texts = ("{task.description}", "{task.completed}/{task.total} epochs {task.fields[parts]}")
        name, parts = map(TextColumn, texts)
        off = not errors.is_terminal
        super().__init__(name, BarColumn(), parts, console=errors, transient=True, disable=off)
        self.trainings, self.clock, self.begun = trainings, clock, 0
        self.began = self.said = math.nan

    def teller(self, name: str, epochs: int) -> Callable[..., None]:
        """What is called after each epoch of the next training, of this name."""
        task = self.add_task(escape(name), total=epochs, parts="")
        if not self.begun:  # what came before, such as reading the data, says nothing about them
            self.began = self.said = self.clock()
        self.begun, first, each = self.begun + 1, -1, max(1, epochs // LINES)

        def tell(epoch: Epoch, *_: object) -> None:
            nonlocal first
            first = epoch.number - 1 if first < 0 else first
            share = (epoch.number - first) / (epochs - first)
            parts = f"nll {epoch.loss.nll:.3f}, divergence {epoch.loss.divergence:.0f}, "
            parts += f"about {self._left(share)} left"
            self.update(task, completed=epoch.number, parts=parts, visible=epoch.number < epochs)
            late = self.clock() - self.said >= PATIENCE
            if not errors.is_terminal and late and epoch.number % each == 0:
                self.said = self.clock()
                line = f"{name}: epoch {epoch.number} of {epochs}, {parts}"
                errors.print(line, markup=False, highlight=False, soft_wrap=True)

        return tell

    def _left(self, share: float) -> str:
        """The time until all trainings end, if the rest goes as what is done."""
        done = (self.begun - 1 + share) / self.trainings
        seconds = (self.clock() - self.began) * (1 - done) / done
        if seconds < 90:
            return f"{seconds:.0f} s"
        return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
