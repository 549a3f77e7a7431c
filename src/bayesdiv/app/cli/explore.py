"""`bayesdiv explore`: a page in which the divergences are seen as q and the prior move."""

import webbrowser

from jsonargparse import ArgumentParser, Namespace

from bayesdiv.app import runs
from bayesdiv.app.console import say
from bayesdiv.app.explore.page import page
from bayesdiv.app.options import add_page, command_parser, page_path


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = command_parser(
        "Write a page for the browser in which q, the prior, alpha and strength are moved and KL, "
        "JS-G and JS-A are seen.",
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
