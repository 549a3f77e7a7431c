"""`bayesdiv report`: write one page on runs of the same data."""

from argparse import Namespace

from bayesdiv.app.command import Command
from bayesdiv.app.console import errors
from bayesdiv.app.options import MOVED, page_path, write_page
from bayesdiv.app.report.page import page


def parser() -> Command:
    command = Command(
        "Write one page on runs of the same data: what was trained, how they compare, calibration, "
        "examples, the posterior.",
        "bayesdiv report runs/kl runs/jsa -o report.html",
        {"--data": MOVED},
    )
    command.add_argument("runs", type=str, nargs="+", help="folders of finished runs")
    command.add_argument("--out", "-o", default="report.html", help="file for the page")
    return command


def report(settings: Namespace) -> None:
    """Write the page and say where."""
    path = page_path(settings.out)
    with errors.status("reading and predicting"):
        content = page(settings.runs, data=settings.data)
    write_page(path, content)
