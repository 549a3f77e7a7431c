"""Before a command runs: the packages of the extra `app`, their logs, and what stops it."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import NoReturn

# By the name that they are imported by; pyproject.toml lists the same.
EXTRA = (
    *("openpyxl", "optuna", "pandas", "PIL", "pooch", "pyarrow"),
    *("rich", "sklearn", "sqlalchemy", "threadpoolctl", "yaml"),
)


def require(*names: str) -> None:
    """Complain where one of these packages, or of all in the extra, is not installed."""
    absent = list(names or EXTRA)
    for name in names or EXTRA:
        with suppress(ImportError, ValueError):  # hidden on purpose
            if find_spec(name) is not None:
                absent.remove(name)
    if absent:
        told = f"this part of bayesdiv needs {', '.join(absent)}"
        raise ModuleNotFoundError(f"{told}: pip install 'bayesdiv[app]'")


@contextmanager
def quiet(logger: logging.Logger, level: int) -> Iterator[None]:
    """A package's log from this level on, and afterwards as before."""
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does: what it needs to resume is written first."""


@contextmanager
def stoppable() -> Iterator[None]:
    """For the time of the context, SIGTERM raises `Terminated`; a thread leaves signals alone."""

    def terminated(*_: object) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
