"""One run on disk: settings, history, metrics and weights, written so that nothing is ever lost."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

SETTINGS, HISTORY, METRICS = "settings.json", "history.jsonl", "metrics.json"
WEIGHTS, CHECKPOINT = "weights.safetensors", "checkpoint.safetensors"
FORMAT = 2
"""Raised when the files of a run change so that older ones cannot be read."""


class RunError(ValueError):
    """A run that is missing, damaged or of another version, told in one sentence."""


@contextmanager
def _told(path: Path, work: str) -> Iterator[None]:
    """Failures of the disk as one sentence: what could not be read or written."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError) and work == "read":
            raise RunError(f"{path} does not exist: is this a run's folder?") from None
        raise RunError(f"{path} could not be {work}: {error.strerror or error}") from None


@contextmanager
def made(folder: Path) -> Iterator[Path]:
    """A folder for what is to come: made now, and gone again if nothing is written into it."""
    folder = Path(folder)
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    with _told(folder, "written"):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        with suppress(OSError):  # what holds a file stays
            for place in new:
                place.rmdir()


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: under a temporary name first, then renamed."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.part")  # a leftover of a kill is written over
    with _told(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, content: object) -> None:
    """Write JSON, readable by people too."""
    write(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON, or say what is wrong with the file."""
    with _told(path, "read"):
        content = Path(path).read_bytes()
    try:
        return json.loads(content)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None


def save_state(
    path: Path,
    parts: Mapping[str, nn.Module | Mapping[str, Tensor]],
    optimizer: Optimizer | None = None,
    **told: Any,
) -> None:
    """Save modules and an optimizer as safetensors, with `told` as JSON beside them.

    Args:
        path: the file.
        parts: modules or state dicts by a name of your choice, such as model and objective.
        optimizer: its state too, to go on training.
        **told: anything JSON can hold, such as the epoch.
    """
    from safetensors.torch import save

    tensors = {
        f"{name}/{key}": tensor.detach().cpu().contiguous().clone()
        for name, part in parts.items()
        for key, tensor in (part.state_dict() if isinstance(part, nn.Module) else part).items()
    }
    groups: list[dict[str, Any]] = []
    if optimizer is not None:
        state = optimizer.state_dict()
        groups = state["param_groups"]
        for index, entries in state["state"].items():
            for key, value in entries.items():
                tensor = torch.as_tensor(value).detach().cpu().contiguous().clone()
                tensors[f"optimizer/{index}/{key}"] = tensor
    told = {"format": FORMAT, "groups": _plain(groups), **told}
    write(path, save(tensors, metadata={"bayesdiv": json.dumps(told)}))


def load_state(
    path: Path, parts: Mapping[str, nn.Module], optimizer: Optimizer | None = None
) -> dict[str, Any]:
    """Restore what `save_state` saved, and return what was told. Nothing is ever unpickled."""
    tensors, told = _read(Path(path))
    for name, module in parts.items():
        own = {
            key.removeprefix(f"{name}/"): tensor
            for key, tensor in tensors.items()
            if key.startswith(f"{name}/")
        }
        try:
            module.load_state_dict(own)
        except RuntimeError as error:
            line = " ".join(str(error).split())
            raise RunError(f"{path} does not fit this {name}: {line[:300]}") from None
    if optimizer is not None:
        _load_optimizer(optimizer, tensors, told["groups"], Path(path))
    return told


def _load_optimizer(
    optimizer: Optimizer, tensors: dict[str, Tensor], groups: list[dict[str, Any]], path: Path
) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer/"):
            _, index, name = key.split("/", 2)
            state.setdefault(int(index), {})[name] = tensor
    for group, own in zip(groups, optimizer.param_groups, strict=False):
        numbers = {key: value for key, value in own.items() if isinstance(value, Tensor)}
        group |= {key: torch.full_like(n, group[key]) for key, n in numbers.items() if key in group}
    try:
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (ValueError, KeyError) as error:
        raise RunError(f"{path} does not fit this optimizer: {error}") from None


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    with _told(path, "read"):
        path.open("rb").close()
    try:
        with safe_open(path, framework="pt") as file:
            told = json.loads((file.metadata() or {}).get("bayesdiv", "{}"))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise RunError(f"{path} is damaged or not a file of this library: {error}") from None
    check_format(path, told)
    return tensors, told


def check_format(path: Path, told: Mapping[str, Any]) -> None:
    """Complain if a file was written by a version whose files this one cannot read."""
    if told.get("format") != FORMAT:
        raise RunError(
            f"{path} has format {told.get('format')}, and this version reads {FORMAT}: use the "
            "version of bayesdiv that wrote it, or train again"
        )


def _plain(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parameter groups with what JSON can hold; a learning rate in a tensor as a number."""
    kinds = (int, float, str, bool, list, tuple, type(None))
    numbers = [
        {k: v.item() if isinstance(v, Tensor) else v for k, v in group.items()} for group in groups
    ]
    return [{k: v for k, v in group.items() if isinstance(v, kinds)} for group in numbers]


def append_history(folder: Path, line: Mapping[str, Any]) -> None:
    """Add one line to a run's history; what was there is never rewritten."""
    path = folder / HISTORY
    with _told(path, "written"), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_history(folder: Path, epochs: int | None = None) -> list[dict[str, Any]]:
    """The history of a run, up to a number of epochs; a last line cut in half is left out."""
    path = folder / HISTORY
    if not path.exists():
        return []
    lines = []
    with _told(path, "read"):
        for text in path.read_bytes().splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break
    return lines if epochs is None else lines[:epochs]


def start_history(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Begin the history with these lines: what a resumed run had done when its state was saved."""
    write(folder / HISTORY, "".join(json.dumps(line) + "\n" for line in lines).encode())


def leaves(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names.

    Examples:
        >>> dict(leaves({"epochs": 3, "data": {"seed": 0}}))
        {'epochs': 3, 'data.seed': 0}
    """
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
    return {
        name: f"{one.get(name)} there and {two.get(name)} here"
        for name in sorted(one.keys() | two.keys())
        if one.get(name) != two.get(name)
    }


def loss(settings: Mapping[str, Any]) -> str:
    """The divergence of a run with its fields, as code has it.

    Examples:
        >>> loss({"divergence": {"kind": "JSA", "alpha": 0.3}})
        'JSA(alpha=0.3)'
    """
    fields = dict(settings["divergence"] or {"kind": "deterministic"})
    kind = fields.pop("kind")
    values = ", ".join(f"{key}={value}" for key, value in fields.items())
    return f"{kind}({values})" if settings["divergence"] else str(kind)
