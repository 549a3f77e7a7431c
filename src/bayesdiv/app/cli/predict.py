"""`bayesdiv predict`: the rows of a file, with a trained run."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser, Namespace

from bayesdiv.app import experiment as experiments
from bayesdiv.app import runs
from bayesdiv.app.cli.console import say
from bayesdiv.app.cli.options import command_parser
from bayesdiv.app.data import Regression
from bayesdiv.app.data.table import read, read_text


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = command_parser(
        "Predict the rows of a file with a trained run; adds columns to a copy of the table, with "
        "a number after the name of one that it has already.",
        "bayesdiv predict runs/diabetes new.csv -o predicted.csv",
    )
    command.add_argument("run", type=str, help="folder of a run")
    command.add_argument(
        "data", type=str, help="a .csv or .parquet file with the columns of training"
    )
    command.add_argument("--out", "-o", type=str, required=True, help="a .csv file to write")
    command.add_argument("--level", type=float, default=0.9, help="of the predictive interval")
    return command


def predict(settings: Namespace) -> None:
    """Predict the rows of a file and write a copy of the table with the predictions."""
    if not 0 < settings.level < 1:
        raise ValueError(f"level must lie inside (0, 1), got {settings.level}")
    out = Path(settings.out)
    if out.suffix != ".csv":
        raise ValueError(f"the output must be a .csv file, got {out}")
    if out.exists():
        raise ValueError(f"{out} exists already: choose another name or remove it")
    experiment, told = experiments.restore(Path(settings.run))
    encoder = experiments.encoder_of(told)
    frame = read(settings.data, encoder)
    x = encoder.encode(frame)
    predictive = experiment.predict(x)
    columns = _prediction_columns(predictive, experiments.task_of(told), settings.level)
    copy, separator = read_text(settings.data)  # as it is written there: 007 stays 007
    columns = _renamed(columns, copy.columns)
    for name, values in columns.items():
        copy[name] = values.numpy() if isinstance(values, torch.Tensor) else values
    runs.write(out, copy.to_csv(index=False, sep=separator).encode())
    rows = "1 row" if len(frame) == 1 else f"{len(frame)} rows"
    say(f"{rows}: {out} with {', '.join(columns)}")


def _renamed(columns: Mapping[str, Any], there: Iterable[str]) -> dict[str, Any]:
    """The columns to add, with a number after the name of each that the table has already.

    Examples:
        >>> _renamed({"predicted_class": ["no"], "entropy": [0.5]}, ["age", "entropy"])
        {'predicted_class': ['no'], 'entropy_2': [0.5]}
    """
    there = set(there)
    found: dict[str, Any] = {}
    for name, values in columns.items():
        numbered = (f"{name}_{k}" for k in itertools.count(2))
        taken = there | found.keys() | (columns.keys() - {name})
        free = next(each for each in itertools.chain([name], numbered) if each not in taken)
        found[free] = values
    return found


def _prediction_columns(predictive: Any, task: Any, level: float) -> dict[str, Any]:
    if isinstance(task, Regression):
        low, high = predictive.interval(level)
        return {
            "predicted_mean": task.to_units(predictive.mean),
            "predicted_scale": predictive.variance.sqrt() * task.scale,
            "predicted_low": task.to_units(low),
            "predicted_high": task.to_units(high),
        }
    probabilities = predictive.probabilities
    chosen = [task.classes[index] for index in probabilities.argmax(-1).tolist()]
    return {
        "predicted_class": chosen,
        **{f"probability_{name}": probabilities[:, k] for k, name in enumerate(task.classes)},
        "entropy": predictive.entropy,
        "mutual_information": predictive.mutual_information,
    }
