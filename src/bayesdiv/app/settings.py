"""The settings of a run as JSON, and the experiment and the data that they describe."""

import dataclasses
import difflib
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import bayesdiv
from bayesdiv import divergence as divergences
from bayesdiv.app import calibrated, runs
from bayesdiv.app import task as tasks
from bayesdiv.app.data.loading import load, reading_of
from bayesdiv.app.data.splits import DataError, Splits, ensure
from bayesdiv.app.experiment import RECIPES, Experiment, Settled, build
from bayesdiv.divergence import KL, Divergence

SETTINGS: dict[str, Any] = {
    **dict.fromkeys(("format", "num_data"), int),
    **dict.fromkeys(("version", "target", "fingerprint", "divergence"), str),
    **dict.fromkeys(("data", "task", "network", "training"), dict),
    "encoder": dict | None,
    "shape": list,
}
RESULT: dict[str, Any] = {"test": dict, "validation": dict, "best_epoch": int, "seconds": float}


def describe(experiment: Experiment, splits: Splits, source: Mapping[str, Any]) -> dict[str, Any]:
    """All that a run is restored from, as JSON."""
    recipe = experiment.recipe
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
        "network": {"kind": type(recipe).__name__, **dataclasses.asdict(recipe)},
        "divergence": described(experiment.divergence),
        "training": dataclasses.asdict(experiment.training),
    }
    return dict(json.loads(json.dumps(settings)))  # as it will be read


def fingerprint(splits: Splits) -> str:
    """SHA-256 of all rows as they are encoded and of the target's units, wherever they come from.

    Examples:
        >>> from bayesdiv.app.data.loading import load
        >>> fingerprint(load("diabetes")) == fingerprint(load("diabetes", seed=1))
        False
    """
    units = tasks.described(splits.task).values()
    # To nine digits: the last ones of a mean are not the same on every processor.
    said = " ".join(f"{unit:.9g}" if isinstance(unit, float) else repr(unit) for unit in units)
    return calibrated.digest(*(rows for part in splits.parts for rows in part), said=said)


def described(divergence: Divergence | None) -> str:
    """A divergence in the words that `named` takes: JSA:0.3."""
    if divergence is None:
        return "deterministic"
    fields = {f.name: getattr(divergence, f.name) for f in dataclasses.fields(divergence)}  # type: ignore[arg-type]
    values = [f"{value}" if key == "alpha" else f"{key}={value}" for key, value in fields.items()]
    kind = type(divergence)
    ours = getattr(divergences, kind.__name__, None) is kind
    name = kind.__name__ if ours else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}:{','.join(values)}" if values else name


def named(text: str) -> Divergence | None:
    """A divergence by its name or import path, with alpha after a colon; None for deterministic."""
    name, colon, said = text.partition(":")
    if name in ("deterministic", "null", "None"):
        return None
    module, _, last = name.rpartition(".")
    ours = module in ("", "bayesdiv", "bayesdiv.divergence")
    try:
        kind: Any = getattr(divergences if ours else import_module(module), last, None)
    except (ImportError, ValueError) as error:
        rule = "write NAME or NAME:ALPHA, as in JSA:0.3, or an import path"
        raise ValueError(f"{text} is not a known divergence: {rule} ({error})") from None
    divergence = isinstance(kind, type) and issubclass(kind, Divergence)
    if not divergence or (ours and last not in known()):
        close = difflib.get_close_matches(last, known(), n=1)
        hint = f"; did you mean {close[0]}?" if close else f": give one of {', '.join(known())}"
        raise ValueError(f"{text} is not a known divergence{hint}")
    pairs = [part.partition("=") for part in said.split(",") if colon]
    fields = {key if equals else "alpha": value if equals else key for key, equals, value in pairs}
    if ours and last in (usual := {"JSG": "0.1", "JSA": "0.5"}):
        fields.setdefault("alpha", usual[last])
    wrong = fields.keys() - {f.name for f in dataclasses.fields(kind)}
    if wrong:
        raise ValueError(f"{name} has no {min(wrong)}, got {text!r}")
    try:
        return cast(Divergence, kind(**{key: float(value) for key, value in fields.items()}))
    except (ValueError, TypeError) as error:
        if "could not convert" in str(error):
            rule = "must be a number, as in JSA:0.3"
            raise ValueError(f"alpha of {text!r} {rule}, got {said or 'nothing'}") from None
        raise ValueError(f"{error} in {text!r}") from None


def known() -> list[str]:
    """The names of all divergences."""
    kinds = {name: getattr(divergences, name) for name in divergences.__all__}
    ours = {name: kind for name, kind in kinds.items() if isinstance(kind, type)}
    return [name for name, kind in ours.items() if Divergence in kind.__mro__[1:]]


def restore(folder: Path, data: str | None = None) -> tuple[Experiment, dict[str, Any]]:
    """The trained experiment of a run, and its settings; `data` is where its data are now."""
    settings, weights = _read(folder), folder / runs.WEIGHTS
    if not (folder / runs.METRICS).exists():  # which are written last
        raise runs.RunError(f"{folder} holds a run that is not finished: train it to its end first")
    runs.check_identity(weights, settings)
    experiment, settings = outline(folder)
    runs.load_state(weights, experiment.parts)
    experiment.calibration = calibrated.read(folder)
    if data is not None:
        settings["data"]["data"] = data
    return experiment, settings


def outline(folder: Path) -> tuple[Experiment, dict[str, Any]]:
    """A run without its weights, finished or not: its network as it began, history, settings."""
    settings = _read(folder)
    with runs.reported(folder / runs.SETTINGS, "read"):
        network, kind = _fields(settings["network"]), settings["divergence"]
        recipe = RECIPES[network.pop("kind")](**network)
        # A class of the user's own is not imported from a file's word; predictions need none.
        divergence = KL() if "." in kind.partition(":")[0] else named(kind)
        training = Settled(**_fields(settings["training"]))
        experiment = build(recipe, task_of(settings), divergence, training, settings["num_data"])
    experiment.history = runs.read_history(folder)
    return experiment, settings


def _read(folder: Path) -> dict[str, Any]:
    """The settings of a run, which must hold all that is read from them later."""
    if not folder.is_dir():
        raise runs.RunError(f"there is no run {folder}: give the folder that bayesdiv train wrote")
    path = folder / runs.SETTINGS
    return _checked(path, runs.read_json(path), SETTINGS)


def result_of(folder: Path) -> dict[str, Any]:
    """The metrics of a finished run."""
    path = folder / runs.METRICS
    result = _checked(path, runs.read_json(path), RESULT)
    for part in (result["test"], result["validation"]):
        _checked(path, part, dict.fromkeys(part, float))
    return result


def _checked(path: Path, content: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What a file holds; complain of the first entry that is missing or of the wrong kind."""
    with runs.reported(path, "read"):
        if "format" in wanted:
            runs.check_format(path, content)
        for name, kind in wanted.items():
            if not isinstance(content[name], kind):
                raise TypeError(f"{name!r} must be {kind}, got {str(content[name])[:60]!r}")
    return dict(content)


def task_of(settings: Mapping[str, Any]) -> tasks.Task:
    """What the target of a run is, as `task.described` described it."""
    fields = _fields(settings["task"])
    kind: Any = tasks.named(str(fields.pop("kind")))
    return cast(tasks.Task, kind(**fields))


def _fields(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in saved.items()}


def reloaded(settings: Mapping[str, Any], name: str) -> Splits:
    """The data of a run, loaded again as its settings say, and refused if they have changed."""
    source = settings["data"]
    ensure("data" in source, f"{name} does not say where its data came from")
    try:
        how = {"seed": source["seed"], "noise": source["noise"], **reading_of(source)}
        splits = load(source["data"], **how)
    except (OSError, DataError) as error:
        said = getattr(error, "said", error)  # without its advice, which is for training
        raise DataError(f"{said}; give the data that {name} was trained on with --data") from None
    except (KeyError, AttributeError, TypeError, OverflowError) as error:  # none or no name
        raise DataError(f"{name} has impossible settings for its data: {error}") from None
    said = f"{source['data']} does not hold the rows that {name} was trained on: give these with "
    advice = "--data, or train again; for new rows use bayesdiv evaluate RUN FILE"
    ensure(fingerprint(splits) == settings["fingerprint"], said + advice)
    return splits
