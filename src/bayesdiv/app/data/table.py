"""A table with a target: checked, then split in three parts, encoded by its training rows."""

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdiv.app.data import columns
from bayesdiv.app.data.columns import Dates, Encoder, Numeric, OneHot, kind_of, quoted
from bayesdiv.app.data.splits import DataError, Part, Splits
from bayesdiv.app.data.values import format_of, parsed
from bayesdiv.app.task import Task
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FEWEST_ROWS = 10
MOST_CATEGORIES = 1000  # each takes a column of x
MOST_CLASSES = 20  # a target of whole numbers with more different values is a quantity
RARE = 0.2  # of the commonest value's rows: the rarest class of a target that is no quantity


@dataclass(frozen=True)
class Apart:
    """How rows are split if not at random: by `time`, the latest tested, or whole `group`s."""

    kind: str  # time or group
    column: str  # with the times or the groups; it is not an input

    @classmethod
    def parse(cls, text: str) -> "Apart":
        """From the words of the command line."""
        kind, _, column = text.partition(":")
        if kind not in ("time", "group") or not column:
            raise ValueError(f"split must be time:COLUMN or group:COLUMN, got {text}")
        return cls(kind, column)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows with a target, checked and not yet split."""

    name: str
    frame: "DataFrame"  # its index counts the rows of the file
    target: str
    task: type[Task]
    encoder: Encoder | None = None  # a known one; None learns it from the training rows
    notes: tuple[str, ...] = ()  # on what was decided on the user's behalf
    groups: NDArray[np.int64] | None = None  # rows of the same number stay in one part
    timed: bool = False  # whether they are in order: the first are tested, the next validated
    held: NDArray[np.bool_] | None = None  # which rows are the test part
    likelihood: str | None = None  # the word of one other than the task's usual

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
    impute: bool = False,
    apart: Apart | None = None,
    tested: "DataFrame | None" = None,
) -> Table:
    """A pandas table with target and task settled, and nothing in it that cannot be encoded.

    The target is the last column if None. A task that is None is decided: floats and whole numbers
    with more than 20 different values or with rare ones are a regression; text, bools and other
    whole numbers are classes. `tested` are rows of another file, to test on.
    """
    columns.check_unique(frame.columns)
    if len(frame) < FEWEST_ROWS:
        raise DataError(f"{name} must have at least {FEWEST_ROWS} rows, got {len(frame)}")
    dropped = [known_column(column, frame, name) for column in drop]
    if target in dropped:
        raise DataError(
            f"the target {target!r} cannot be dropped: choose another --target or --drop"
        )
    frame, notes = _without(frame, name, dropped, [target, apart.column if apart else None])
    if target is None:
        target = str(frame.columns[-1])
        notes += (f"the target is the last column, {target!r}",)
    target = known_column(target, frame, name)
    frame, held = _joined(frame, tested, name)
    there = frame[target].notna().to_numpy()
    if there.sum() < FEWEST_ROWS:
        raise DataError(
            f"target {target!r} must have a value in at least {FEWEST_ROWS} rows, got "
            f"{there.sum()} of {len(frame)}"
        )
    frame, held = frame[there], None if held is None else held[there]
    groups = None
    if apart is not None:
        groups = _groups(frame, apart, name)
        frame = frame.drop(columns=apart.column)
        notes += (f"column {apart.column!r} splits the rows and is not an input",)
    if not there.all():
        notes += (f"rows left out, as their target {target!r} is missing: {(~there).sum()}",)
    found, why = _settled(frame[target], task)
    found.check(frame[target])
    frame, filled = _filled(frame, target) if impute else (frame, ())
    _check(frame, target, impute)
    if found is not Classification and kind_of(frame[target]) is Numeric:
        frame = frame.assign(**{target: columns.numbers_of(frame[target])})
    notes += (*why, *filled, *_notes_on(frame.drop(columns=target)))
    timed = apart is not None and apart.kind == "time"
    table = Table(name, frame, target, found, None, notes, groups, timed, held)
    return table if apart is not None else _with_repeats(table)


def _check(frame: "DataFrame", target: str, gaps: bool) -> None:
    """Complain of values that cannot be encoded; gaps may be allowed."""
    if not gaps:
        columns.check_there(frame)
    for name, column in frame.items():
        if name != target:
            columns.check_text(column)
        if kind_of(column) is Numeric and np.isinf(parsed(column)).any():
            raise DataError(
                f"column {name!r} must hold finite numbers, got an infinite one: correct it, or "
                f"leave the column out with --drop {name}"
            )


def _joined(
    frame: "DataFrame", tested: "DataFrame | None", name: str
) -> tuple["DataFrame", NDArray[np.bool_] | None]:
    """The rows of both files, and which are those of the second."""
    import pandas as pd

    if tested is None:
        return frame.reset_index(drop=True), None
    absent = [column for column in frame.columns if column not in tested.columns]
    if absent:
        raise DataError(
            f"the file to test on must have the columns of {name}, got none named {quoted(absent)}"
        )
    held = np.arange(len(frame) + len(tested)) >= len(frame)
    return pd.concat([frame, tested[list(frame.columns)]]), held


def _groups(frame: "DataFrame", apart: Apart, name: str) -> NDArray[np.int64]:
    """Numbers of the groups of rows, or of their times, the latest first."""
    column = frame[known_column(apart.column, frame, name)]
    if apart.kind == "group":
        codes = column.astype("category").cat.codes.to_numpy(dtype=np.int64)
        return np.where(codes < 0, codes.max() + 1 + np.arange(len(codes)), codes)
    kind = kind_of(column)
    if column.isna().any() or kind is OneHot:
        raise DataError(f"column {apart.column!r} must hold a date or a number in every row")
    times = kind.fit(column)
    if not isinstance(times, Numeric):
        raise DataError(f"column {apart.column!r} must vary to split rows by time")
    return np.unique(-times.values(column), return_inverse=True)[1]


def _settled(column: "Series", task: type[Task] | None) -> tuple[type[Task], tuple[str, ...]]:
    """The task, and a note if it was not given and could be another."""
    if task is not Classification and kind_of(column) is Dates:
        raise DataError(
            f"target {column.name!r} must hold numbers or classes, got dates: choose another "
            "--target"
        )
    if task is not Classification:
        columns.check_text(column, "correct or remove that row")
    if task is not None or kind_of(column) is OneHot:
        return task or Classification, ()
    # A column with missing values may have one of pandas' own types for whole numbers.
    whole = column.dtype.kind in "iu" or column.dtype.name.lstrip("U").startswith(("Int", "bool"))
    rows = column.value_counts()
    if not whole or len(rows) > MOST_CLASSES:
        return Regression, ()
    seen = f"target {column.name!r} has {len(rows)} different whole numbers, taken as "
    if len(rows) >= 5 and rows.min() < RARE * rows.max():
        return Regression, (
            f"{seen}a quantity, since some are rare; if they are classes, give --task "
            "classification, if they count something, --task counts",
        )
    return Classification, (
        f"{seen}classes; if it is a quantity, say so with --task regression, or in Python with "
        "task=Regression",
    )


def _filled(frame: "DataFrame", target: str) -> tuple["DataFrame", tuple[str, ...]]:
    """The table with odd values among numbers missing, and how many are to be filled."""
    names, given = [name for name in frame.columns if name != target], frame
    frame = given.assign(**{name: columns.without_odd_ones(given[name]) for name in names})
    counts = {name: int(count) for name, count in frame[names].isna().sum().items() if count}
    listed = [", ".join(f"{count} in {name!r}" for name, count in counts.items())]
    for name in names:
        odd = given[name][frame[name].isna() & given[name].notna()]
        if len(odd):
            said = "is not a number:" if len(odd) == 1 else "are not numbers, such as"
            where = f"{odd.iloc[0]!r} in row {odd.index[0] + 1}"
            listed.append(f"{len(odd)} in {name!r} {said} {where}")
    return frame, (f"missing values are filled and marked: {'; '.join(listed)}",) if counts else ()


def _without(
    frame: "DataFrame", name: str, drop: list[str], spared: Iterable[str | None]
) -> tuple["DataFrame", tuple[str, ...]]:
    """A table without the columns to drop, those without a name and, if not spared, a value."""
    nameless = [column for column in frame.columns if re.fullmatch(r"Unnamed: \d+", str(column))]
    kept = frame.drop(columns=list({*drop, *nameless}))
    if len(kept.columns) < 2:
        raise DataError(
            f"{name} must have a target and a column to predict it from, got "
            f"{quoted(kept.columns) or 'no column'}: if commas do not separate fields, give the "
            "--separator"
        )
    empty = [each for each in kept.columns if each not in spared and kept[each].isna().all()]
    notes = [f"columns without a name left out: {len(nameless)}"] if nameless else []
    notes += [f"columns without a value left out: {quoted(empty)}"] if empty else []
    return kept.drop(columns=empty), tuple(notes)


def _with_repeats(table: Table) -> Table:
    """The table with equal rows in one group, unless most rows have an equal."""
    frame = table.frame
    groups = frame.groupby(list(frame.columns), dropna=False, sort=False).ngroup().to_numpy()
    more = len(frame) - len(np.unique(groups))
    if not more:
        return table
    if more > len(frame) / 2:
        note = f"{more} of {len(frame)} rows repeat others: too many to be kept in one part"
        return replace(table, notes=(*table.notes, note))
    note = f"rows that repeat another: {more}, kept with it in one part"
    if table.held is not None:
        shared = np.isin(groups[table.held], groups[~table.held]).sum()
        note = f"rows to test on that are among the others too: {shared}" if shared else note
    return replace(table, groups=groups, notes=(*table.notes, note))


def known_column(column: str, frame: "DataFrame", name: str) -> str:
    """The column, if the table has it."""
    if column in frame.columns:
        return column
    lower = {str(known).lower(): known for known in frame.columns}
    close = difflib.get_close_matches(column.lower(), lower, n=1)
    hint = f"; did you mean {lower[close[0]]!r}?" if close else ""
    raise DataError(f"{name} must have the column {column!r}, got {quoted(frame.columns)}{hint}")


def _notes_on(features: "DataFrame") -> Iterator[str]:
    """Notes on columns that may be misread; text with too many categories is refused."""
    kinds = {name: kind_of(features[name].dropna()) for name in features.columns}
    different = {name: features[name].nunique() for name, k in kinds.items() if k is OneHot}
    most = min(MOST_CATEGORIES, len(features) / 2)
    odd = [name for name, count in different.items() if count > most]
    if odd:
        raise DataError(
            f"column {odd[0]!r} must repeat its categories, at most {MOST_CATEGORIES} and half "
            f"the rows, got {different[odd[0]]} in {len(features)} rows: drop it with --drop "
            f"{','.join(odd)}"
        )
    for name, column in features.items():
        if different.get(name, 0) > MOST_CLASSES:
            yield f"column {name!r} holds text: each of its {different[name]} values is a column"
        if kinds[name] is Dates and len(found := format_of(column)) > 1:
            said = "if the day comes first, write them as year-month-day"
            yield f"column {name!r} holds dates, read as {found[0]}; {said}"
        if column.dtype.kind in "iu" and (np.diff(column.to_numpy()) == 1).all():
            said = f"if it says nothing, leave it out with --drop {name}"
            yield f"column {name!r} numbers the rows; {said}"


def split(table: Table, *, seed: int = 0, test: float = 0.2, validation: float = 0.2) -> Splits:
    """A table in three parts, encoded by what its training rows show.

    Rows are drawn at random; for classes each part gets its share of each (stratified) and the
    training part at least one row of each. Rows of the other parts that alone have some category
    or lack some value join the training part, since they could not be encoded. A table that has
    groups, times or rows to test on is split by them; such rows are then left out.
    """
    features, targets = table.features, table.frame[table.target]
    drawn = _drawn(table, seed, test, validation)
    rows, notes = _encodable(features, drawn, table.timed or table.held is not None)
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

    alike = np.arange(len(free)) if table.groups is None else table.groups[free]
    _, first, member, counts = np.unique(
        alike, return_index=True, return_inverse=True, return_counts=True
    )
    order, fewest = np.arange(len(first)), 2
    if not table.timed:
        order = torch.randperm(len(first), generator=torch.Generator().manual_seed(seed)).numpy()
        strata = table.task.strata(table.frame[table.target])
        if strata is not None:  # any stretch has its share of each class, the end one of each
            drawn = pd.Series(strata[free][first][order])
            shares = drawn.groupby(drawn).rank(method="first", pct=True)
            order, fewest = order[np.argsort(shares, kind="stable")], len(np.unique(strata))
    place = np.argsort(order)  # of each group
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
