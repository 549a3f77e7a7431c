"""Runs and estimators as files for other programs: what `bayesdiv.export` needs from each."""

from typing import Any

from bayesdiv.app.data.columns import Dates, Kind, Numeric
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
    if isinstance(column, Numeric):
        unit = "days since 1970" if isinstance(column, Dates) else column.unit
        return Number(column.name, column.loc, column.scale, unit, column.fill)
    place = None if column.fill is None else column.categories.index(column.fill)
    return Category(column.name, column.categories, place)


def target_of(task: Task, name: str | None) -> dict[str, Any]:
    """What the file says about the target: its units, or its classes."""
    if isinstance(task, Classification):
        return {"classes": task.classes}
    assert isinstance(task, Regression)
    return {"units": Units(task.loc, task.scale, name or "")}
