"""Trained models in one safetensors file, without pickle, with all that a resumed run needs."""

import hashlib
import json
import os
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialized
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import bayesdiv
from bayesdiv import calibration as calibrations
from bayesdiv import outliers as outliers  # whose thresholds can be read too
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.objective.objective import Objective

FORMAT = 2
"""Raised when the file changes so that older ones cannot be read."""
_KEY = "bayesdiv"
_Tensors = dict[str, Tensor]


class SavingError(ValueError):
    """A file that is missing, damaged, or not of this model, in one sentence."""


def save(
    path: str | os.PathLike[str],
    net: nn.Module,
    objective: Objective | None = None,
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    calibration: Sequence[calibrations.Saved] = (),
) -> None:
    """Write a model, and what it is trained with, into one safetensors file, whole or not at all.

    The file holds the states as tensors by name (`model/posterior.loc`, `objective/…`,
    `optimizer/…`) and, as JSON in its header, the version, the layout of the random weights, the
    kinds of posterior, prior, likelihood and optimizer, the epoch and the calibration, and a
    checksum over all of these. Random generators are not part of it: `fit(seed=…)` draws the noise
    of an epoch from the seed and its number alone, so a run that is resumed by
    `first=objective.epoch + 1` ends where it would have ended.

    Args:
        path: of the file; an existing one is replaced.
        net: the model.
        objective: its loss, for the noise level, the multiplier of a `Constraint` and the epoch.
        optimizer: any of torch's.
        scheduler: of the learning rate, or anything with `state_dict` and `load_state_dict`.
        calibration: what was fitted to this model, in the order in which it applies.

    Examples:
        >>> import tempfile, bayesdiv as bd
        >>> net, other = (bd.bayesianize(nn.Linear(3, 1), bd.FanIn()) for _ in range(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(f"{folder}/net.safetensors", net)
        ...     calibration = load(f"{folder}/net.safetensors", into=other)
        >>> torch.equal(net.loc, other.loc)
        True
    """
    taken = Taken()
    parts = _parts(model=net, objective=objective, optimizer=optimizer, scheduler=scheduler)
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": bayesdiv.__version__,
        "epoch": 0 if objective is None else objective.epoch,
        **_described(net, objective, optimizer),
        "states": {name: taken(part.state_dict(), name) for name, part in parts.items()},
        # What layers write beside their state, such as the version of a spectral norm.
        "metadata": taken(dict(getattr(net.state_dict(), "_metadata", {})), "metadata"),
        "calibration": [saved.state() for saved in calibration],
    }
    said = json.dumps(head)
    metadata = {_KEY: said, "checksum": checksum(taken.tensors, said)}
    try:
        replace(Path(path), serialized(taken.tensors, metadata))
    except OSError as error:
        raise SavingError(f"{path} could not be written: {error}") from None


def load(
    path: str | os.PathLike[str],
    into: nn.Module,
    objective: Objective | None = None,
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | None = None,
) -> tuple[calibrations.Saved, ...]:
    """Read what `save` wrote into a model of the same layout, and into what it is trained with.

    Everything is checked before anything is changed: version, checksum, layout, kinds of posterior,
    prior, likelihood and optimizer, names, shapes and dtypes.

    Returns:
        The calibration that was saved with the model, such as `bd.export` takes.
    """
    path = Path(path)
    head, tensors = _read(path)
    parts = _parts(model=into, objective=objective, optimizer=optimizer, scheduler=scheduler)
    for name in [name for name in parts if name not in head["states"]]:
        raise SavingError(f"{path} holds no state of the {name}: load without {name}=")
    states = {name: given(head["states"][name], tensors) for name in parts}
    for misfit in _misfits(head, _described(into, objective, optimizer), states, parts):
        raise SavingError(f"{path} {misfit}")
    fitted = tuple(map(calibrations.Saved.from_state, head["calibration"]))
    states["model"]._metadata = given(head["metadata"], tensors)
    for name, part in parts.items():
        part.load_state_dict(states[name])
    if objective is not None:
        objective.epoch = head["epoch"]
    return fitted


def _parts(**parts: Any) -> dict[str, Any]:
    """All that has a state, by name."""
    return {name: part for name, part in parts.items() if part is not None}


def _described(
    net: nn.Module, objective: Objective | None, optimizer: Optimizer | None
) -> dict[str, Any]:
    """Layouts and kinds, in words and numbers that JSON keeps."""
    modules = bayesian_modules(net)
    entries = [entry for module in modules for entry in module.layout.entries]
    bare = getattr(optimizer, "optimizer", optimizer)  # accelerate's stands around another
    kinds = {"likelihood": getattr(objective, "likelihood", None), "optimizer": bare}
    return {
        "layout": [[list(e.names), list(e.shape), list(e.order)] for e in entries],
        "posterior": [type(module.posterior).__name__ for module in modules],
        "prior": [f"{type(m.prior).__name__} of {type(m.p()).__name__}" for m in modules],
        **{name: type(part).__name__ for name, part in kinds.items() if part is not None},
    }


def _misfits(
    head: Mapping[str, Any], here: Mapping[str, Any], states: Mapping[str, Any], parts: Any
) -> Iterator[str]:
    """What differs between the file and all that is to hold its states, in order."""
    for kind, own in here.items():
        sides = [[side] if isinstance(side, str) else side for side in (head.get(kind, own), own)]
        for one, two in zip_longest(*sides, fillvalue="nothing"):
            if one != two:
                whose = kind if kind == "optimizer" else "model"
                told = f"with another {kind}, {_shown(one)} in place of {_shown(two)}"
                yield f"was saved {told}: make the {whose} as the saved one was made"
    for name in [name for name in ("model", "objective") if name in parts]:
        there, own = states[name], parts[name].state_dict()
        for key in [*own, *there]:
            one, two = _kind(there.get(key)), _kind(own.get(key))
            if one != two:
                yield f"does not fit the {name}: {key} is {one} in the file and {two} here"
    if "optimizer" in parts:
        groups = states["optimizer"]["param_groups"], parts["optimizer"].param_groups
        one, two = ([len(group["params"]) for group in own] for own in groups)
        if one != two:
            yield f"does not fit: optimizer groups of {one} parameters in the file, of {two} here"


def _shown(entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    order = f" in order {entry[2]}" if entry[2] else ""
    return f"{' = '.join(entry[0])} of shape {tuple(entry[1])}{order}"


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return "missing" if value is None else type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


class Taken:
    """States as JSON; their tensors are kept under the names that they leave behind."""

    def __init__(self) -> None:
        self.tensors: _Tensors = {}
        self.names: dict[object, str] = {}

    def __call__(self, value: Any, path: str) -> Any:
        """A state as JSON, for `given`."""
        if hasattr(value, "full_tensor"):
            told = f"{path} is sharded over processes: load the state of get_model_state_dict"
            raise SavingError(f"{told} into a model of one process and save that")
        if isinstance(value, Tensor):
            tensor = value.detach()
            key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
            if tensor.numel() == 0 or key not in self.names:  # one that has two names is there once
                self.names[key] = path
                part = tensor.untyped_storage().nbytes() != tensor.nbytes
                self.tensors[path] = (tensor.clone() if part else tensor).contiguous()
            return {"tensor": self.names[key]}
        if isinstance(value, Mapping):
            pairs = [[key, self(item, f"{path}/{key}")] for key, item in value.items()]
            return {"counts" if isinstance(value, Counter) else "pairs": pairs}
        if isinstance(value, list | tuple):
            items = [self(item, f"{path}/{place}") for place, item in enumerate(value)]
            return items if isinstance(value, list) else {"tuple": items}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        told = f"{path} is a {type(value).__name__}, which a file without pickle cannot hold"
        raise SavingError(f"{told}: leave it out of the state")


def given(value: Any, tensors: _Tensors) -> Any:
    """A state out of JSON and tensors."""
    if not isinstance(value, Mapping):
        return [given(item, tensors) for item in value] if isinstance(value, list) else value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(given(content, tensors))
    pairs = {key: given(item, tensors) for key, item in content}
    return Counter(pairs) if kind == "counts" else OrderedDict(pairs)  # with room for _metadata


def checksum(tensors: Mapping[str, Tensor], said: str = "") -> str:
    """SHA-256 of a text and of all tensors with their names, in the order of these."""
    found = hashlib.sha256(said.encode())
    for name, tensor in sorted(tensors.items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def replace(path: Path, content: bytes) -> None:
    """Write a new file that takes the place of `path` once it is whole, or is gone again."""
    # In a folder that others write to, nobody can foresee its name and lay a link at it.
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Any], _Tensors]:
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            said = metadata.get(_KEY, "null")
            tensors = {key: file.get_tensor(key) for key in file.offset_keys()}
        head = json.loads(said)
    except FileNotFoundError:
        raise SavingError(f"{path} does not exist: give the path that bd.save wrote to") from None
    except (OSError, SafetensorError, ValueError) as error:
        raise SavingError(f"{path} is damaged or no safetensors file: {error}") from None
    if head is None:
        raise SavingError(f"{path} was not written by bd.save: load it as it was saved")
    if head["format"] != FORMAT:
        told = f"by bayesdiv {head['version']} in format {head['format']}, this one reads {FORMAT}"
        raise SavingError(f"{path} was written {told}: load it with that version")
    if metadata.get("checksum") != checksum(tensors, said):
        raise SavingError(f"{path} is damaged, its checksum is wrong: take another copy")
    return head, tensors
