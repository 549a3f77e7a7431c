"""The command lines, run in the process of a test."""

from collections.abc import Callable

from bayesdiv import __main__ as entry
from reproduction import command


def call(*arguments: object) -> int:
    """The exit code of `bayesdiv`."""
    return _code(entry.main, arguments)


def reproduce(*arguments: object) -> int:
    """The exit code of `python -m reproduction`."""
    return _code(command.main, arguments)


def _code(main: Callable[[list[str]], None], arguments: tuple[object, ...]) -> int:
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0
