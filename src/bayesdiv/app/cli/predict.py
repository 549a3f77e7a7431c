"""`bayesdiv predict`: predict the rows of a file with a trained run."""

import itertools
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayesdiv.app import calibrated, options, runs
from bayesdiv.app.command import Command
from bayesdiv.app.console import note, say
from bayesdiv.app.data.files import KNOWN
from bayesdiv.app.new_rows import rows_of
from bayesdiv.app.settings import restore, task_of
from bayesdiv.app.training import unlike


def parser() -> Command:
    data = f"{KNOWN} with the columns used in training, or a folder of pictures"
    command = Command(
        "Predict the rows of a file with a trained run. Writes a copy of the table with additional "
        "columns; if a name is already used, the new one gets a number. The column problem says "
        "why a row could not be read.",
        "bayesdiv predict runs/diabetes new.csv -o predicted.csv",
        {"run": options.RUN, "data": data, **options.HOW},
    )
    command.add_argument("--out", "-o", type=str, required=True, help="the .csv file to write")
    command.add_argument("--level", type=float, default=0.9, help="level of the interval")
    said = "share of ordinary rows that the column unlike_training may flag"
    command.add_argument("--false_alarms", type=float, default=0.05, help=said)
    return command


def predict(settings: Namespace) -> None:
    """Predict the rows of a file and write a copy of the table with the predictions."""
    for name in ("level", "false_alarms"):
        if not 0 < (value := getattr(settings, name)) < 1:
            raise ValueError(f"{name} must lie inside (0, 1), got {value}")
    out = Path(settings.out)
    if out.suffix != ".csv":
        raise ValueError(f"the output must be a .csv file, got {out}")
    if out.exists():
        raise ValueError(f"{out} exists already: choose another name or remove it")
    experiment, told = restore(Path(settings.run))
    written = options.written_of(settings, told["data"])
    rows = rows_of(settings.data, told, written)
    problems, good = rows.problems, rows.good
    x = rows.x(good)
    columns: dict[str, Any] = task_of(told).columns(experiment.predict(x), settings.level)
    unusual = unlike(Path(settings.run), x, settings.false_alarms)
    if unusual is not None:
        columns["unlike_training"] = unusual
    copy, separator = rows.copy()
    for name, values in columns.items():  # nothing in the rows that could not be read
        found = np.asarray(values)
        fractions = found.dtype.kind == "f"
        columns[name] = np.full(len(good), np.nan) if fractions else np.full(len(good), "", object)
        columns[name][good] = found.tolist()
    added = _renamed({**columns, "problem": problems}, copy.columns)
    for name, values in added.items():
        copy[name] = values
    text = copy.to_csv(index=False, sep=separator, decimal=written.decimal or ".")
    runs.write(out, text.encode())
    count = "1 row" if len(good) == 1 else f"{len(good)} rows"
    by = calibrated.named(experiment.calibration)
    say(f"{count}: {out} with {', '.join(added)}{f'; calibrated: {by}' if by else ''}")
    note(*calibrated.unserved(experiment.calibration, settings.level))
    if unusual is not None and unusual.any():
        note(
            f"rows unlike the training data: {unusual.sum()}, at a false alarm rate of "
            f"{settings.false_alarms:.3g}; see the column unlike_training"
        )
    if not good.all():
        first = int(good.argmin())
        note(
            f"rows that could not be read: {(~good).sum()}, see the column problem; the first, "
            f"row {first + 1}: {problems[first]}"
        )


def _renamed(columns: Mapping[str, Any], there: Iterable[str]) -> dict[str, Any]:
    """The columns to add, with a number after the name of each that the table has already."""
    there = set(there)
    found: dict[str, Any] = {}
    for name, values in columns.items():
        numbered = (f"{name}_{k}" for k in itertools.count(2))
        taken = there | found.keys() | (columns.keys() - {name})
        free = next(each for each in itertools.chain([name], numbered) if each not in taken)
        found[free] = values
    return found
