"""New rows for a run: those of a table as its encoder reads them, or pictures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data.files import Written, as_trained, read, read_text
from bayesdiv.app.settings import encoder_of

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows to be predicted.

    Args:
        frame: the table, a row for each.
        problems: what hinders each row, or nothing.
        encode: from the rows that are picked to x.
        copy: the table as it is written, and what parts its fields.
    """

    frame: "DataFrame"
    problems: list[str]
    encode: Callable[[NDArray[np.bool_]], Tensor]
    copy: Callable[[], tuple["DataFrame", str]]

    @property
    def good(self) -> NDArray[np.bool_]:
        """Which rows can be predicted."""
        return np.array([not problem for problem in self.problems])

    def x(self, rows: NDArray[np.bool_] | None = None) -> Tensor:
        """Inputs of these rows, of all good ones if None."""
        return self.encode(self.good if rows is None else rows)


def rows_of(path: str, told: Mapping[str, Any], written: Written) -> NewRows:
    """The rows of a file or a folder, for a run of these settings."""
    if told["encoder"] is not None:
        encoder = encoder_of(told)
        how = as_trained(path, encoder, written)
        frame = read(path, encoder, how)
        return NewRows(
            frame,
            encoder.problems(frame),
            lambda rows: encoder.encode(frame[rows]),
            lambda: read_text(path, how),  # as it is written there: 007 stays 007
        )
    from bayesdiv.app.data.pictures import new

    table, separator, (x, problems) = new(
        Path(path), told["data"].get("pictures"), told["shape"][-1], written
    )
    return NewRows(
        table, problems, lambda rows: x[torch.from_numpy(rows)], lambda: (table, separator)
    )
