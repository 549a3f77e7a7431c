"""The packages of the extra `app`: what to say where one is missing, and how to quiet one."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec

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
        raise ModuleNotFoundError(
            f"this part of bayesdiv needs {', '.join(absent)}: pip install 'bayesdiv[app]'"
        )


@contextmanager
def quiet(logger: logging.Logger, level: int) -> Iterator[None]:
    """A package's log from this level on, and afterwards as before."""
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
