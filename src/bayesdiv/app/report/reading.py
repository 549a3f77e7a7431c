"""Runs for one report: read from their folders, and tested on their data where these can be had."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from pandas import DataFrame
from torch import Tensor

from bayesdiv.app import runs
from bayesdiv.app.data.files import Written, read_text
from bayesdiv.app.data.images import below
from bayesdiv.app.data.loading import reading_of
from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.app.experiment import Experiment
from bayesdiv.app.settings import reloaded, restore, result_of, task_of
from bayesdiv.app.task import Task
from bayesdiv.metrics import LEVEL
from bayesdiv.predictive import Predictive


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    name: str  # of its folder, with as much of the path as tells it from the others
    folder: Path
    experiment: Experiment
    settings: Mapping[str, Any]  # all that it was trained with
    result: Mapping[str, Any]  # its metrics
    task: Task  # what the target is
    loss: str  # the divergence with its fields, as the command line has it

    @property
    def label(self) -> str:
        """For a legend."""
        return f"{self.name}: {self.loss}"


Forecasts = Mapping[str, Sequence[tuple[Predictive, Tensor]]]
"""Predictions and targets of each seed, by the names of their runs."""


@dataclass(frozen=True, eq=False)
class Tested:
    """A run with rows that it was not trained on, and what it predicts for them."""

    run: Run
    splits: Splits
    part: Part
    predictive: Predictive
    places: tuple[int, ...]  # of the rows in their file, counted from 1 below its header
    source: str  # the name of that file
    written: Written  # how it is written

    @property
    def y(self) -> Tensor:
        """The targets."""
        return self.part.y

    @cached_property
    def interval(self) -> tuple[Tensor, Tensor]:
        """The 90 % interval of each target, which takes a while to find."""
        return self.predictive.interval(LEVEL)

    @property
    def pictures(self) -> bool:
        """Whether a row is an image."""
        return len(self.splits.shape) == 3

    @property
    def what(self) -> str:
        """What its rows are called."""
        return "pictures" if self.pictures else "rows"

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The file of each picture below the folder of the data; none where that is not known."""
        if self.part is self.splits.test:
            return self.splits.test_files
        folder = Path(self.source)
        if not (self.pictures and folder.is_dir()):
            return ()
        every = below(folder)
        return tuple(every[place - 1].relative_to(folder).as_posix() for place in self.places)

    @cached_property
    def raw(self) -> DataFrame:
        """The rows of a table as its file has them, in the order of `part`."""
        own = self.source == self.splits.name
        path = Path(self.run.settings["data"]["data"] if own else self.source)
        rows = [place - 1 for place in self.places]
        if path.suffix or path.exists():
            return read_text(path, self.written)[0].iloc[rows]
        return cast(DataFrame, self.splits.frame).loc[rows]


def read(given: Sequence[str | Path], data: str | None = None) -> list[Run]:
    """The finished runs of these folders, all of the same data, which now are at `data`."""
    folders = list(dict.fromkeys(map(Path, given)))
    if not folders:
        raise runs.RunError("a report needs at least one run, got none")
    found, whole = [], [folder.resolve() for folder in folders]
    above = os.path.commonpath([path.parent for path in whole])
    alike = len({path.name for path in whole}) < len(whole)
    for folder, path in zip(folders, whole, strict=True):
        experiment, settings = restore(folder, data)
        name = os.path.relpath(path, above) if alike else path.name
        about = result_of(folder), task_of(settings), settings["divergence"]
        found.append(Run(name, folder, experiment, settings, *about))
        _check_alike(found[0], found[-1])
    return found


def _check_alike(one: Run, other: Run) -> None:
    """A table of runs compares their losses only if all else about the data is the same."""
    ones, others = (
        {key: str(run.settings["data"].get(key)) for key in ("data", "noise")}
        | {"target": str(run.settings["target"]), "task": run.task.description}
        | {"inputs": str(run.settings["shape"])}
        for run in (one, other)
    )
    # The same rows may have come from files at two places.
    same_rows = one.settings["fingerprint"] == other.settings["fingerprint"]
    for key, value in ones.items():
        if others[key] != value and not (key == "data" and same_rows):
            rule = "runs of one report must have the same data and task"
            got = f"{key} is {value} in {one.name} and {others[key]} in {other.name}"
            raise runs.RunError(f"{rule}: {got}")


def tested(run: Run) -> Tested:
    """A run with its test data, loaded again as its settings say; see `reloaded`."""
    splits = reloaded(run.settings, run.name)
    source = run.settings["data"].get("test") or splits.name
    places = splits.test_rows or tuple(range(1, len(splits.test.y) + 1))
    predictive = run.experiment.predict(splits.test.x)
    written = reading_of(run.settings["data"])["written"]
    return Tested(run, splits, splits.test, predictive, places, source, written)
