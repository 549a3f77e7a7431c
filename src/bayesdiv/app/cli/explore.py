"""`bayesdiv explore`: an article in which numbers can be dragged and the divergences follow."""

import webbrowser

from jsonargparse import ArgumentParser, Namespace

from bayesdiv.app import runs
from bayesdiv.app.console import say
from bayesdiv.app.explore.page import page
from bayesdiv.app.options import add_page, command_parser, page_path


def parser() -> ArgumentParser:
    command = command_parser(
        "Write the article 'Why bounded?' for the browser: KL, JS-G and JS-A follow numbers that "
        "can be dragged, and three networks are trained in the page.",
        "bayesdiv explore --open",
    )
    add_page(command, "explore.html")
    command.add_argument("--open", action="store_true", help="open it in the browser")
    return command


def explore(settings: Namespace) -> None:
    """Write the page and say where."""
    path = page_path(settings)
    runs.write(path, page().encode())
    say(f"{path} is written: open it in a browser")
    if settings.open and not webbrowser.open(path.resolve().as_uri()):
        raise RuntimeError(f"no browser could be started: open {path} yourself")
