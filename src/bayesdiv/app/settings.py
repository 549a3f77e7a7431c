"""The settings of a run as JSON, and the experiment and the data that they describe."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import bayesdiv
from bayesdiv import divergence as divergences
from bayesdiv.app import runs, schema
from bayesdiv.app import task as tasks
from bayesdiv.app.data.encoder import Encoder
from bayesdiv.app.data.loading import load, reading_of
from bayesdiv.app.data.splits import DataError, Splits
from bayesdiv.app.data.splitting import Bias
from bayesdiv.app.experiment import RECIPES, Experiment, Training, build
from bayesdiv.app.task import Task
from bayesdiv.divergence import KL, Divergence


def describe(experiment: Experiment, splits: Splits, source: Mapping[str, Any]) -> dict[str, Any]:
    """All that a run is restored from, as JSON."""
    settings = {
        "format": runs.FORMAT,
        "version": bayesdiv.__version__,
        "data": dict(source),
        "target": splits.target,
        "num_data": splits.num_data,
        "fingerprint": fingerprint(splits),
        "task": tasks.described(splits.task),
        "shape": splits.shape,
        "encoder": None if splits.encoder is None else splits.encoder.to_json(),
        "network": {
            "kind": type(experiment.recipe).__name__,
            **dataclasses.asdict(experiment.recipe),
        },
        "divergence": described(experiment.divergence),
        "training": dataclasses.asdict(experiment.training),
    }
    return dict(_as_json(settings))


def fingerprint(splits: Splits) -> str:
    """SHA-256 of all rows of the three parts as they are encoded, and of the target's units.

    The same wherever the data come from: a file may move, and it may change under its name.

    Examples:
        >>> from bayesdiv.app.data.loading import load, reading_of
        >>> fingerprint(load("diabetes")) == fingerprint(load("diabetes", seed=1))
        False
    """
    # To nine digits: the last ones of a mean are not the same on every processor.
    units = [
        f"{value:.9g}" if isinstance(value, float) else repr(value)
        for value in tasks.described(splits.task).values()
    ]
    found = hashlib.sha256(" ".join(units).encode())
    for part in splits.parts:
        for rows in part:
            found.update(rows.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_json(entry) for key, entry in value.items()}
    return [_as_json(entry) for entry in value] if isinstance(value, list | tuple) else value


def described(divergence: Divergence | None) -> dict[str, Any] | None:
    """A divergence as JSON: its class and its fields."""
    if divergence is None:
        return None
    fields = {f.name: getattr(divergence, f.name) for f in dataclasses.fields(divergence)}  # type: ignore[arg-type]
    kind = type(divergence)
    ours = getattr(divergences, kind.__name__, None) is kind
    return {"kind": kind.__name__ if ours else f"{kind.__module__}.{kind.__qualname__}", **fields}


def restore(folder: Path, data: str | None = None) -> tuple[Experiment, dict[str, Any]]:
    """The trained experiment of a run, and its settings.

    Args:
        folder: of the run.
        data: where its data are now, which `reloaded` checks; None where they were.
    """
    settings = opened(folder)
    if not (folder / runs.WEIGHTS).exists():
        raise runs.RunError(f"{folder} holds a run that is not finished: train it to its end first")
    runs.check_identity(folder / runs.WEIGHTS, settings)
    experiment = _outlined(folder, settings)
    runs.load_state(folder / runs.WEIGHTS, experiment.parts)
    if data is not None:
        settings["data"]["data"] = data
    return experiment, settings


def outline(folder: Path) -> tuple[Experiment, dict[str, Any]]:
    """A run without its weights, finished or not: its network as it began, history, settings."""
    settings = opened(folder)
    return _outlined(folder, settings), settings


def opened(folder: Path) -> dict[str, Any]:
    """The settings of a run, which must hold all that is read from them later."""
    folder = Path(folder)
    if not folder.is_dir():
        raise runs.RunError(f"there is no run {folder}")
    path = folder / runs.SETTINGS
    settings = runs.read_json(path)
    runs.check_format(path, settings if isinstance(settings, dict) else {})
    schema.check(path, settings, schema.SETTINGS)
    return dict(settings)


def result_of(folder: Path) -> dict[str, Any]:
    """The metrics of a finished run."""
    result = runs.read_json(folder / runs.METRICS)
    schema.check(folder / runs.METRICS, result, schema.RESULT)
    return dict(result)


def _outlined(folder: Path, settings: Mapping[str, Any]) -> Experiment:
    try:
        experiment = _from_settings(settings)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, MemoryError) as error:
        line = " ".join(str(error).split())[:300]
        raise runs.RunError(f"{folder / runs.SETTINGS} is damaged: {line}") from None
    experiment.history = runs.read_history(folder)
    return experiment


def _from_settings(settings: Mapping[str, Any]) -> Experiment:
    network = dict(settings["network"])
    recipe = schema.made(RECIPES[network.pop("kind")], network)
    training, task = schema.made(Training, settings["training"]), task_of(settings)
    if settings["encoder"] is not None:
        encoder, inputs = Encoder.from_json(settings["encoder"]), math.prod(settings["shape"])
        widths = sum(column.width for column in encoder.columns)
        if not widths == math.prod(encoder.shape) == inputs:
            raise ValueError(f"its columns give {widths} numbers, and its network takes {inputs}")
    # Weights of classes have the right shape if each occurs once; their values are loaded.
    balanced_by = torch.arange(task.outputs) if training.balance else None
    divergence = None
    if settings["divergence"] is not None:
        fields = dict(settings["divergence"])
        name = fields.pop("kind")
        kind: Any = getattr(divergences, name, None)
        ours = isinstance(kind, type) and issubclass(kind, Divergence)
        if not ours and "." not in name:
            raise ValueError(f"divergence {name} is not one of this library")
        # A class of the user's own is not imported from a file's word; predictions do not need it.
        divergence = kind(**fields) if ours else KL()
    return build(recipe, task, divergence, training, settings["num_data"], balanced_by)


def task_of(settings: Mapping[str, Any]) -> Task:
    """What the target of a run is."""
    return tasks.restored(settings["task"])


def encoder_of(settings: Mapping[str, Any]) -> Encoder:
    """How a run encodes rows."""
    if settings["encoder"] is None:
        raise runs.RunError("a run of images predicts no table: predict its images from Python")
    return Encoder.from_json(settings["encoder"])


def reloaded(experiment: Experiment, settings: Mapping[str, Any], name: str) -> Splits:
    """The data of a run, loaded again as its settings say.

    Raises:
        DataError: they cannot be had any more, or are not those the run was trained with.
    """
    source = settings["data"]
    if "data" not in source:
        raise DataError(f"{name} does not say where its data came from")
    try:
        splits = load(
            source["data"],
            seed=source["seed"],
            noise=source["noise"],
            bias=None if source["bias"] is None else Bias.parse(source["bias"]),
            **reading_of(source),
        )
    except OSError as error:
        raise DataError(f"{source['data']} cannot be read: {error.strerror or error}") from None
    except KeyError as error:
        raise DataError(f"{name} does not say the {error} of its data") from None
    except (AttributeError, TypeError, OverflowError) as error:  # a number where a name must be
        raise DataError(f"{name} says of its data what cannot be: {error}") from None
    same = describe(experiment, splits, source)
    for key in ("encoder", "task", "num_data", "fingerprint"):
        if not _alike(same[key], settings[key]):
            what = "some of its rows differ" if key == "fingerprint" else f"its {key} differs"
            raise DataError(
                f"{source['data']} has changed since {name} was trained: {what}; train again, or "
                "name a file with the rows of that time by --data"
            )
    return splits


def _alike(one: Any, two: Any) -> bool:
    """Equal but for the last digits of numbers, which another processor may round otherwise."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(_alike(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_alike, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-9)
    return bool(one == two)
