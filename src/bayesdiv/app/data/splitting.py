"""A table in three parts: drawn at random, encoded by what the training rows show."""

from typing import TYPE_CHECKING, NamedTuple

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
    join the training part, since they could not be encoded.

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
    rows, notes = _encodable(features, _drawn(table, seed, test, validation))
    encoder = table.encoder or Encoder.fit(features.iloc[rows.train])
    constant = [name for name in features.columns if name not in encoder.names]
    if constant:
        notes += (f"left out, as constant in the training rows: {quoted(constant)}",)
    task = table.task.fit(targets.iloc[rows.train])
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
        tuple((rows.test + 1).tolist()),
    )


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
    generator = torch.Generator().manual_seed(seed)
    order: NDArray[np.int64] = torch.randperm(len(table.frame), generator=generator).numpy()
    fewest, strata = 2, table.task.strata(table.frame[table.target])
    if strata is not None:
        order, fewest = _interleaved(order, strata), len(np.unique(strata))
    shares = (test, validation)
    sizes = [max(1, round(len(order) * share)) if share else 0 for share in shares]
    tested, validated, trained = np.split(order, np.cumsum(sizes))
    if len(trained) < fewest:
        raise DataError(
            f"the training part must have at least {fewest} of {len(order)} rows, got "
            f"{len(trained)} with test={test} and validation={validation}"
        )
    return _Rows(trained, validated, tested)


def _interleaved(order: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows so ordered that any stretch has its share of each class, the end one of each."""
    codes = codes[order]
    place = np.empty(len(codes))
    for code, size in zip(*np.unique(codes, return_counts=True), strict=True):
        place[codes == code] = np.arange(1, size + 1) / size
    return order[np.argsort(place, kind="stable")]


def _encodable(features: "DataFrame", rows: _Rows) -> tuple[_Rows, tuple[str, ...]]:
    """The parts after rows with a category of their own have joined the training part."""
    known = np.ones(len(features), dtype=bool)
    for name in features.columns:
        if kind_of(features[name]) is OneHot:
            seen = features[name].isin(features[name].iloc[rows.train])
            known &= seen.to_numpy(dtype=bool)
    if known.all():
        return rows, ()
    moved = np.flatnonzero(~known)
    validation, test = (part[known[part]] for part in rows[1:])
    if not (len(test) and (len(validation) or not len(rows.validation))):
        raise DataError(
            "validation and test must have rows whose categories training rows have, got "
            f"{len(validation)} and {len(test)} such rows: drop columns with many rare values"
        )
    note = f"rows moved to the training part, as only they have some category: {len(moved)}"
    return _Rows(np.concatenate([rows.train, moved]), validation, test), (note,)
