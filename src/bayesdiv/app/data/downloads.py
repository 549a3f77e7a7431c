"""Files from the web, kept in a cache, and the folder with those that a user has already."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bayesdiv.app.data.splits import DataError
from bayesdiv.app.extra import require

DATA = "BAYESDIV_DATA"
CACHE = "BAYESDIV_CACHE"
_CHUNK = 1 << 16  # bytes between two steps of the bar; pooch's own 1024 slow a large file down


class Unreachable(DataError):
    """A complaint about a file that could not be had from its address."""


def data_folder() -> Path | None:
    """The folder in the environment variable BAYESDIV_DATA; None where it is not set.

    Examples:
        >>> os.environ["BAYESDIV_DATA"] = "no/such/folder"
        >>> data_folder()
        Traceback (most recent call last):
        bayesdiv.app.data.splits.DataError: BAYESDIV_DATA must name a folder that exists, got ...
        >>> del os.environ["BAYESDIV_DATA"]
        >>> data_folder() is None
        True
    """
    named = os.environ.get(DATA)
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DataError(f"{DATA} must name a folder that exists, got {named}")
    return folder


def fetch(url: str, file_hash: str | None, name: str) -> Path:
    """A file from the web; the second call finds it in the cache and needs no connection.

    The cache is the folder in BAYESDIV_CACHE, else the one that the system has for this. A file
    appears there only when it is whole and has its hash.

    Args:
        url: where it is.
        file_hash: as pooch writes it, such as "md5:…" or "sha256:…"; None trusts what comes.
        name: of the file in the cache, also in messages; it may begin with folders.

    Raises:
        DataError: the address does not answer, the hash differs or the cache cannot be written.
    """
    require("pooch", "rich")
    import pooch  # type: ignore[import-untyped]
    from requests import RequestException

    cache = Path(os.environ.get(CACHE) or pooch.os_cache("bayesdiv")).expanduser()
    with _quiet(pooch.get_logger()), _Bar(name) as bar:
        downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK)
        try:
            return Path(pooch.retrieve(url, file_hash, name, cache, downloader=downloader))
        except RequestException as problem:
            raise Unreachable(
                f"{name} must come from {url}, got {_reason(problem)}: check the connection, or "
                f"set {DATA} to a folder that holds the files"
            ) from problem
        except OSError as problem:
            raise DataError(
                f"the cache must be a folder that can be written, got {cache} ({problem}): set "
                f"{CACHE} to another one"
            ) from problem
        except ValueError as problem:
            raise DataError(
                f"{name} from {url} must have the hash {file_hash}, got another: the download is "
                "damaged or the file has changed, and nothing was kept"
            ) from problem


def _reason(problem: Exception) -> str:
    """Why a request failed, in a few words: what requests says names sockets and pools."""
    status = getattr(getattr(problem, "response", None), "status_code", None)
    return f"the answer {status}" if status else "no answer"


class _Bar:
    """What pooch expects of a progress bar, drawn by rich on stderr and gone at the end.

    It appears with the first answer of the server, so that a file in the cache shows none, and
    only on a terminal.
    """

    def __init__(self, name: str) -> None:
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(name, total=None)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def total(self) -> float | None:
        """How many bytes are to come; None where the server does not say."""
        return self._progress.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)
        if self._progress.console.is_terminal:
            self._progress.start()

    def update(self, size: int) -> None:
        """So many bytes more have come."""
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        """Back to the start, which pooch asks for before it fills the bar."""
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """Remove the bar."""
        if self._progress.live.is_started:  # else rich would print an empty line
            self._progress.stop()


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """No word from pooch on what the bar shows."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
