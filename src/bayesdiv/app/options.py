"""What several commands take: which data or new rows, which divergence, how to train."""

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pandas import DataFrame
from torch import Tensor

from bayesdiv.app import runs
from bayesdiv.app import task as tasks
from bayesdiv.app.command import Command
from bayesdiv.app.console import note, say
from bayesdiv.app.data.columns import Encoder
from bayesdiv.app.data.files import KNOWN, Written, read, read_text
from bayesdiv.app.data.images import Images, new
from bayesdiv.app.data.loading import opened, parted, reading_of, under
from bayesdiv.app.data.splits import DataError, Part, Splits, ensure
from bayesdiv.app.data.table import Table
from bayesdiv.app.experiment import Settled, Training, settled
from bayesdiv.app.families import FAMILIES
from bayesdiv.app.settings import known, task_of
from bayesdiv.app.tasks.regression import Regression

FIRST = ("data", "target", "noise", "task", "seed")
WRITTEN = {
    "separator": "field separator of a text file, such as ; or tab",
    "decimal": "decimal sign of a text file: . or ,",
    "encoding": "encoding of a text file, such as latin-1 (default: UTF-8)",
    "header": "whether the first line contains the column names: yes or no",
    "sheet": "sheet of an Excel file (default: the first)",
}
READING = {
    "likelihood": f"noise of a numeric target: {', '.join(FAMILIES)}, or auto",
    "drop": "columns to leave out: id or id,name",
    "categories": "numeric columns that are categories, such as codes: store or store,month",
    "impute": "fill missing values with the median or the most common category, and mark them",
    "test": "file with the test rows",
    "split": "time:COLUMN tests on the latest rows; group:COLUMN keeps each group in one part",
    "pictures": "column of a table with paths of pictures, relative to its folder",
    "size": "width and height that pictures are scaled and cut to, in pixels (default: 64)",
    "skip_broken": "leave out pictures that cannot be read",
    **WRITTEN,
}
HOW = {f"--{name}": said for name, said in WRITTEN.items()}
"""Arguments that `rows_of` and `with_targets` read."""
RUN, MOVED = "folder of a run", "the training file, if it has moved"


def add_data(command: Command) -> None:
    """The arguments that `open_data` and `part_data` read."""
    said = f"a data set by name, such as diabetes, digits or cifar10, {KNOWN}, or a folder with "
    command.add_argument("data", help=f"{said}one folder of pictures per class")
    command.add_argument("--target", help="column to predict (default: the last column)")
    said = f"what the target is: {', '.join(tasks.names())} (default: decided from its values)"
    command.add_argument("--task", help=said)
    for name, said in READING.items():
        flag: Any = {"action": "store_true"} if name in ("impute", "skip_broken") else {}
        command.add_argument(f"--{name}", help=said, **flag)
    noise = "standard deviation of noise added once to all inputs"
    command.add_argument("--noise", type=float, default=0.0, help=noise)


def page_path(given: str) -> Path:
    """The file for a page."""
    path = Path(given)
    if path.suffix != ".html" or path.is_dir():
        raise ValueError(f"out must be an .html file, got {path}")
    return path


def write_page(path: Path, content: str) -> None:
    """Write a page and say where."""
    runs.write(path, content.encode())
    say(f"wrote {path}: open it in a browser")


def open_data(settings: Namespace) -> Table | Images:
    """The data that a command is to use, read once."""
    return opened(settings.data, **reading_of(vars(settings)))


def part_data(source: Table | Images, settings: Namespace, seed: int) -> Splits:
    """The data in three parts, split by this seed."""
    splits = parted(under(source, settings.likelihood), seed=seed, noise=settings.noise)
    if settings.likelihood != "auto":
        return splits
    settings.likelihood, said = _chosen(splits)  # for other seeds too, and kept with the run
    splits = part_data(source, settings, seed)
    return replace(splits, notes=(*splits.notes, said))


def prepared(settings: Namespace) -> tuple[Splits, Settled]:
    """The data of a command and how it is to train them; what was decided is noted."""
    asked = training_of(settings)
    splits = part_data(open_data(settings), settings, settings.seed)
    note(*splits.notes)
    return splits, settled(asked, splits.num_data, splits.shape)


def _chosen(splits: Splits) -> tuple[str, str]:
    """The likelihood that predicts best what is held out of the training rows, with a sentence."""
    if not isinstance(splits.task, Regression):
        raise DataError("likelihood is for targets that are numbers, got auto for classes")
    from bayesdiv.app.sklearn.estimators import BayesianRegressor, chosen
    from bayesdiv.app.sklearn.rows import distinct

    x, y = splits.train.x.flatten(1).double().numpy(), splits.task.to_units(splits.train.y)
    if ((y - y.round()).abs() <= 1e-5 * y.abs().clamp(min=1)).all():
        y = y.round()  # whole numbers, but for what single precision lost
    rows = distinct(x, y.unsqueeze(-1).numpy(), np.ones(len(x)))
    word, said = chosen(BayesianRegressor(likelihood="auto", random_state=0), rows)
    return word, f"{said.rstrip('; ')}; --likelihood takes another"


class NewRows(NamedTuple):
    """A table with a row for each, what hinders each, x of some, and the table as it is written."""

    frame: DataFrame
    problems: list[str]
    good: NDArray[np.bool_]
    x: Callable[[NDArray[np.bool_]], Tensor]
    copy: Callable[[], tuple[DataFrame, str]]
    written: Written


def rows_of(path: str, told: Mapping[str, Any], settings: Namespace) -> NewRows:
    """The rows of a file or a folder, for a run; written as options say, else as its own file."""
    given = {name: getattr(settings, name) or told["data"].get(name) for name in WRITTEN}
    written: Written = reading_of({"target": None, **given})["written"]
    if told["encoder"] is not None:
        encoder = Encoder.from_json(told["encoder"])
        frame = read(path, encoder, written)
        problems, x = encoder.problems(frame), lambda rows: encoder.encode(frame[rows])
        copy = lambda: read_text(path, written)  # noqa: E731 - as it is written there: 007 stays 007
    else:
        column, size = told["data"].get("pictures"), told["shape"][-1]
        frame, separator, (pictures, problems) = new(Path(path), column, size, written)
        x, copy = lambda rows: pictures[torch.from_numpy(rows)], lambda: (frame, separator)
    good = np.array([not problem for problem in problems])
    ensure(good.any(), f"{path} must have a row that can be read, got: {problems[0]}")
    return NewRows(frame, problems, good, x, copy, written)


def with_targets(
    path: str, told: Mapping[str, Any], settings: Namespace
) -> tuple[Part, dict[str, Any]]:
    """The rows of a file that can be read and have a target; which these are, and how written."""
    rows, target = rows_of(path, told, settings), told["target"]
    ensure(target in rows.frame.columns, f"{path} must have the target {target!r} to evaluate on")
    good = rows.good & rows.frame[target].notna().to_numpy()
    ensure(good.any(), f"{path} must have a row that can be read, got: no target")
    if not good.all():
        note(f"rows left out because they cannot be read or have no target: {(~good).sum()}")
    places = tuple((np.flatnonzero(good) + 1).tolist())
    part = Part(rows.x(good), task_of(told).encode(rows.frame[good][target]))
    return part, {"source": path, "places": places, "written": rows.written}


def data_settings(settings: Namespace) -> dict[str, Any]:
    """Where the data come from, to be kept with a result; a file by its whole path."""
    told = {name: getattr(settings, name) for name in (*FIRST, *READING)}
    for name in ("data", "test"):
        if told[name] is not None and Path(told[name]).exists():
            told[name] = str(Path(told[name]).resolve())
    return {name: value for name, value in told.items() if name in FIRST or value}


def training_of(settings: Namespace) -> Training:
    """How a command is to train."""
    names = {f.name for f in fields(Training)}
    return Training(**{name: value for name, value in vars(settings).items() if name in names})


def add_divergence(command: Command, usual: str | None, said: str) -> None:
    """The option --divergence, read by `named`."""
    said = f"{', '.join(known())}, or an import path{said}"
    said = f"NAME or NAME:ALPHA, as in JSA:0.3 (JSA is JSA:0.5 and JSG is JSG:0.1); one of {said}"
    command.add_argument("--divergence", default=usual, help=said)


def add_training(command: Command, skip: Iterable[str] = ()) -> None:
    """The options that `training_of` reads."""
    said = dict(re.findall(r"(?m)^ {8}(\w+): (.*(?:\n {12}.*)*)", str(Training.__doc__)))
    for field in [field for field in fields(Training) if field.name not in skip]:
        how: Any = {"type": (*get_args(field.type), field.type)[0], "default": field.default}
        if field.name == "hidden":
            how = {"type": units, "default": ",".join(map(str, how["default"]))}
        command.add_argument(f"--{field.name}", help=said[field.name], **how)


def units(given: str) -> list[int]:
    """The units of each hidden layer."""
    try:
        return [int(number) for number in given.strip("[]() ").split(",") if number.strip()]
    except ValueError:
        raise ArgumentTypeError(f"must be whole numbers such as 50,50, got {given}") from None
