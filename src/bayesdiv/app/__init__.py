"""For people with tables and images: experiments, runs, search, reports and the command line.

All of it needs the packages of the extra `app`; without them, importing it says how to install
them.
"""

from importlib.util import find_spec

# The packages of the extra by the name that they are imported by; pyproject.toml lists the same.
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


def missing() -> list[str]:
    """The packages of the extra that are not installed."""
    return [name for name in EXTRA if not _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # hidden on purpose
        return False


if _absent := missing():
    raise ModuleNotFoundError(
        f"this part of bayesdiv needs {', '.join(_absent)}: pip install 'bayesdiv[app]'"
    )
