"""The command `bayesdiv`, also as `python -m bayesdiv`: what needs no extra answers without it."""

import sys
from collections.abc import Sequence
from contextlib import suppress

from bayesdiv.app.extra import code_of, stoppable


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or say in one sentence what to install first."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # a name may hold what a terminal cannot show
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with stoppable():
            from bayesdiv.app.cli import main as command_line

            command_line(arguments)
    except ModuleNotFoundError as problem:
        sys.stderr.write(f"bayesdiv: {problem}\n")
        sys.exit(2)
    except KeyboardInterrupt as stop:  # while what a command needs is imported
        sys.stderr.write("bayesdiv: stopped\n")
        sys.exit(code_of(stop))


if __name__ == "__main__":
    main()
