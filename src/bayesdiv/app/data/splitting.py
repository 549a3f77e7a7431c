"""A table in three parts, encoded by what the training rows show, with noise if asked for."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdiv.app.data.columns import OneHot, kind_of, quoted
from bayesdiv.app.data.encoder import Encoder
from bayesdiv.app.data.splits import DataError, Part, Splits
from bayesdiv.app.data.table import Table

if TYPE_CHECKING:
    from pandas import DataFrame


def split(table: Table, *, seed: int = 0, test: float = 0.2, validation: float = 0.2) -> Splits:
    """A table in three parts, encoded by what its training rows show.

    Rows are drawn at random; for classes each part gets its share of each (stratified) and the
    training part at least one row of each. Rows of the other parts that alone have some category
    or lack some value join the training part, since they could not be encoded. A table that has
    groups, times or rows to test on is split by them, see `table.Table`; such rows are then left
    out.
    """
    features, targets = table.features, table.frame[table.target]
    drawn = _drawn(table, seed, test, validation)
    fixed = table.times is not None or table.held is not None
    rows, notes = _encodable(features, drawn, fixed)
    encoder = table.encoder or Encoder.fit(features.iloc[rows.train])
    constant = [name for name in features.columns if name not in encoder.names]
    if constant:
        notes += (f"left out, as constant in the training rows: {quoted(constant)}",)
    how: Any = () if table.likelihood is None else (table.likelihood,)  # of a regression alone
    task = table.task.fit(targets.iloc[rows.train], *how)
    parts = [Part(encoder.encode(features.iloc[k]), task.encode(targets.iloc[k])) for k in rows]
    places = tuple(int(row) + 1 for row in table.frame.index[rows.test])
    about = (table.name, table.target, table.notes + notes, places)
    return Splits(parts[0], parts[1], parts[2], task, encoder, *about)


class _Rows(NamedTuple):
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def _drawn(table: Table, seed: int, test: float, validation: float) -> _Rows:
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
    import pandas as pd

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
    if strata is not None:  # any stretch has its share of each class, the end one of each
        drawn = pd.Series(strata[free][first][order])
        shares = drawn.groupby(drawn).rank(method="first", pct=True)
        order, fewest = order[np.argsort(shares, kind="stable")], len(np.unique(strata))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return free[np.argsort(place[member], kind="stable")], counts[order], fewest


def _encodable(features: "DataFrame", rows: _Rows, fixed: bool) -> tuple[_Rows, tuple[str, ...]]:
    """The parts after rows with their own category have joined training, or left fixed parts."""
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
            "values with --drop"
        )
    note = "rows left out, as no training row has their category or gap"
    if not fixed:
        note = "rows moved to the training part, as only they have some category"
    train = rows.train if fixed else np.concatenate([rows.train, moved])
    return _Rows(train, validation, test), (f"{note}: {len(moved)}",)


def add_noise(splits: Splits, scale: float, seed: int = 0) -> Splits:
    """Gaussian noise of one standard deviation on x of all three parts, drawn once.

    It is added after scaling, so that `scale` counts in standard deviations of a numeric column
    (in grey levels from 0 to 1 for images); columns of categories get it as well.

    Examples:
        >>> from bayesdiv.app.data.loading import load
        >>> clean = load("digits")
        >>> noisy = add_noise(clean, scale=0.5)
        >>> (noisy.train.x - clean.train.x).std()
        tensor(0.4995)
    """
    if not 0 <= scale < math.inf:
        raise DataError(f"noise must be a finite standard deviation of at least 0, got {scale}")
    if scale == 0:
        return splits
    own = torch.Generator().manual_seed(seed)
    return splits.mapped(
        lambda part: Part(part.x + scale * torch.randn(part.x.shape, generator=own), part.y)
    )
