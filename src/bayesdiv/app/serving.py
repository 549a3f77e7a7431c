"""Runs and estimators as files for other programs: what `bayesdiv.export` needs from each."""

from typing import Any

from bayesdiv.app.data.columns import Dates, Filled, Kind, Numeric
from bayesdiv.app.data.encoder import Encoder
from bayesdiv.app.task import Task
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression
from bayesdiv.serving.columns import Category, Column, Number
from bayesdiv.serving.graph import Units


def columns_of(encoder: Encoder) -> list[Column]:
    """The columns of a table as the graph encodes them: dates in days since 1970.

    Examples:
        >>> columns_of(Encoder((Numeric("age", 30.0, 10.0),), (1,)))
        [Number(name='age', loc=30.0, scale=10.0, unit='', fill=None)]
    """
    return [_column(column) for column in encoder.columns]


def _column(column: Kind) -> Column:
    if isinstance(column, Filled):
        bare, fill = column.of, column.fill
    else:
        bare, fill = column, None
    if isinstance(bare, Numeric):
        unit = "days since 1970" if isinstance(bare, Dates) else bare.unit
        return Number(bare.name, bare.loc, bare.scale, unit, None if fill is None else float(fill))
    place = None if fill is None else bare.categories.index(str(fill))
    return Category(bare.name, bare.categories, place)


def target_of(task: Task, name: str | None) -> dict[str, Any]:
    """What the file says about the target: its units, or its classes."""
    if isinstance(task, Classification):
        return {"classes": task.classes}
    assert isinstance(task, Regression)
    return {"units": Units(task.loc, task.scale, name or "")}
