"""The packages of the extra `app`, and what to say where one is missing."""

from importlib.util import find_spec

# By the name that they are imported by; pyproject.toml lists the same.
EXTRA = (
    "jsonargparse",
    "matplotlib",
    "openpyxl",
    "optuna",
    "pandas",
    "PIL",
    "pooch",
    "pyarrow",
    "rich",
    "sklearn",
    "sqlalchemy",
    "yaml",
)


def require(*names: str) -> None:
    """Complain where one of these packages, or of all in the extra, is not installed.

    Raises:
        ModuleNotFoundError: with the command that installs them.
    """
    absent = [name for name in names or EXTRA if not _is_there(name)]
    if absent:
        raise ModuleNotFoundError(
            f"this part of bayesdiv needs {', '.join(absent)}: pip install 'bayesdiv[app]'"
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # hidden on purpose
        return False
