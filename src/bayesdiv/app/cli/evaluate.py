"""`bayesdiv evaluate`: print the metrics of a run, also on new rows."""

from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from bayesdiv.app.console import note, print_metrics
from bayesdiv.app.data.files import KNOWN
from bayesdiv.app.data.splits import DataError, Part
from bayesdiv.app.experiment import evaluate as measured
from bayesdiv.app.new_rows import rows_of
from bayesdiv.app.options import add_text, add_written, command_parser, written_of
from bayesdiv.app.settings import reloaded, restore, task_of


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
    add_written(command)
    return command


def evaluate(settings: Namespace) -> None:
    """Compute and print the metrics of a run."""
    experiment, told = restore(Path(settings.run), settings.data)
    if settings.new is not None:
        x, y = new_rows(told, settings)
        found = task_of(told).measured(experiment.predict(x), y)
        print_metrics({"new": found}, settings.new)
        return
    splits = reloaded(experiment, told, settings.run)
    parts = {"validation": splits.validation, "test": splits.test}
    print_metrics({name: measured(experiment, splits, part) for name, part in parts.items()})


def new_rows(told: dict[str, Any], settings: Namespace) -> Part:
    """The rows of the file `settings.new` that can be read and have a target."""
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
    return Part(rows.x(good), task_of(told).encode(frame[good][target]))
