"""The command `bayesdiv`, also as `python -m bayesdiv`: what needs no extra answers without it."""

import sys
from collections.abc import Sequence
from contextlib import suppress

from bayesdiv import __version__
from bayesdiv.app.extra import Terminated, stoppable


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or say in one sentence what to install first, or that it stopped."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # a name may hold what a terminal cannot show
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with stoppable():
            from bayesdiv.app.cli import main as command_line

            command_line(arguments)
    except ModuleNotFoundError as problem:
        if arguments[:1] == ["--version"]:
            return print(f"bayesdiv {__version__}")
        sys.stderr.write(f"bayesdiv: {problem}\n")
        sys.exit(2)
    except KeyboardInterrupt as stop:
        # 128 and the number of the signal, as shells have it.
        code, by = (143, " by SIGTERM") if isinstance(stop, Terminated) else (130, "")
        then = str(stop) or "the same command resumes it" * ("train" in arguments[:1])
        sys.stderr.write(f"bayesdiv: stopped{by}" + f"; {then}" * bool(then) + "\n")
        sys.exit(code)


if __name__ == "__main__":
    main()
