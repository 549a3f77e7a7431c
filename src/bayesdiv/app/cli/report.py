"""`bayesdiv report`: write one page on runs of the same data."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from bayesdiv.app import runs
from bayesdiv.app.console import errors, say
from bayesdiv.app.options import add_page, add_text, command_parser, page_path
from bayesdiv.app.report.page import page

PATIENCE = 2.0  # seconds without a bar
STEPS_BESIDE_RUNS = 3  # charts, calibration and posterior


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = command_parser(
        "Write one page on runs of the same data: what was trained, how they compare, calibration, "
        "examples, the posterior.",
        "bayesdiv report runs/kl runs/jsa -o report.html",
    )
    command.add_argument("runs", type=str, nargs="+", help="folders of finished runs")
    add_text(command, "--data", "the file of training, where it has moved")
    add_page(command, "report.html")
    return command


def report(settings: Namespace) -> None:
    """Write the page and say where."""
    path = page_path(settings)
    with _bar(len(settings.runs) + STEPS_BESIDE_RUNS) as tell:
        content = page([Path(run) for run in settings.runs], tell, data=settings.data)
    runs.write(path, content.encode())
    say(f"{path} is written: open it in a browser")


@contextmanager
def _bar(steps: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal's stderr as soon as the work has taken a while; what moves it on."""
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), console=errors, transient=True
    )
    task = progress.add_task("", total=steps)

    def tell(line: str) -> None:
        progress.update(task, description=escape(line), advance=1)

    timer = threading.Timer(PATIENCE, progress.start)
    if errors.is_terminal:
        timer.start()
    try:
        yield tell
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        if progress.live.is_started:
            progress.stop()
