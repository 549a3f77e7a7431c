"""The command line, run in the process of a test."""

from bayesdiv import cli


def call(*arguments: object) -> int:
    """Its exit code."""
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0
