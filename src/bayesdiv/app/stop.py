"""What ends a command from outside: Ctrl-C, and SIGTERM as batch systems and containers send it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: what it needs to resume is written first."""


def code_of(stop: KeyboardInterrupt) -> int:
    """The exit code of a command that was stopped, 130 by Ctrl-C and 143 by SIGTERM."""
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[None]:
    """For the time of the context, SIGTERM raises `Terminated`; a thread leaves signals alone."""

    def terminated(*_: object) -> NoReturn:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, terminated)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
