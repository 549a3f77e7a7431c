"""`bayesdiv evaluate`: print the metrics of a run, also on new rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jsonargparse import ArgumentParser, Namespace

from bayesdiv.app import runs
from bayesdiv.app.cli.predict import unserved
from bayesdiv.app.console import note, print_metrics, say
from bayesdiv.app.data.files import KNOWN
from bayesdiv.app.data.splits import DataError, Part
from bayesdiv.app.experiment import evaluate as measured
from bayesdiv.app.new_rows import rows_of
from bayesdiv.app.options import add_text, add_written, command_parser, page_path, written_of
from bayesdiv.app.report import reading
from bayesdiv.app.report.page import on_runs
from bayesdiv.app.settings import task_of
from bayesdiv.metrics import LEVEL


def parser() -> ArgumentParser:
    command = command_parser(
        "Print the metrics of a run on its own validation and test rows, or on a new file.",
        "bayesdiv evaluate runs/diabetes new.csv",
    )
    command.add_argument("run", type=str, help="folder of a run")
    command.add_argument(
        "new",
        type=str,
        nargs="?",
        help=f"{KNOWN} with the columns used in training and the target, or a folder with one "
        "folder of pictures per class",
    )
    add_text(command, "--data", "the training file, if it has moved")
    add_text(command, "--out", "an .html file for a page of charts, as bayesdiv report writes it")
    add_written(command)
    return command


def evaluate(settings: Namespace) -> None:
    """Compute and print the metrics of a run."""
    path = None if settings.out is None else page_path(settings)
    run = reading.read([Path(settings.run)], settings.data)[0]
    new: dict[str, Any] = {}
    if settings.new is None:
        one = reading.tested(run)
        parts = {"validation": one.splits.validation, "test": one.splits.test}
        print_metrics({k: measured(run.experiment, one.splits, p) for k, p in parts.items()})
    else:
        part, places = new_rows(dict(run.settings), settings)
        new = {"part": part, "predictive": run.experiment.predict(part.x), "places": places}
        new |= {"source": settings.new, "written": written_of(settings, run.settings["data"])}
        print_metrics({"new": run.task.measured(new["predictive"], part.y)}, settings.new)
    if "coverage" in run.task.metrics:  # of the intervals of this level
        note(*unserved(run.experiment.calibration, LEVEL))
    if path is not None:
        one = replace(reading.tested(run), **new)
        runs.write(path, on_runs([run], [one]).encode())
        say(f"wrote {path}: open it in a browser")


def new_rows(told: dict[str, Any], settings: Namespace) -> tuple[Part, tuple[int, ...]]:
    """The rows of the file `settings.new` that can be read and have a target, and their places."""
    target = told["target"]
    rows = rows_of(settings.new, told, written_of(settings, told["data"]))
    problems, frame = rows.problems, rows.frame
    if target not in frame.columns:
        raise DataError(f"{settings.new} must have the target {target!r} to be evaluated on")
    good = rows.good & frame[target].notna().to_numpy()
    if not good.any():
        raise DataError(f"{settings.new} must have a row that can be read, got: {problems[0]}")
    if not good.all():
        note(f"rows left out because they cannot be read or have no target: {(~good).sum()}")
    places = tuple((np.flatnonzero(good) + 1).tolist())
    return Part(rows.x(good), task_of(told).encode(frame[good][target])), places
