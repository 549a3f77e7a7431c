"""Files from the web, kept in a cache, and the folder with those that a user has already."""

import logging
import os
import sys
from pathlib import Path

from bayesdiv.app.data.splits import DataError, ensure
from bayesdiv.app.extra import quiet, require

DATA = "BAYESDIV_DATA"
CACHE = "BAYESDIV_CACHE"
_PATIENCE = 30.0  # seconds to wait for an answer


def data_folder() -> Path | None:
    """The folder in the environment variable BAYESDIV_DATA; None where it is not set."""
    named = os.environ.get(DATA)
    if not named:
        return None
    folder = Path(named).expanduser()
    ensure(folder.is_dir(), f"{DATA} must name a folder that exists, got {named}")
    return folder


def fetch(url: str, file_hash: str | None, name: str, here: str = "") -> Path:
    """A file from the web by pooch, kept in the cache under a name once it is whole."""
    require("pooch")
    import pooch  # type: ignore[import-untyped]
    from requests import RequestException

    cache = Path(os.environ.get(CACHE) or pooch.os_cache("bayesdiv")).expanduser()
    with quiet(pooch.get_logger(), logging.WARNING):
        try:
            download = pooch.HTTPDownloader(sys.stderr.isatty(), timeout=_PATIENCE)
            return Path(pooch.retrieve(url, file_hash, name, cache, downloader=download))
        except RequestException as problem:
            # In a few words: what requests says names sockets and pools.
            status = getattr(problem.response, "status_code", None)
            got = f"the answer {status}" if status else "no answer"
            said = f"{name} must come from {url}, got {got}: check the connection, or set {DATA} "
            raise DataError(f"{said}to a folder that holds the files{here}") from problem
        except OSError as problem:
            said = f"the cache must be a folder that can be written, got {cache} ({problem})"
            raise DataError(f"{said}: set {CACHE} to another one") from problem
        except ValueError as problem:
            said = f"{name} from {url} must have the hash {file_hash}, got another"
            why = "the download is damaged or the file has changed, and nothing was kept"
            raise DataError(f"{said}: {why}") from problem
