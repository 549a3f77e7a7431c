"""`bayesdiv explore`: write an interactive article on why JS-A is bounded."""

import webbrowser
from argparse import Namespace

from bayesdiv.app.command import Command
from bayesdiv.app.explore.page import page
from bayesdiv.app.options import page_path, write_page


def parser() -> Command:
    command = Command(
        "Write the article 'Why bounded?' for the browser: drag its numbers and watch KL, JS-G and "
        "JS-A follow, while three networks train in the page.",
        "bayesdiv explore --open",
    )
    command.add_argument("--out", "-o", default="explore.html", help="file for the page")
    command.add_argument("--open", action="store_true", help="open it in the browser")
    return command


def explore(settings: Namespace) -> None:
    """Write the page and say where."""
    path = page_path(settings.out)
    write_page(path, page())
    if settings.open and not webbrowser.open(path.resolve().as_uri()):
        raise RuntimeError(f"no browser could be started: open {path} yourself")
