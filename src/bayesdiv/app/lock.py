"""One writer per folder: a lock that names its owner, and that a killed owner does not keep."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bayesdiv.app.runs import NO_LINKS, RunError, ensure, made, reported

try:
    import fcntl
except ImportError:  # elsewhere than on Unix the owner's process number alone decides
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextmanager
def owned(folder: Path) -> Iterator[Path]:
    """A folder that this process, and this thread of it, alone writes into; else a `RunError`.

    It is made, and gone again if nothing is written into it. What a killed owner left half written
    is removed.
    """
    with made(folder) as folder:
        path = folder / LOCK
        with reported(path, "written"):
            descriptor = _taken(path)
        try:
            for leftover in folder.glob(".*.part"):
                leftover.unlink(missing_ok=True)
            yield folder
        finally:
            path.unlink(missing_ok=True)  # before it is given up: nobody else can hold this one
            os.close(descriptor)


def _taken(path: Path) -> int:
    """The lock file, open and ours; opened again where its owner removed it meanwhile."""
    while True:
        ensure(path.parent)  # it goes with an owner who wrote nothing
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o644)
        except FileNotFoundError:
            continue
        try:
            _check_owner(path, descriptor, _held(descriptor))
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    me = {"pid": os.getpid(), "host": socket.gethostname()}
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, json.dumps(me).encode(), 0)
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _held(descriptor: int) -> bool | None:
    """Whether another process has the lock; None where the system knows no such locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (AttributeError, OSError):
        return None
    return False


def _check_owner(path: Path, descriptor: int, held: bool | None) -> None:
    """Refuse a folder whose owner is at work; one of another machine cannot be seen, and may be."""
    owner: dict[str, object] = {}
    with suppress(ValueError, TypeError):
        owner = dict(json.loads(os.pread(descriptor, 1000, 0) or b"{}"))
    pid, host = owner.get("pid"), owner.get("host")
    far = host not in (None, socket.gethostname())
    if not held and not far and not (held is None and _lives(pid)):
        return  # nobody's, or left by an owner that was killed
    who = f"process {pid}" + (f" on {host}" if far else "") if pid else "another process"
    then = f"wait for its end, remove {path} if it is gone," if far else "wait for its end"
    raise RunError(f"{path.parent} is being written by {who}: {then} or choose another folder")


def _lives(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:  # somebody else's
        pass
    return True
