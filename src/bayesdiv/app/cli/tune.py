"""`bayesdiv tune`: search alpha, strength and learning rate on the validation data."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from optuna.distributions import FloatDistribution
from rich.markup import escape
from rich.table import Table

from bayesdiv.app import metric, options, runs
from bayesdiv.app import training as trainings
from bayesdiv.app.console import errors, note, numbers, output, say
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.experiment import Training, settled
from bayesdiv.app.rounding import rounded, spread
from bayesdiv.app.tuning import results, study
from bayesdiv.app.tuning.experiment import RANGES, Tuned, given, outside, tune_experiment
from bayesdiv.app.tuning.search import Search, Tell, Tried
from bayesdiv.divergence import Divergence


def parser() -> ArgumentParser:
    command = options.command_parser(
        "Search alpha, strength and learning rate on the validation data. The given settings are "
        "tried first; all others stay fixed. If it is stopped, the same command resumes it.",
        "bayesdiv tune diabetes --divergence JSA:0.3 --trials 30 --workers 2",
    )
    options.add_data(command)
    options.add_divergence(command, "JSA", "; its alpha is searched if it has one")
    command.add_argument(
        "--aim",
        type=str,
        default="nll",
        help="validation metric to optimise: nll for any data, accuracy or ece for classes, rmse "
        "for a regression",
    )
    command.add_argument("--trials", type=int, default=30, help="total number of trials")
    command.add_argument("--workers", type=int, default=1, help="processes that share the trials")
    command.add_argument(
        "--folds", type=int, default=3, help="trainings per trial, each validated on different rows"
    )
    how: Any = {"type": float, "nargs": 2, "metavar": ("LOW", "HIGH")}
    for name, usual in RANGES.items():
        ends = [usual.low, usual.high]
        command.add_argument(f"--{name}_range", **how, default=ends, help="range to search")
    shared = "URL of a database shared with other machines (default: a file in the folder)"
    options.add_text(command, "--storage", shared)
    options.add_text(command, "--out", "folder of the results (default: tunings/NAME-DIVERGENCE)")
    options.add_training(command)
    return command


def tune(settings: Namespace) -> None:
    """Search, then train the best and the given settings again and compare them on test data."""
    divergence, ranges = options.divergence_of(settings.divergence), _ranges(settings)
    if divergence is None:
        raise ValueError(options.unknown("None", "or an import path"))
    splits = options.part_data(options.open_data(settings), settings, settings.seed)
    training = settled(options.training_of(settings), splits.num_data, splits.shape)
    note(*splits.notes)
    name = f"{Path(settings.data).stem}-{type(divergence).__name__}"
    folder = Path(settings.out or f"tunings/{name}")
    place = settings.storage or folder / "search.db"
    how = {"trials": settings.trials, "seed": settings.seed, "workers": settings.workers}
    search = Search(place, name, **how)
    for key, value in outside(divergence, training, ranges).items():
        note(
            f"{key} is {value:g}, outside the range {ranges[key].low:g} to {ranges[key].high:g} "
            "that is searched, so the given settings are not the first trial"
        )
    # On another machine the same file may lie elsewhere.
    data = {**options.data_settings(settings), "data": Path(settings.data).name}
    with runs.made(folder), _shown(search) as tell:
        tuned = tune_experiment(
            splits,
            divergence,
            training,
            search,
            aim=settings.aim,
            ranges=ranges,
            folds=settings.folds,
            about={"data": data},
            tell=tell,
        )
    tried = study.trials(search)
    output.print(_table(tried, search.trials, tuned.best.number, settings.aim, splits.name))
    best = results.write(folder, options.data_settings(settings), tuned, tried)
    results.draw(search, folder, f"validation {metric.title(settings.aim)}")
    say(f"Trials: {folder / results.TRIALS}, drawn in {folder / results.FIGURE}")
    with errors.status("training the best settings and the given ones again"):
        _compare(folder, splits, tuned, {"best": tuned[:2], "given": (divergence, training)})
    say(f"Best settings: {folder / results.BEST}; train them with")
    say(f"  bayesdiv train {settings.data} {best} --out runs/{name}")


def _ranges(settings: Namespace) -> dict[str, FloatDistribution]:
    found = {}
    for name, usual in RANGES.items():
        low, high = settings[f"{name}_range"]
        if not low < high < float("inf"):
            raise ValueError(
                f"{name}_range must be finite with low below high, got {low} and {high}"
            )
        if usual.log and low <= 0:
            raise ValueError(f"low must be positive on a logarithmic scale, got {low}")
        found[name] = FloatDistribution(low, high, log=usual.log)
    return found


@contextlib.contextmanager
def _shown(search: Search) -> Iterator[Tell | None]:
    """A line with the progress of the search, on a terminal."""
    if not errors.is_terminal:
        yield None
        return
    with errors.status("searching") as line:
        yield lambda tried: line.update(_count(tried, search.trials))


def _count(tried: Sequence[Tried], wanted: int) -> str:
    finished = sum(trial.state in ("complete", "pruned") for trial in tried)
    if finished > wanted:
        return f"{finished} trials, more than the {wanted} requested"
    running = sum(trial.state == "running" for trial in tried)
    return f"{finished} of {wanted} trials" + f", {running} running" * bool(running)


def _table(tried: Sequence[Tried], wanted: int, best: int, aim: str, title: str) -> Table:
    """The trials; the best is marked."""
    begun = [trial for trial in tried if trial.state != "waiting"]
    names = [name for name in RANGES if any(name in trial.settings for trial in begun)]
    table = numbers(f"{title}: search", "trial", [*names, f"validation {metric.title(aim)}"])
    table.add_column("state", no_wrap=True)
    for trial in begun:
        cells = [f"{trial.settings[k]:.3g}" if k in trial.settings else "" for k in names]
        value = "" if trial.value is None else rounded(trial.value, 4)
        mark = "*" if trial.number == best else " "
        style = "bold green" if mark == "*" else "dim" if trial.state != "complete" else None
        again = "" if trial.retry_of is None else f", trial {trial.retry_of} again"
        diverged = trial.state == "pruned" and trial.value is None
        state = escape("diverged" if diverged else trial.state + again)
        table.add_row(str(trial.number), *cells, value + mark, state, style=style)
    table.caption = f"{_count(tried, wanted)}; * best"
    return table


Pair = tuple[Divergence, Training]


def _compare(folder: Path, splits: Splits, tuned: Tuned, pairs: dict[str, Pair]) -> None:
    """The test metrics of the best settings and of those given, trained with the same seed."""
    found: dict[str, dict[str, float]] = {}
    for which, pair in pairs.items():
        same = found and pair == pairs["best"]
        found[which] = found["best"] if same else trainings.train(splits, *pair)[1]["test"]
    names = {name: RANGES[name] for name in tuned.best.settings}
    columns = [*names, *found["best"]]
    table = numbers(f"{splits.name}: test data, trained again", "settings", columns)
    for which, pair in pairs.items():
        cells = [f"{value:.3g}" for value in given(*pair, names).values()]
        table.add_row(which, *cells, *(spread([value]) for value in found[which].values()))
    output.print(table)
    if tuned.best.number == 0 and pairs["best"] == pairs["given"]:
        say("No trial was better than the given settings.")
    runs.write_json(folder / results.RESULT, {"best": tuned.best._asdict(), "test": found})
