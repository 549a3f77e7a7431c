"""One run on disk: settings, history, metrics and weights, written so that nothing is ever lost."""

import json
import math
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout  # which torch brings
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesdiv.saving import Taken, checksum, given, replace

SETTINGS, HISTORY, METRICS = "settings.json", "history.jsonl", "metrics.json"
WEIGHTS, CHECKPOINT, LOCK = "weights.safetensors", "checkpoint.safetensors", ".lock"
FORMAT = 3
"""Raised when the files of a run change so that older ones cannot be read."""
NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
MOST_JSON = 1 << 28  # bytes; more is not read
ELSEWHERE = ("data", "version", "format")  # settings that may change without another prediction


class RunError(ValueError):
    """A run that is missing, damaged or of another version, in one sentence."""


@contextmanager
def reported(path: Path, work: str, otherwise: str = "is damaged") -> Iterator[None]:
    """What hinders a file from being read or written, as one sentence."""
    try:
        yield
    except (RunError, MemoryError):
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError) and work == "read":
            config = path.suffix in (".yaml", ".yml")
            hint = "check its name and folder" if config else "is this a run's folder?"
            raise RunError(f"{path} does not exist: {hint}") from None
        raise RunError(f"{path} could not be {work}: {error.strerror or error}") from None
    except Exception as error:  # whatever a file has in the place of what is ours
        if work != "read":
            raise
        said = " ".join(str(error).split())[:300] + " is missing" * isinstance(error, KeyError)
        trained = path.name in (SETTINGS, HISTORY, METRICS, WEIGHTS, CHECKPOINT)
        again = "train the run" if trained else "make it"
        raise RunError(f"{path} {otherwise} ({said}): {again} again") from None


@contextmanager
def owned(folder: Path) -> Iterator[Path]:
    """A folder that this process, and this thread of it, alone writes into; else a `RunError`.

    It is made where there is none. What a killed owner left half written is removed.
    """
    path, here = Path(folder) / LOCK, socket.gethostname()
    with reported(path.parent, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=0, thread_local=False)
        # The lock of another machine cannot be seen, and may be held.
        with suppress(Timeout):
            if _owner(path).get("host", here) == here:
                lock.acquire()
    if not lock.is_locked:
        owner, then = _owner(path), "wait for its end"
        who = f"process {owner['pid']}" if owner.get("pid") else "another process"
        if (host := owner.get("host", here)) != here:
            who, then = f"{who} on {host}", f"{then}, remove {path} if it is gone,"
        raise RunError(f"{path.parent} is being written by {who}: {then} or choose another folder")
    try:
        how = os.O_WRONLY | os.O_TRUNC | NO_LINKS
        with reported(path.parent, "written"), open(os.open(path, how), "w") as file:
            json.dump({"pid": os.getpid(), "host": here}, file)
        for leftover in path.parent.glob(".*.part"):
            leftover.unlink(missing_ok=True)
        yield path.parent
    finally:
        path.unlink(missing_ok=True)  # before it is given up: nobody else can hold this one
        lock.release()


def _owner(path: Path) -> dict[str, object]:
    """What the owner of a lock has written into it; nothing where that cannot be read."""
    with suppress(OSError, ValueError, TypeError):
        check_file(path, 1000)
        return dict(json.loads(path.read_bytes()))
    return {}


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with reported(path, "written"):
        replace(Path(path), content)


def write_json(path: Path, content: object) -> None:
    """Write JSON, readable by people too."""
    write(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON, or say what is wrong with the file."""
    check_file(path, MOST_JSON)
    with reported(path, "read", "is damaged JSON"):
        return json.loads(Path(path).read_bytes())


def check_file(path: Path, most: float = math.inf) -> None:
    """Refuse what is not an ordinary file, such as a pipe, and what is too large."""
    with reported(path, "read"):
        found = Path(path).stat()
    if not stat.S_ISREG(found.st_mode):
        raise RunError(f"{path} must be an ordinary file")
    if found.st_size > most:
        raise RunError(f"{path} must have at most {most:,} bytes, got {found.st_size:,}")


def save_state(path: Path, states: Mapping[str, Mapping[str, Any]], **told: Any) -> None:
    """Save the states of modules and of an optimizer as safetensors, and `told` as JSON."""
    taken = Taken()
    kept = {name: taken(state, name) for name, state in states.items()}
    said = json.dumps({"format": FORMAT, "states": kept, **told})
    metadata = {"bayesdiv": said, "checksum": _checksum(taken.tensors, said)}
    write(path, save(taken.tensors, metadata))


def _checksum(tensors: Mapping[str, Tensor], said: str) -> str:
    """SHA-256 of the metadata and of all tensors with their names, dtypes and shapes."""
    kinds = {name: (tensor.dtype, *tensor.shape) for name, tensor in sorted(tensors.items())}
    return checksum(tensors, f"{said}{kinds}")


def identity(settings: Mapping[str, Any]) -> str:
    """SHA-256 of all settings that a prediction depends on; weights are kept with it."""
    return _digest({key: value for key, value in settings.items() if key not in ELSEWHERE})


def _digest(content: Mapping[str, Any]) -> str:
    return checksum({}, json.dumps(content, sort_keys=True))


def write_sealed(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write JSON beside the settings of a run, with a checksum over both."""
    both = {**content, "settings": identity(read_json(folder / SETTINGS))}
    write_json(folder / name, {**both, "checksum": _digest(both)})


def read_sealed(folder: Path, name: str) -> dict[str, Any]:
    """Read what `write_sealed` wrote, or complain of a file that is damaged or of another run."""
    content = read_json(folder / name)
    both = content if isinstance(content, dict) else {}
    if both.pop("checksum", None) != _digest(both):
        raise RunError(f"{folder / name} is damaged: its content does not fit its checksum")
    if both.pop("settings", None) != identity(read_json(folder / SETTINGS)):
        raise RunError(f"{folder / name} does not fit the settings beside it: it is of another run")
    return both


def check_identity(path: Path, settings: Mapping[str, Any]) -> None:
    """Complain of weights that were not trained with these settings."""
    if _read(path)[1].get("settings") != identity(settings):
        said = "does not fit the settings beside it: one of them is damaged or of another run"
        raise RunError(f"{path} {said}")


def load_state(path: Path, parts: Mapping[str, nn.Module | Optimizer]) -> dict[str, Any]:
    """Restore what `save_state` saved and return its metadata. Nothing is ever unpickled."""
    tensors, told = _read(Path(path))
    for name, part in parts.items():
        with reported(path, "read", f"does not fit this {name}"):
            part.load_state_dict(given(told["states"][name], tensors))
    return told


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    check_file(path)
    unreadable = reported(path, "read", "is damaged or not a file of this library")
    with unreadable, safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        said = metadata.get("bayesdiv", "{}")
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        told = dict(json.loads(said))
    check_format(path, told)
    if metadata.get("checksum") != _checksum(tensors, said):
        raise RunError(f"{path} is damaged: its content does not fit its checksum")
    wrong = [key for key, each in tensors.items() if not each.isfinite().all()]
    if wrong:
        raise RunError(f"{path} is damaged: {wrong[0]} holds NaN or infinite numbers; train again")
    return tensors, told


def check_format(path: Path, told: Mapping[str, Any]) -> None:
    """Complain if a file was written by a version whose files this one cannot read."""
    if (found := told.get("format")) is None:
        raise RunError(f"{path} is not of a run: give the folder that bayesdiv train wrote")
    if found != FORMAT:
        said = f"{path} has format {found}, and this version reads {FORMAT}"
        raise RunError(f"{said}: use the version of bayesdiv that wrote it, or train again")


def append_history(folder: Path, line: Mapping[str, Any]) -> None:
    """Add one line to a run's history; what was there is never rewritten."""
    path, how = folder / HISTORY, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_LINKS
    with reported(path, "written"), os.fdopen(os.open(path, how, 0o666), "ab") as file:
        file.write(f"{json.dumps(line)}\n".encode())


def read_history(folder: Path, epochs: int | None = None) -> list[dict[str, Any]]:
    """The history of a run, up to a number of epochs; a last line cut in half is left out."""
    path, lines = folder / HISTORY, list[dict[str, Any]]()
    if not path.exists():
        return lines
    check_file(path)
    with reported(path, "read"), suppress(ValueError, TypeError, KeyError, RecursionError):
        for text in path.read_bytes().splitlines():
            line = dict(json.loads(text))
            if not all(isinstance(value, int | float) for value in (line["epoch"], *line.values())):
                break
            lines.append(line)
    return lines[:epochs]


def start_history(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Begin the history with these lines: what a resumed run had done when its state was saved."""
    write(folder / HISTORY, "".join(json.dumps(line) + "\n" for line in lines).encode())


def leaves(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, str]:
    """How each setting differs that does, by its dotted name.

    Examples:
        >>> differences({"data": {"seed": 0}}, {"data": {"seed": 1}})
        {'data.seed': '0 there and 1 here'}
    """
    one, two = dict(leaves(there)), dict(leaves(here))
    differ = [name for name in sorted(one.keys() | two.keys()) if one.get(name) != two.get(name)]
    return {name: f"{one.get(name)} there and {two.get(name)} here" for name in differ}
