"""A table in three parts: drawn at random, encoded by what the training rows show."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdiv.app.data.columns import OneHot, kind_of, quoted
from bayesdiv.app.data.encoder import Encoder
from bayesdiv.app.data.splits import DataError, Part, Splits
from bayesdiv.app.data.table import Table
from bayesdiv.app.quantity import Quantity
from bayesdiv.app.task import Task

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def split(table: Table, *, seed: int = 0, test: float = 0.2, validation: float = 0.2) -> Splits:
    """A table in three parts, encoded by what its training rows show.

    Rows are drawn at random; for classes each part gets its share of each (stratified) and the
    training part at least one row of each. Rows of the other parts that alone have some category
    or lack some value join the training part, since they could not be encoded. A table that has
    groups, times or rows to test on is parted by them, see `table.Table`; such rows are then left
    out.

    Args:
        table: what to split.
        seed: of the draw.
        test: share of the rows, above 0.
        validation: share of the rows; 0 leaves that part empty.

    Examples:
        >>> from bayesdiv.app.data.embedded import digits
        >>> split(digits(), seed=1).train.x.shape
        torch.Size([1079, 1, 8, 8])
    """
    features, targets = table.features, table.frame[table.target]
    drawn = _drawn(table, seed, test, validation)
    fixed = table.times is not None or table.held is not None
    rows, notes = _encodable(features, drawn, fixed)
    encoder = table.encoder or Encoder.fit(features.iloc[rows.train])
    constant = [name for name in features.columns if name not in encoder.names]
    if constant:
        notes += (f"left out, as constant in the training rows: {quoted(constant)}",)
    task = _fitted(table, targets.iloc[rows.train])
    train, validated, tested = (
        Part(encoder.encode(features.iloc[at]), task.encode(targets.iloc[at])) for at in rows
    )
    return Splits(
        train,
        validated,
        tested,
        task,
        encoder,
        table.name,
        table.target,
        table.notes + notes,
        tuple(int(row) + 1 for row in table.frame.index[rows.test]),
    )


def _fitted(table: Table, target: "Series") -> Task:
    """The task of a table, learned from training targets, under its likelihood."""
    if table.likelihood is None:
        return table.task.fit(target)
    assert issubclass(table.task, Quantity)
    return table.task.fit(target, table.likelihood)


class _Rows(NamedTuple):
    """Which rows are in which part."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def _drawn(table: Table, seed: int, test: float, validation: float) -> _Rows:
    """Rows at random in three parts."""
    if not (test > 0 and validation >= 0 and test + validation < 1):
        raise DataError(
            "test must be above 0, validation at least 0 and their sum below 1, got "
            f"test={test} and validation={validation}"
        )
    free = np.flatnonzero(~table.held) if table.held is not None else np.arange(len(table.frame))
    order, counts, fewest = _order(table, free, seed)
    shares = (0.0 if table.held is not None else test, validation)
    sizes = [max(1, round(len(free) * share)) if share else 0 for share in shares]
    # Whole groups: a part ends with the group that its last row is in.
    ends = np.concatenate([[0], np.cumsum(counts)])
    cuts = ends[np.searchsorted(ends, np.cumsum(sizes))]
    tested, validated, trained = np.split(order, cuts)
    if len(trained) < fewest:
        raise DataError(
            f"the training part must have at least {fewest} of {len(order)} rows, got "
            f"{len(trained)} with test={test} and validation={validation}"
        )
    held = tested if table.held is None else np.flatnonzero(table.held)
    return _Rows(trained, validated, held)


def _order(
    table: Table, free: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """The rows that may be drawn, group after group, the groups' sizes, the fewest to train on."""
    alike: NDArray[Any] = np.arange(len(free)) if table.groups is None else table.groups[free]
    if table.times is not None:
        alike = -table.times[free]  # the latest first, rows of one time together
    _, first, member, counts = np.unique(
        alike, return_index=True, return_inverse=True, return_counts=True
    )
    if table.times is not None:
        return free[np.argsort(member, kind="stable")], counts, 2
    generator = torch.Generator().manual_seed(seed)
    order: NDArray[np.int64] = torch.randperm(len(first), generator=generator).numpy()
    fewest, strata = 2, table.task.strata(table.frame[table.target])
    if strata is not None:
        order, fewest = _interleaved(order, strata[free][first]), len(np.unique(strata))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return free[np.argsort(place[member], kind="stable")], counts[order], fewest


def _interleaved(order: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows so ordered that any stretch has its share of each class, the end one of each."""
    codes = codes[order]
    place = np.empty(len(codes))
    for code, size in zip(*np.unique(codes, return_counts=True), strict=True):
        place[codes == code] = np.arange(1, size + 1) / size
    return order[np.argsort(place, kind="stable")]


def _encodable(features: "DataFrame", rows: _Rows, fixed: bool) -> tuple[_Rows, tuple[str, ...]]:
    """The parts after rows with a category of their own have joined the training part.

    Where the parts are fixed, such rows are left out.
    """
    known = np.ones(len(features), dtype=bool)
    for name in features.columns:
        column, trained = features[name], features[name].iloc[rows.train]
        if not trained.isna().any():
            known &= column.notna().to_numpy()
        if kind_of(trained.dropna()) is OneHot:
            known &= (column.isin(trained) | column.isna()).to_numpy(dtype=bool)
    if known.all():
        return rows, ()
    moved = np.flatnonzero(~known)
    validation, test = (part[known[part]] for part in rows[1:])
    if not (len(test) and (len(validation) or not len(rows.validation))):
        raise DataError(
            "validation and test must have rows whose categories training rows have, got "
            f"{len(validation)} and {len(test)} such rows: drop columns with many rare "
            "values by --drop"
        )
    if fixed:
        note = f"rows left out, as no training row has their category or gap: {len(moved)}"
        return _Rows(rows.train, validation, test), (note,)
    note = f"rows moved to the training part, as only they have some category: {len(moved)}"
    return _Rows(np.concatenate([rows.train, moved]), validation, test), (note,)
