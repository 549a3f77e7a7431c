"""What several commands take: which data, which divergence, how to train."""

import dataclasses
import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from bayesdiv.app import runs
from bayesdiv.app import task as tasks
from bayesdiv.app.command import Command
from bayesdiv.app.console import note, say
from bayesdiv.app.data.files import KNOWN, Written
from bayesdiv.app.data.loading import opened, parted, reading_of, under
from bayesdiv.app.data.splits import DataError, Splits
from bayesdiv.app.data.table import Table
from bayesdiv.app.experiment import Settled, Training, settled
from bayesdiv.app.families import FAMILIES
from bayesdiv.app.settings import known
from bayesdiv.app.tasks.regression import Regression

if TYPE_CHECKING:
    from bayesdiv.app.data.images import Images


FIRST = ("data", "target", "noise", "task", "seed")
WRITTEN = {
    "separator": "field separator of a text file, such as ; or tab",
    "decimal": "decimal sign of a text file: . or ,",
    "encoding": "encoding of a text file, such as latin-1 (default: UTF-8)",
    "header": "whether the first line holds the column names: yes or no",
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
FLAGS = {"impute", "skip_broken"}


DATA = {
    "data": f"a data set by name, such as diabetes, digits or cifar10, {KNOWN}, or a folder with "
    "one folder of pictures per class",
    "--target": "column to predict (default: the last column)",
    "--task": f"what the target is: {', '.join(tasks.names())} (default: decided from its values)",
    **{f"--{name}": said for name, said in READING.items() if name not in FLAGS},
}
"""Arguments that `open_data` and `part_data` read, with those of `add_data`."""
HOW = {f"--{name}": said for name, said in WRITTEN.items()}
"""Arguments that `written_of` reads."""
RUN, MOVED = "folder of a run", "the training file, if it has moved"


def add_data(command: Command) -> None:
    """The options on data that are no text."""
    for name in FLAGS:
        command.add_argument(f"--{name}", action="store_true", help=READING[name])
    noise = "standard deviation of noise added once to all inputs"
    command.add_argument("--noise", type=float, default=0.0, help=noise)


def add_page(command: Command, usual: str) -> None:
    """The option that `page_path` reads."""
    said = "file for the page"
    command.add_argument("--out", "-o", type=str, default=usual, help=said)


def page_path(settings: Namespace) -> Path:
    """The file for a page."""
    path = Path(settings.out)
    if path.suffix != ".html" or path.is_dir():
        raise ValueError(f"out must be an .html file, got {path}")
    return path


def write_page(path: Path, content: str) -> None:
    """Write a page and say where."""
    runs.write(path, content.encode())
    say(f"wrote {path}: open it in a browser")


def open_data(settings: Namespace) -> "Table | Images":
    """The data that a command is to use, read once."""
    return opened(settings.data, **reading_of(vars(settings)))


def part_data(source: "Table | Images", settings: Namespace, seed: int) -> Splits:
    """The data in three parts, split by this seed."""
    how: Any = {"seed": seed, "noise": settings.noise}
    splits = parted(under(source, settings.likelihood), **how)
    if settings.likelihood != "auto":
        return splits
    settings.likelihood, said = _chosen(splits)  # for other seeds too, and kept with the run
    splits = parted(under(source, settings.likelihood), **how)
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


def written_of(settings: Namespace, source: Mapping[str, Any]) -> Written:
    """How a new file is written: as the options say, else as the file of the run was."""
    given = {name: getattr(settings, name) or source.get(name) for name in WRITTEN}
    written: Written = reading_of({"target": None, **given})["written"]
    return written


def data_settings(settings: Namespace) -> dict[str, Any]:
    """Where the data come from, to be kept with a result; a file by its whole path."""
    told = {name: getattr(settings, name) for name in (*FIRST, *READING)}
    for name in ("data", "test"):
        if told[name] is not None and Path(told[name]).exists():
            told[name] = str(Path(told[name]).resolve())
    return {name: value for name, value in told.items() if name in FIRST or value}


def training_of(settings: Namespace) -> Training:
    """How a command is to train."""
    names = {f.name for f in dataclasses.fields(Training)}
    return Training(**{name: value for name, value in vars(settings).items() if name in names})


def add_divergence(command: Command, usual: str | None, said: str) -> None:
    """The option --divergence, read by `named`."""
    names = ", ".join(known())
    said = f"NAME or NAME:ALPHA, as in JSA:0.3; one of {names}, or an import path{said}"
    command.add_argument("--divergence", default=usual, help=said)


def add_training(command: Command, skip: Iterable[str] = ()) -> None:
    """The options that `training_of` reads."""
    said = dict(re.findall(r"(?m)^ {8}(\w+): (.*(?:\n {12}.*)*)", str(Training.__doc__)))
    for field in dataclasses.fields(Training):
        kinds: Any = {kind: kind for kind in (int, float, str)} | {tuple[int, ...]: units}
        kind = next(kinds[k] for k in (field.type, *get_args(field.type)) if k in kinds)
        usual: Any = field.default
        usual = ",".join(map(str, usual)) if kind is units else usual
        if field.name not in skip:
            command.add_argument(f"--{field.name}", type=kind, default=usual, help=said[field.name])


def units(given: str) -> list[int]:
    """The units of each hidden layer."""
    try:
        return [int(number) for number in given.strip("[]() ").split(",") if number.strip()]
    except ValueError:
        raise ArgumentTypeError(f"must be whole numbers such as 50,50, got {given}") from None
