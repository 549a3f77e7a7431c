"""What ends a command from outside: Ctrl-C, and SIGTERM as batch systems and containers send it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: what it needs to resume is written first."""

    code = 128 + signal.SIGTERM


def code_of(stop: KeyboardInterrupt) -> int:
    """The exit code of a command that was stopped, 130 by Ctrl-C and 143 by SIGTERM."""
    return stop.code if isinstance(stop, Terminated) else 128 + signal.SIGINT


@contextmanager
def stoppable() -> Iterator[None]:
    """For the time of the context, SIGTERM raises `Terminated`; a thread leaves signals alone."""
    try:
        before = signal.signal(signal.SIGTERM, _terminated)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminated(_: int, __: FrameType | None) -> NoReturn:
    raise Terminated
