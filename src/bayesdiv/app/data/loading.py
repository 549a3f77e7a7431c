"""A known data set or a file by its name, ready to train on."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from bayesdiv.app.data.columns import Encoder, Numeric, numbers_of
from bayesdiv.app.data.files import KNOWN, Written, table_of
from bayesdiv.app.data.images import Images, folder, of_table
from bayesdiv.app.data.splits import DataError, Splits, ensure
from bayesdiv.app.data.table import Table, add_noise, checked, known_column, split
from bayesdiv.app.families import check_targets
from bayesdiv.app.task import Task, named
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression

# Sets by the file with a function of their name; the others are records in .toml files, see `uci`.
FUNCTIONS = {
    **dict.fromkeys(("breast_cancer", "diabetes", "digits"), __name__),
    **dict.fromkeys(("cifar10", "cifar100"), "bayesdiv.app.data.cifar"),
}


def datasets() -> list[str]:
    """The names of all known sets."""
    from bayesdiv.app.data import uci

    return sorted([*FUNCTIONS, *uci.SETS])


def load(name_or_path: str | Path, *, seed: int = 0, noise: float = 0.0, **reading: Any) -> Splits:
    """A known data set or a table from a file, ready to train on.

    Args:
        name_or_path: a name in `datasets()`, or a file such as .csv, .xlsx or .parquet.
        seed: of the split and the noise.
        noise: standard deviation of the Gaussian noise on x, see `add_noise`.
        **reading: for a file, what `opened` takes: its target, columns to drop and more.

    Examples:
        >>> load("breast_cancer").task
        Classification(classes=('benign', 'malignant'))
    """
    return parted(opened(name_or_path, **reading), seed=seed, noise=noise)


def opened(
    name_or_path: str | Path,
    *,
    target: str | None = None,
    task: type[Task] | None = None,
    drop: Iterable[str] = (),
    impute: bool = False,
    written: Written | None = None,
    tested_on: str | Path | None = None,
    apart: str | None = None,
    likelihood: str | None = None,
    pictures: str | None = None,
    size: int | None = None,
    skip_broken: bool = False,
) -> Table | Images:
    """The data of `load`, read once and checked, to be `parted` by any number of seeds.

    Of a file, `target` is the column to predict, the last if None; `task` says what it is, and None
    decides; `drop` has columns to leave out, `impute` fills gaps, `apart` splits by time or group,
    and `tested_on` is a file with the rows of the test part. A likelihood is a word of
    `bayesdiv.app.families`; None is the usual one. A folder holds one folder of pictures per class;
    `pictures` is the column of a table that holds their paths. They are scaled to `size` pixels,
    and broken ones are left out by `skip_broken`.

    Examples:
        >>> source = opened("diabetes")
        >>> [len(parted(source, seed=seed).test.y) for seed in range(2)]
        [88, 88]
    """
    path, drop = Path(name_or_path), tuple(drop)
    seen: Any = {"size": size, "skip_broken": skip_broken}
    given: Any = {"target": target, "task": task, "drop": drop, "test": tested_on, "split": apart}
    given |= {"likelihood": likelihood, "pictures": pictures, "impute": impute}
    how: Any = {} if written is None else asdict(written)
    how["categories"] = how.pop("texts", ())
    if path.is_dir():
        _left_out(f"{path.name!r} is a folder of pictures", given | how)
        return folder(path, **seen)
    if not (path.suffix or path.exists()):
        known = _known(str(name_or_path))
        own = (known.task, known.target) if isinstance(known, Table) else ()
        _left_out(f"{known.name!r} is a ready-made data set", given | how | seen, likelihood, *own)
        return under(known, likelihood)
    excel = written is None or written.sheet is None or path.suffix.lower() == ".xlsx"
    ensure(excel, f"sheet is for an Excel file (.xlsx), got {path.name}: leave it out")
    found = table_of(path, written=written)
    there = found.frame.columns
    if pictures is not None:
        _left_out(f"{path.name!r} is a table of pictures", given, target, pictures)
        return of_table(found.frame, pictures, target or there[-1], path, **seen)
    _left_out(f"{path.name!r} is a table without --pictures", seen)
    # Some columns to drop may be named together: a,b.
    parts = ([name] if name in there else name.split(",") for name in drop)
    drop = tuple(name.strip() for part in parts for name in part if name.strip())
    for name in written.texts if written else ():
        known_column(name, found.frame, path.name)
    tested = None if tested_on is None else table_of(tested_on, written=written).frame
    how = {"impute": impute, "apart": apart, "tested": tested}
    table = checked(found.frame, path.name, target=target, task=task, drop=drop, **how)
    return under(replace(table, notes=found.notes + table.notes), likelihood)


def _left_out(source: str, options: Mapping[str, object], *fine: object) -> None:
    """Complain of options that some data do not have, but for values that are fine."""
    wrong = [f"--{option}" for option, value in options.items() if value and value not in fine]
    which = ": leave it out" if len(wrong) == 1 else ": leave them out"
    ensure(not wrong, f"{source}, which takes no {' and no '.join(wrong)}", which)


def under(source: Table | Images, likelihood: str | None) -> Table | Images:
    """The same data under a likelihood that its targets allow; "auto" is settled later."""
    if likelihood is None or likelihood == "auto":
        return source
    if not (isinstance(source, Table) and issubclass(source.task, Regression)):
        said = f"likelihood is for targets that are numbers, got {likelihood} for the classes of "
        own = isinstance(source, Table) and not source.encoder  # a ready-made set keeps its task
        numeric = own and cast(Table, source).frame[source.target].dtype.kind in "iuf"
        more = ", or add --task regression" if numeric else ""
        raise DataError(f"{said}{source.name!r}", f": leave it out{more}")
    check_targets(likelihood, numbers_of(source.frame[source.target]))
    return replace(source, likelihood=likelihood)


def reading_of(source: Mapping[str, Any]) -> dict[str, Any]:
    """What `opened` takes besides a name, from the options of the command line or of a run."""
    headers = {None: None, "yes": True, "no": False}
    if source.get("header") not in headers:
        raise ValueError(f"header must be yes or no, got {source['header']}")
    plain = {name: source.get(name) for name in ("separator", "decimal", "encoding", "sheet")}
    texts = tuple(filter(None, (source.get("categories") or "").split(",")))
    task, size = source.get("task"), source.get("size")
    if size is not None and not (str(size).isdecimal() and 8 <= int(size) <= 1024):
        raise ValueError(f"size must be a whole number of pixels between 8 and 1024, got {size}")
    return {
        "target": source["target"],
        "task": None if task is None else named(task),
        "drop": () if source.get("drop") is None else (source["drop"],),
        "impute": bool(source.get("impute")),
        "written": Written(**plain, header=headers[source.get("header")], texts=texts),
        "tested_on": source.get("test"),
        "apart": source.get("split"),
        "likelihood": source.get("likelihood"),
        "pictures": source.get("pictures"),
        "size": None if size is None else int(size),
        "skip_broken": bool(source.get("skip_broken")),
    }


def _known(name: str) -> Table | Images:
    if name in FUNCTIONS:
        return cast(Table | Images, getattr(import_module(FUNCTIONS[name]), name)())
    from bayesdiv.app.data import uci

    if name in uci.SETS:
        return uci.read(name)
    close = difflib.get_close_matches(name, datasets(), n=1)
    known = "the name of a data set" if close else f"one of {', '.join(datasets())}"
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise DataError(f"data must be {KNOWN} or {known}, got {name!r}{hint}")


def parted(
    source: Table | Images,
    *,
    seed: int = 0,
    noise: float = 0.0,
    test: float = 0.2,
    validation: float = 0.2,
) -> Splits:
    """What was `opened` in three parts: `test` and `validation` are shares of all rows.

    Images keep the test part of their publishers; the seed chooses one of five folds of the rest.
    """
    if isinstance(source, Table):
        return add_noise(split(source, seed=seed, test=test, validation=validation), noise, seed)
    # Pictures from files stay bytes without noise: they may be more than memory holds.
    whole = source if source.files and not noise else source.noisy(noise, seed)
    return whole.fold(1 + seed % 5)


def diabetes() -> Table:
    """Disease progression a year on, of 442 patients (Efron et al. 2004): a regression."""
    from sklearn.datasets import load_diabetes

    # In their own units: scikit-learn's scaled columns have seen the test rows.
    found = load_diabetes(as_frame=True, scaled=False)
    return Table("diabetes", found.data.assign(progression=found.target), "progression", Regression)


def breast_cancer() -> Table:
    """Diagnosis of 569 breast tumours by 30 measurements (Wolberg et al. 1995); 1 is malignant."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer(as_frame=True)
    diagnosis = [str(found.target_names[code]) for code in found.target]
    frame = found.data.assign(diagnosis=diagnosis)
    return Table("breast_cancer", frame, "diagnosis", Classification)


def digits() -> Table:
    """Handwritten digits, 1797 grey images of 8 by 8 pixels in [0, 1]: ten classes."""
    from sklearn.datasets import load_digits

    found = load_digits(as_frame=True)
    # Grey levels are counts from 0 to 16.
    pixels = tuple(Numeric(name, 0.0, 16.0) for name in found.data.columns)
    frame = found.data.assign(digit=found.target)
    return Table("digits", frame, "digit", Classification, Encoder(pixels, (1, 8, 8)))
