"""New rows for a run: those of a table as its encoder reads them, or pictures."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data.files import Written, as_trained, read, read_text
from bayesdiv.app.settings import encoder_of

if TYPE_CHECKING:
    from pandas import DataFrame

Mask = NDArray[np.bool_]


class NewRows(NamedTuple):
    """A table with a row for each, what hinders each, x of some, and the table as it is written."""

    frame: "DataFrame"
    problems: list[str]
    x: Callable[[Mask], Tensor]
    copy: Callable[[], tuple["DataFrame", str]]

    @property
    def good(self) -> Mask:
        """Which rows can be predicted."""
        return np.array([not problem for problem in self.problems])


def rows_of(path: str, told: Mapping[str, Any], written: Written) -> NewRows:
    """The rows of a file or a folder, for a run of these settings."""
    if told["encoder"] is not None:
        encoder = encoder_of(told)
        how = as_trained(path, encoder, written)
        frame = read(path, encoder, how)
        # The copy is as it is written there: 007 stays 007.
        return NewRows(
            frame,
            encoder.problems(frame),
            lambda rows: encoder.encode(frame[rows]),
            lambda: read_text(path, how),
        )
    from bayesdiv.app.data.pictures import new

    column, size = told["data"].get("pictures"), told["shape"][-1]
    table, separator, (x, problems) = new(Path(path), column, size, written)
    picked = lambda rows: x[torch.from_numpy(rows)]  # noqa: E731
    return NewRows(table, problems, picked, lambda: (table, separator))
