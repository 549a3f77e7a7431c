"""New rows for a run: those of a table as its encoder reads them, or pictures."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pandas import DataFrame
from torch import Tensor

from bayesdiv.app.console import note
from bayesdiv.app.data.files import Written, read, read_text
from bayesdiv.app.data.splits import DataError, Part
from bayesdiv.app.settings import encoder_of, task_of

Mask = NDArray[np.bool_]


class NewRows(NamedTuple):
    """A table with a row for each, what hinders each, x of some, and the table as it is written."""

    frame: DataFrame
    problems: list[str]
    good: Mask
    x: Callable[[Mask], Tensor]
    copy: Callable[[], tuple[DataFrame, str]]


def rows_of(path: str, told: Mapping[str, Any], written: Written) -> NewRows:
    """The rows of a file or a folder, for a run of these settings."""
    if told["encoder"] is not None:
        encoder = encoder_of(told)
        frame = read(path, encoder, written)
        problems, x = encoder.problems(frame), lambda rows: encoder.encode(frame[rows])
        copy = lambda: read_text(path, written)  # noqa: E731 - as it is written there: 007 stays 007
    else:
        from bayesdiv.app.data.images import new

        column, size = told["data"].get("pictures"), told["shape"][-1]
        frame, separator, (pictures, problems) = new(Path(path), column, size, written)
        x, copy = lambda rows: pictures[torch.from_numpy(rows)], lambda: (frame, separator)
    good = np.array([not problem for problem in problems])
    if not good.any():
        raise DataError(f"{path} must have a row that can be read, got: {problems[0]}")
    return NewRows(frame, problems, good, x, copy)


def with_targets(
    path: str, told: Mapping[str, Any], written: Written
) -> tuple[Part, tuple[int, ...]]:
    """The rows of a file that can be read and have a target, and their places."""
    rows, target = rows_of(path, told, written), told["target"]
    if target not in rows.frame.columns:
        raise DataError(f"{path} must have the target {target!r} to be evaluated on")
    good = rows.good & rows.frame[target].notna().to_numpy()
    if not good.any():
        raise DataError(f"{path} must have a row that can be read, got: no target")
    if not good.all():
        note(f"rows left out because they cannot be read or have no target: {(~good).sum()}")
    places = tuple((np.flatnonzero(good) + 1).tolist())
    return Part(rows.x(good), task_of(told).encode(rows.frame[good][target])), places
