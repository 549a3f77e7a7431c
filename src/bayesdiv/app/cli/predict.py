"""`bayesdiv predict`: predict the rows of a file with a trained run."""

import itertools
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayesdiv.app import calibrated, options, runs
from bayesdiv.app.command import Command
from bayesdiv.app.console import note, say
from bayesdiv.app.data.files import KNOWN
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
    rows = options.rows_of(settings.data, told, settings)
    problems, good = rows.problems, rows.good
    x = rows.x(good)
    columns: dict[str, Any] = task_of(told).columns(experiment.predict(x), settings.level)
    unusual = unlike(Path(settings.run), x, settings.false_alarms)
    if unusual is not None:
        columns["unlike_training"] = unusual
    copy, separator = rows.copy()
    added = _added(columns, copy, good)
    copy[added[-1]] = problems
    text = copy.to_csv(index=False, sep=separator, decimal=rows.written.decimal or ".")
    runs.write(out, text.encode())
    count, by = f"{len(good)} row{'s' * (len(good) > 1)}", calibrated.named(experiment.calibration)
    say(f"{count}: {out} with {', '.join(added)}{f'; calibrated: {by}' if by else ''}")
    note(*calibrated.unserved(experiment.calibration, settings.level))
    if unusual is not None and unusual.any():
        flagged = f"{unusual.sum()}, at a false alarm rate of {settings.false_alarms:.3g}"
        note(f"rows unlike the training data: {flagged}; see the column unlike_training")
    if not good.all():
        first = int(good.argmin())
        said = f"{(~good).sum()}, see the column problem; the first, row {first + 1}"
        note(f"rows that could not be read: {said}: {problems[first]}")


def _added(columns: Mapping[str, Any], table: pd.DataFrame, good: NDArray[np.bool_]) -> list[str]:
    """Add columns for the good rows, and one for problems; a number follows a taken name."""
    added: list[str] = []
    for name in (*columns, "problem"):
        taken = {*table.columns, *(columns.keys() - {name})}
        numbered = itertools.chain([name], (f"{name}_{k}" for k in itertools.count(2)))
        added.append(next(each for each in numbered if each not in taken))
        found = pd.Series(np.asarray(columns.get(name, good[good])), table.index[good])
        kept = found if found.dtype.kind == "f" else found.astype(object)
        table[added[-1]] = kept.reindex(table.index)  # nothing where a row could not be read
    return added
