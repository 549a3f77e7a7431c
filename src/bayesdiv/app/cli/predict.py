"""`bayesdiv predict`: predict the rows of a file with a trained run."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser, Namespace

from bayesdiv.app import runs
from bayesdiv.app.console import say
from bayesdiv.app.data.files import read, read_text
from bayesdiv.app.options import command_parser
from bayesdiv.app.settings import encoder_of, restore, task_of


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
    experiment, told = restore(Path(settings.run))
    encoder = encoder_of(told)
    frame = read(settings.data, encoder)
    x = encoder.encode(frame)
    predictive = experiment.predict(x)
    columns = task_of(told).columns(predictive, settings.level)
    copy, separator = read_text(settings.data)  # as it is written there: 007 stays 007
    added = _renamed(columns, copy.columns)
    for name, values in added.items():
        copy[name] = values.numpy() if isinstance(values, torch.Tensor) else values
    runs.write(out, copy.to_csv(index=False, sep=separator).encode())
    rows = "1 row" if len(frame) == 1 else f"{len(frame)} rows"
    say(f"{rows}: {out} with {', '.join(added)}")


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
