"""`bayesdiv tune`: search alpha, strength and learning rate on the validation data."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from bayesdiv.app import metric, options, runs
from bayesdiv.app import training as trainings
from bayesdiv.app.console import errors, note, numbers, output, say
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.experiment import Training, settled
from bayesdiv.app.rounding import rounded, spread
from bayesdiv.app.settings import fingerprint
from bayesdiv.app.tuning import files
from bayesdiv.app.tuning.experiment import Tuned, tune_experiment
from bayesdiv.app.tuning.search import Aim, Search, Tell, Tried
from bayesdiv.app.tuning.space import LogUniform, Space, Uniform, given, outside
from bayesdiv.app.tuning.study import OtherStudy, trials
from bayesdiv.divergence import Divergence
from bayesdiv.metrics import TABLE

SETTINGS = ("alpha", "strength", "learning_rate")


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = options.command_parser(
        "Search alpha, strength and learning rate on the validation data; the settings given are "
        "tried first, and all others stay as they are. The same command goes on after a stop.",
        "bayesdiv tune diabetes --divergence JSA --trials 30 --workers 2",
    )
    options.add_data(command)
    command.add_argument(
        "--divergence",
        type=Divergence,
        default={"class_path": "bayesdiv.JSA"},
        help="KL, JSG, JSA, …, or the import path of your own; its alpha is searched if it has one",
    )
    command.add_argument(
        "--aim",
        type=str,
        default="nll",
        help="validation metric that decides which trial is best: nll (lowest) for any data, "
        "accuracy (highest) or ece (lowest) for classes, rmse (lowest) for a regression",
    )
    command.add_argument("--trials", type=int, default=30, help="how many in all")
    command.add_argument("--workers", type=int, default=1, help="processes that share the trials")
    command.add_argument(
        "--folds", type=int, default=3, help="trainings per trial, each validated on other rows"
    )
    for name in SETTINGS:
        usual: Any = getattr(Space(), name)
        how: Any = {"type": float, "nargs": 2, "metavar": ("LOW", "HIGH")}
        ends = [usual.low, usual.high]
        command.add_argument(f"--{name}_range", **how, default=ends, help="searched between these")
    shared = "URL of a database to share with other machines; a file in the folder if not given"
    options.add_text(command, "--storage", shared)
    options.add_text(
        command, "--out", "folder of the results; tunings/NAME-DIVERGENCE if not given"
    )
    command.add_class_arguments(Training)
    return command


def tune(settings: Namespace) -> None:
    """Search, then train the best settings and those given afresh and compare them on test data."""
    divergence = settings.divergence
    splits = options.part_data(options.open_data(settings), settings, settings.seed)
    training = settled(options.training_of(settings), splits.num_data, splits.shape)
    note(*splits.notes)
    name = f"{Path(settings.data).stem}-{type(divergence).__name__}"
    folder = Path(settings.out or f"tunings/{name}")
    search = Search(
        settings.storage or folder / "search.db",
        name=name,
        trials=settings.trials,
        seed=settings.seed,
        aim=_aim(settings.aim),
        workers=settings.workers,
    )
    space = _space(settings)
    for name, value in outside(divergence, training, space).items():
        low, high = settings[f"{name}_range"]
        note(
            f"{name} is {value:g}, outside the range {low:g} to {high:g} that is searched, so the "
            "settings given are not the first trial"
        )
    with runs.made(folder), _shown(search) as tell, _told_otherwise(settings, folder):
        tuned = tune_experiment(
            splits,
            divergence,
            training,
            search,
            space=space,
            folds=settings.folds,
            # On another machine the same file may lie elsewhere.
            about={"data": {**options.data_settings(settings), "data": Path(settings.data).name}},
            tell=tell,
        )
    tried = trials(search)
    output.print(_table(tried, search, splits.name))
    files.write(folder, options.data_settings(settings), tuned, tried, search.aim, splits.name)
    say(f"Trials: {folder / files.TRIALS}, drawn in {folder / files.FIGURE}")
    with errors.status("training the best settings and those given afresh"):
        _compare(folder, splits, tuned, {"best": tuned[:2], "given": (divergence, training)})
    say(f"Best settings: {folder / 'best.yaml'}; train them with")
    say(f"  bayesdiv train {settings.data} --config {folder / 'best.yaml'} --out runs/{name}")


def _aim(key: str) -> Aim:
    """A metric and which of its values is best; one that is not known is refused with the data."""
    known = TABLE.get(key)
    return Aim(key, max if known and known.loss(1.0) < known.loss(0.0) else min)


def _space(settings: Namespace) -> Space:
    return Space(
        alpha=Uniform(*settings.alpha_range),
        strength=LogUniform(*settings.strength_range),
        learning_rate=LogUniform(*settings.learning_rate_range),
    )


@contextlib.contextmanager
def _told_otherwise(settings: Namespace, folder: Path) -> Iterator[None]:
    """What differs from the search that is there, in the words of this command."""
    try:
        yield
    except OtherStudy as error:
        place, option = (
            (f" in {folder}", "--out") if settings.storage is None else ("", "--storage")
        )
        raise ValueError(
            f"the search{place} was begun with other settings: {error.differs}; "
            f"choose another {option}"
        ) from None


# While it runs -------------------------------------------------------------------------------


@contextlib.contextmanager
def _shown(search: Search) -> Iterator[Tell | None]:
    """A table that grows with the search, where there is a terminal."""
    if not errors.is_terminal:
        yield None
        return
    with Live(console=errors, transient=True, auto_refresh=False) as live:

        def tell(tried: Sequence[Tried]) -> None:
            rows = max(3, errors.height - 8)
            live.update(_table(tried, search, search.name, rows), refresh=True)

        yield tell


def _table(tried: Sequence[Tried], search: Search, title: str, rows: int | None = None) -> Table:
    """The trials, or the last so many of them and the best, which is marked."""
    begun = [trial for trial in tried if trial.state != "waiting"]
    names = [name for name in SETTINGS if any(name in trial.settings for trial in begun)]
    value_of = f"validation {metric.title(search.aim.key)}"
    table = numbers(f"{title}: search", "trial", [*names, value_of])
    table.add_column("state", no_wrap=True)
    best = _best_number(begun, search.aim)
    last = {trial.number for trial in (begun if rows is None else begun[-rows:])}
    for trial in (trial for trial in begun if trial.number in last | {best}):
        found = (trial.settings.get(name) for name in names)
        cells = ["" if value is None else f"{value:.3g}" for value in found]
        value = "" if trial.value is None else rounded(trial.value, 4)
        mark = "*" if trial.number == best else " "
        style = "bold green" if mark == "*" else "dim" if trial.state != "complete" else None
        row = (str(trial.number), *cells, value + mark, escape(_state(trial)))
        table.add_row(*row, style=style)
    finished = sum(trial.state in ("complete", "pruned") for trial in begun)
    count = f"{finished} of {search.trials} trials"
    if finished > search.trials:
        count = f"{finished} trials, more than the {search.trials} asked for"
    table.caption = f"{count}; * best"
    return table


def _best_number(tried: Sequence[Tried], aim: Aim) -> int | None:
    values = {t.value: t.number for t in reversed(tried) if t.state == "complete"}
    return values[aim.best(value for value in values if value is not None)] if values else None


def _state(trial: Tried) -> str:
    if trial.state == "pruned" and trial.value is None:
        return "diverged"
    again = "" if trial.retry_of is None else f", trial {trial.retry_of} again"
    return trial.state + again


# What is left --------------------------------------------------------------------------------


Pair = tuple[Divergence, Training]


def _compare(folder: Path, splits: Splits, tuned: Tuned, pairs: dict[str, Pair]) -> None:
    """The test metrics of the best settings and of those given, trained with the same seed."""
    kept = files.kept(folder / files.RESULT)
    data = fingerprint(splits)
    trained: list[dict[str, Any]] = []
    found = {}
    for which, pair in pairs.items():
        told = {"data": data, **files.depends(*pair)}
        known = [entry["test"] for entry in (*kept, *trained) if entry["settings"] == told]
        found[which] = known[0] if known else trainings.train(splits, *pair)[1]["test"]
        trained.append({"settings": told, "test": found[which]})
    _print_comparison(splits.name, tuned.best.settings, pairs, found)
    if tuned.best.number == 0 and pairs["best"] == pairs["given"]:
        say("No trial was better than the settings given.")
    result = {"best": tuned.best._asdict(), "test": found, "trained": trained}
    runs.write_json(folder / files.RESULT, result)


def _print_comparison(
    title: str, names: Iterable[str], pairs: dict[str, Pair], found: dict[str, dict[str, float]]
) -> None:
    table = numbers(f"{title}: test data, trained afresh", "settings", [*names, *found["best"]])
    for which, pair in pairs.items():
        cells = [f"{value:.3g}" for value in given(*pair, names).values()]
        table.add_row(which, *cells, *(spread([value]) for value in found[which].values()))
    output.print(table)
