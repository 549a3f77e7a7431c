"""A table with a target: checked, and not yet split."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bayesdiv.app.data.columns import MOST_CLASSES, Numeric, OneHot, check_text, kind_of, quoted
from bayesdiv.app.data.encoder import Encoder, check_columns, check_unique
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.task import Task
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FEWEST_ROWS = 10
MOST_CATEGORIES = 1000  # each takes a column of x


@dataclass(frozen=True, eq=False)
class Table:
    """Rows with a target, checked and not yet split.

    Args:
        name: of the data set or the file.
        frame: a pandas table, one row an example.
        target: the column to predict.
        task: what the target is.
        encoder: a known one, as for pixels; None learns it from the training rows.
        notes: sentences on what was decided on the user's behalf.

    Examples:
        >>> import pandas as pd
        >>> list(Table("two", pd.DataFrame({"x": [1], "y": [2]}), "y", Regression).features)
        ['x']
    """

    name: str
    frame: "DataFrame"
    target: str
    task: type[Task]
    encoder: Encoder | None = None
    notes: tuple[str, ...] = ()

    @property
    def features(self) -> "DataFrame":
        """All columns but the target."""
        return self.frame.drop(columns=self.target)


def checked(
    frame: "DataFrame",
    name: str,
    *,
    target: str | None = None,
    task: type[Task] | None = None,
    drop: Iterable[str] = (),
) -> Table:
    """A pandas table with target and task settled, and nothing in it that cannot be encoded.

    Args:
        frame: one row an example.
        name: what to call it in messages.
        target: the column to predict; None is the last one.
        task: None decides: floats, and whole numbers with more than 20 different values, are a
            regression; text, bools and other whole numbers are classes.
        drop: columns to leave out.

    Examples:
        >>> import pandas as pd
        >>> checked(pd.DataFrame({"x": range(12), "y": ["no", "yes"] * 6}), "rows").notes
        ("the target is the last column, 'y'",)
    """
    check_unique(frame.columns)
    if len(frame) < FEWEST_ROWS:
        raise DataError(f"{name} must have at least {FEWEST_ROWS} rows, got {len(frame)}")
    frame, notes = _without(frame, name, [_known(column, frame, name) for column in drop])
    if target is None:
        target = str(frame.columns[-1])
        notes += (f"the target is the last column, {target!r}",)
    target = _known(target, frame, name)
    check_columns(frame)
    for column in frame.columns:
        if column != target or task is not Classification:
            check_text(frame[column])
    found, why = (task, ()) if task else _decided(frame[target])
    found.check(frame[target])
    notes += why + _check_categories(frame.drop(columns=target))
    return Table(name, frame, target, found, notes=notes)


def _decided(target: "Series") -> tuple[type[Task], tuple[str, ...]]:
    """What a target is when nobody says, with a note where it could be taken either way."""
    if kind_of(target) is OneHot:
        return Classification, ()
    different = target.nunique()
    if target.dtype.kind == "f" or different > MOST_CLASSES:
        return Regression, ()
    return Classification, (
        f"target {target.name!r} has {different} different whole numbers, taken as classes; "
        "if it is a quantity, say so by --task regression, or in Python by task=Regression",
    )


def _without(frame: "DataFrame", name: str, drop: list[str]) -> tuple["DataFrame", tuple[str, ...]]:
    """A table without the columns to drop and those that its header has no name for."""
    nameless = [column for column in frame.columns if re.fullmatch(r"Unnamed: \d+", str(column))]
    kept = frame.drop(columns=list({*drop, *nameless}))
    if len(kept.columns) < 2:
        raise DataError(
            f"{name} must have a target and a column to predict it from, got "
            f"{quoted(kept.columns) or 'no column'}"
        )
    notes = (f"columns without a name left out: {len(nameless)}",) if nameless else ()
    return kept, notes


def _known(column: str, frame: "DataFrame", name: str) -> str:
    """The column, if the table has it."""
    if column in frame.columns:
        return column
    lower = {str(known).lower(): known for known in frame.columns}
    close = difflib.get_close_matches(column.lower(), lower, n=1)
    hint = f"; did you mean {lower[close[0]]!r}?" if close else ""
    raise DataError(f"{name} must have the column {column!r}, got {quoted(frame.columns)}{hint}")


def _check_categories(features: "DataFrame") -> tuple[str, ...]:
    """Notes on columns with many categories; with too many they are refused."""
    notes: tuple[str, ...] = ()
    for name in features.columns:
        if kind_of(features[name]) is Numeric:
            continue
        different = features[name].nunique()
        if different > min(MOST_CATEGORIES, len(features) / 2):
            raise DataError(
                f"column {name!r} must repeat its categories, at most {MOST_CATEGORIES} and half "
                f"the rows, got {different} in {len(features)} rows: drop it"
            )
        if different > MOST_CLASSES:
            notes += (f"column {name!r} holds text: each of its {different} values is a column",)
    return notes
