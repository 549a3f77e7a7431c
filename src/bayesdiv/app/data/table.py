"""A table with a target: checked, then split in three parts, encoded by its training rows."""

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdiv.app.data import columns
from bayesdiv.app.data.columns import Dates, Encoder, Numeric, OneHot, kind_of, quoted
from bayesdiv.app.data.splits import DataError, Part, Splits, ensure
from bayesdiv.app.task import Task
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FEWEST_ROWS = 10
MOST_CATEGORIES = 1000  # each takes a column of x
MOST_CLASSES = 20  # a target of whole numbers with more different values is a quantity
RARE = 0.2  # of the commonest value's rows: the rarest class of a target that is no quantity


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
    held: int = 0  # how many of the last rows are the test part
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
    apart: str | None = None,
    tested: "DataFrame | None" = None,
) -> Table:
    """A pandas table with target and task settled, and nothing in it that cannot be encoded.

    It is split at random if not `apart`: by time:COLUMN, the latest tested, or whole group:COLUMN.
    """
    kind, _, by = (apart or "").partition(":")
    rule = "split must be time:COLUMN or group:COLUMN"
    ensure(apart is None or (kind in ("time", "group") and by), f"{rule}, got {apart}")
    columns.check_unique(frame.columns)
    count = len(frame)
    ensure(count >= FEWEST_ROWS, f"{name} must have at least {FEWEST_ROWS} rows, got {count}")
    notes: list[str] = []
    dropped = [known_column(column, frame, name) for column in drop]
    other = "choose another --target or --drop"
    ensure(target not in dropped, f"the target {target!r} cannot be dropped: {other}")
    frame = _without(frame, name, dropped, [target, by], notes)
    if target is None:
        target = str(frame.columns[-1])
        notes.append(f"the target is the last column, {target!r}")
    target = known_column(target, frame, name)
    ensure(by != target, f"the target {target!r} cannot split the rows: choose another --split")
    held = 0 if tested is None else len(tested)
    frame = frame.reset_index(drop=True) if tested is None else _joined(frame, tested, name)
    there = frame[target].notna().to_numpy()
    rule = f"target {target!r} must have a value in at least {FEWEST_ROWS} rows"
    ensure(there.sum() >= FEWEST_ROWS, f"{rule}, got {there.sum()} of {len(there)}")
    frame, held, groups = frame[there], int(there[len(there) - held :].sum()), None
    rule = f"the file to test on must have a row with a value of the target {target!r}"
    ensure(held or tested is None, f"{rule}, got none")
    if by:
        groups = _groups(frame[known_column(by, frame, name)], kind)
        frame = frame.drop(columns=by)
        notes.append(f"column {by!r} splits the rows and is not an input")
    if not there.all():
        notes.append(f"rows left out, as their target {target!r} is missing: {(~there).sum()}")
    other = ": choose another --target"
    dates = isinstance(kind_of(frame[target], other), Dates)
    if task is not Classification:
        ensure(not dates, f"target {target!r} must hold numbers or classes, got dates", other)
        columns.check_text(frame[target], "correct or remove that row")
    found = task or _task_of(frame[target], notes)
    found.check(frame[target])
    frame = _filled(frame, target, notes) if impute else frame
    _check(frame, target, impute)
    if found is not Classification and isinstance(kind_of(frame[target]), Numeric):
        frame = frame.assign(**{target: columns.numbers_of(frame[target])})
    notes += _notes_on(frame.drop(columns=target))
    groups = _repeats(frame, held, groups if by else None, notes)
    return Table(name, frame, target, found, None, tuple(notes), groups, kind == "time", held)


def _check(frame: "DataFrame", target: str, gaps: bool) -> None:
    """Complain of values that cannot be encoded; gaps may be allowed."""
    if not gaps:
        columns.check_there(frame)
    for name, column in frame.items():
        if name != target:
            columns.check_text(column)
        infinite = isinstance(kind_of(column), Numeric) and np.isinf(columns.parsed(column)).any()
        rule = f"column {name!r} must hold finite numbers, got an infinite one"
        advice = "" if name == target else f", or leave the column out with --drop {name}"
        ensure(not infinite, rule, f": correct it{advice}")


def _joined(frame: "DataFrame", tested: "DataFrame", name: str) -> "DataFrame":
    """The rows of both files, those to test on last."""
    import pandas as pd

    absent = [column for column in frame.columns if column not in tested.columns]
    told = f"the column{'s' * (len(absent) > 1)} {quoted(absent)} of {name}: add what is missing"
    ensure(not absent, f"the file to test on lacks {told}")
    return pd.concat([frame, tested[list(frame.columns)]])


def _groups(column: "Series", by: str) -> NDArray[np.int64]:
    """Numbers of the groups of rows, or of their times, the latest first."""
    if by == "group":
        codes: NDArray[np.int64] = column.astype("category").cat.codes.to_numpy(dtype=np.int64)
        return np.where(codes < 0, codes.max() + 1 + np.arange(len(codes)), codes)
    kind = kind_of(column, ": choose another --split")
    if column.isna().any() or not isinstance(kind, Numeric):
        raise DataError(f"column {column.name!r} must hold a date or a number in every row")
    return np.unique(-kind.values(column), return_inverse=True)[1].astype(np.int64)


def _task_of(column: "Series", notes: list[str]) -> type[Task]:
    """The task of a target, with a note where it could be another."""
    # A column with missing values may have one of pandas' own types for whole numbers.
    whole = column.dtype.kind in "iu" or column.dtype.name.lstrip("U").startswith(("Int", "bool"))
    rows = column.value_counts()
    if isinstance(kind_of(column), OneHot):
        return Classification
    if not whole or len(rows) > MOST_CLASSES:
        return Regression
    seen = f"target {column.name!r} has {len(rows)} different whole numbers, taken as "
    if len(rows) >= 5 and rows.min() < RARE * rows.max():
        seen += "a quantity, since some are rare; if they are classes, give --task classification, "
        notes.append(f"{seen}if they count something, --task counts")
        return Regression
    seen += "classes; if it is a quantity, say so with --task regression, or in Python with "
    notes.append(f"{seen}task=Regression")
    return Classification


def _filled(frame: "DataFrame", target: str, notes: list[str]) -> "DataFrame":
    """The table with odd values among numbers missing; how many are to be filled is noted."""
    names, given = [name for name in frame.columns if name != target], frame
    frame = given.assign(**{name: columns.without_odd_ones(given[name]) for name in names})
    counts = {name: int(count) for name, count in frame[names].isna().sum().items() if count}
    listed = [", ".join(f"{count} in {name!r}" for name, count in counts.items())]
    for name in counts:
        odd = given[name][frame[name].isna() & given[name].notna()]
        if len(odd):
            said = "is not a number:" if len(odd) == 1 else "are not numbers, such as"
            where = f"{odd.iloc[0]!r} in row {odd.index[0] + 1}"
            listed.append(f"{len(odd)} in {name!r} {said} {where}")
    notes += [f"missing values are filled and marked: {'; '.join(listed)}"] if counts else []
    return frame


def _without(
    frame: "DataFrame", name: str, drop: list[str], spared: list[str | None], notes: list[str]
) -> "DataFrame":
    """A table without the columns to drop, those without a name and, if not spared, a value."""
    nameless = [column for column in frame.columns if re.fullmatch(r"Unnamed: \d+", str(column))]
    kept = frame.drop(columns=list({*drop, *nameless}))
    rule = f"{name} must have a target and a column to predict it from, got "
    way_out = ": if commas do not separate fields, give the --separator"
    way_out = ": drop fewer columns" if len(drop) and len(frame.columns) > 1 else way_out
    got = quoted(kept.columns) or "no column"
    ensure(len(kept.columns) > 1, rule + got, way_out)
    empty = [each for each in kept.columns if each not in spared and kept[each].isna().all()]
    notes += [f"columns without a name left out: {len(nameless)}"] if nameless else []
    notes += [f"columns without a value left out: {quoted(empty)}"] if empty else []
    return kept.drop(columns=empty)


def _repeats(
    frame: "DataFrame", held: int, given: NDArray[np.int64] | None, notes: list[str]
) -> NDArray[np.int64] | None:
    """The given groups, else those of equal rows, unless there are none or most have an equal."""
    numbered = frame.groupby(list(frame.columns), dropna=False, sort=False).ngroup()
    groups: NDArray[np.int64] = numbered.to_numpy()
    more = len(frame) - len(np.unique(groups))
    others, tested = np.split(groups, [len(groups) - held])
    shared, few = np.isin(tested, others).sum(), more <= len(frame) / 2
    kept = f"rows that repeat another: {more}, kept with it in one part"
    if shared:
        notes.append(f"rows to test on that are among the others too: {shared}")
    elif more and given is None:
        many = f"{more} of {len(frame)} rows repeat others: too many to be kept in one part"
        notes.append(kept if few else many)
    return groups if given is None and more and few else given


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
    different = features[[n for n, kind in kinds.items() if isinstance(kind, OneHot)]].nunique()
    odd = different.index[different > min(MOST_CATEGORIES, len(features) / 2)]
    if len(odd):
        rule = f"column {odd[0]!r} must repeat its categories, at most {MOST_CATEGORIES} and half "
        got = f"the rows, got {different[odd[0]]} in {len(features)} rows"
        raise DataError(rule + got, f": drop it with --drop {','.join(odd)}")
    for name, column in features.items():
        if different.get(name, 0) > MOST_CLASSES:
            yield f"column {name!r} holds text: each of its {different[name]} values is a column"
        if isinstance(kinds[name], Dates) and len(found := columns.format_of(column)) > 1:
            said = "if the day comes first, write them as year-month-day"
            yield f"column {name!r} holds dates, read as {found[0]}; {said}"
        if column.dtype.kind in "iu" and (np.diff(column.to_numpy()) == 1).all():
            said = f"if it says nothing, leave it out with --drop {name}"
            yield f"column {name!r} numbers the rows; {said}"


def split(table: Table, *, seed: int = 0, test: float = 0.2, validation: float = 0.2) -> Splits:
    """A table in three parts, encoded by what its training rows show; classes are stratified."""
    sizes = f"test={test} and validation={validation}"
    rule = "test must be above 0, validation at least 0 and their sum below 1"
    ensure(test > 0 and validation >= 0 and test + validation < 1, f"{rule}, got {sizes}")
    features, targets = table.features, table.frame[table.target]
    free, held = np.split(np.arange(len(targets)), [len(targets) - table.held])
    order, counts, fewest = _order(table, free, seed)
    shares = (0.0 if table.held else test, validation)
    wanted = [max(1, round(len(free) * share)) if share else 0 for share in shares]
    # Whole groups: a part ends with the group that its last row is in.
    ends = np.concatenate([[0], np.cumsum(counts)])
    tested, *others = np.split(order, ends[np.searchsorted(ends, np.cumsum(wanted))])
    rule = f"the training part must have at least {fewest} of {len(order)} rows"
    ensure(len(others[1]) >= fewest, f"{rule}, got {len(others[1])} with {sizes}")
    drawn = [others[1], others[0], held if table.held else tested]
    rows, notes = _encodable(features, drawn, table.timed or table.held > 0)
    encoder = table.encoder or Encoder.fit(features.iloc[rows[0]])
    constant = [name for name in features.columns if name not in encoder.names]
    if constant:
        notes += (f"left out, as constant in the training rows: {quoted(constant)}",)
    how: Any = () if table.likelihood is None else (table.likelihood,)  # of a regression alone
    task = table.task.fit(targets.iloc[rows[0]], *how)
    parts = [Part(encoder.encode(features.iloc[k]), task.encode(targets.iloc[k])) for k in rows]
    places = tuple(int(row) + 1 for row in table.frame.index[rows[2]])
    about = (table.name, table.target, table.notes + notes, places, (), table.frame)
    return Splits(parts[0], parts[1], parts[2], task, encoder, *about)


def _order(
    table: Table, free: NDArray[np.int64], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """The rows that may be drawn, group after group, the groups' sizes, the fewest to train on."""
    import pandas as pd

    alike = np.arange(len(free)) if table.groups is None else table.groups[free]
    found = np.unique(alike, return_index=True, return_inverse=True, return_counts=True)
    _, first, member, counts = found
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


Rows = list[NDArray[np.int64]]  # of the training, the validation and the test part


def _encodable(features: "DataFrame", rows: Rows, fixed: bool) -> tuple[Rows, tuple[str, ...]]:
    """The parts after rows with their own category have joined training, or left fixed parts."""
    known = np.ones(len(features), dtype=bool)
    for _, column in features.items():
        trained = column.iloc[rows[0]]
        if not trained.isna().any():
            known &= column.notna().to_numpy()
        if isinstance(kind_of(trained.dropna()), OneHot):
            known &= (column.isin(trained) | column.isna()).to_numpy(dtype=bool)
    if known.all():
        return rows, ()
    moved = np.flatnonzero(~known)
    validation, test = (part[known[part]] for part in rows[1:])
    rule = "validation and test must have rows whose categories training rows have, got "
    got = f"{len(validation)} and {len(test)} such rows"
    advice = ": drop columns with many rare values with --drop"
    ensure(len(test) and (len(validation) or not len(rows[1])), rule + got, advice)
    trained, note = rows[0], "rows left out, as no training row has their category or gap"
    if not fixed:
        trained = np.concatenate([trained, moved])
        note = "rows moved to the training part, as only they have some category"
    return [trained, validation, test], (f"{note}: {len(moved)}",)


def add_noise(splits: Splits, scale: float, seed: int = 0) -> Splits:
    """Gaussian noise of this scale on the encoded x of all three parts, drawn once.

    Examples:
        >>> from bayesdiv.app.data.loading import load
        >>> clean = load("digits")
        >>> (add_noise(clean, scale=0.5).train.x - clean.train.x).std()
        tensor(0.4995)
    """
    rule = "noise must be a finite standard deviation of at least 0"
    ensure(0 <= scale < math.inf, f"{rule}, got {scale}")
    if scale == 0:
        return splits
    own = torch.Generator().manual_seed(seed)
    return splits.mapped(lambda p: Part(p.x + scale * torch.randn(p.x.shape, generator=own), p.y))
