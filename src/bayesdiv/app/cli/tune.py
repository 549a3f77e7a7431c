"""`bayesdiv tune`: search alpha, strength, learning rate and prior width."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from optuna.distributions import FloatDistribution
from rich.markup import escape
from rich.table import Table

from bayesdiv.app import experiment as experiments
from bayesdiv.app import metric, options, runs
from bayesdiv.app import training as trainings
from bayesdiv.app.console import errors, note, numbers, output, say
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.experiment import Training, settled
from bayesdiv.app.lock import owned
from bayesdiv.app.rounding import rounded, spread
from bayesdiv.app.tuning import results
from bayesdiv.app.tuning.experiment import (
    RANGES,
    Ranges,
    Tuned,
    given,
    outside,
    tune_experiment,
    with_settings,
)
from bayesdiv.app.tuning.population import NEAR, population, write_run
from bayesdiv.app.tuning.search import Search, Tell, Tried, trials
from bayesdiv.divergence import JSA, Divergence

Pair = tuple[Divergence, Training]


def parser() -> ArgumentParser:
    command = options.command_parser(
        "Search alpha, strength, learning rate and prior width on the validation data. By default "
        "a population of settings is trained as one program, halved, and averaged: the "
        "result is a run. With --search optuna, trials run one by one; if that is stopped, the "
        "same command resumes it.",
        "bayesdiv tune diabetes --divergence JSA:0.3 --trials 16",
    )
    options.add_data(command)
    searched = "; its alpha is searched, that of JSA only with --alpha_range or --search optuna"
    options.add_divergence(command, "JSA", searched)
    command.add_argument(
        "--search",
        type=str,
        help="population or optuna; if not given, a population for tables, and optuna for images "
        "or with --aim, --folds or --storage",
    )
    command.add_argument(
        "--aim",
        type=str,
        default="nll",
        help="validation metric to optimise: nll for any data, accuracy or ece for classes, rmse "
        "for a regression",
    )
    command.add_argument(
        "--trials", type=int, help="total number of settings; if not given, 16, with optuna 30"
    )
    command.add_argument(
        "--folds",
        type=int,
        help="trainings per trial, each validated on different rows; 3 if not given",
    )
    how: Any = {"type": float, "nargs": 2, "metavar": ("LOW", "HIGH")}
    for name, usual in RANGES.items():
        ends = f"{usual.low:g} {usual.high:g}"
        command.add_argument(f"--{name}_range", **how, help=f"range to search, such as {ends}")
    shared = "URL of a database shared with other machines (default: a file in the folder)"
    options.add_text(command, "--storage", shared)
    options.add_text(command, "--out", "folder of the results (default: tunings/NAME-DIVERGENCE)")
    options.add_training(command, skip={"net", "pretrained"})
    return command


def tune(settings: Namespace) -> None:
    """Search, then compare what was found with the given settings on test data."""
    if settings.search not in (None, "population", "optuna"):
        raise ValueError(f"search must be population or optuna, got {settings.search}")
    divergence, asked = options.named(settings.divergence), _ranges(settings)
    if divergence is None:
        raise ValueError(options.unknown("None"))
    if settings.trials is not None and settings.trials < 1:
        raise ValueError(f"trials must be at least 1, got {settings.trials}")
    splits = options.part_data(options.open_data(settings), settings, settings.seed)
    training = settled(options.training_of(settings), splits.num_data, splits.shape)
    note(*splits.notes)
    optuna = _needs_optuna(settings, splits)
    ranges: Ranges = {**(RANGES if optuna else NEAR), **asked}
    if not optuna and isinstance(divergence, JSA) and "alpha" not in asked:
        ranges = {name: ranges[name] for name in ranges if name != "alpha"}
        note(
            f"alpha stays {divergence.alpha}: --alpha_range 0.1 0.6 searches it too, in four times "
            "the time"
        )
    for key, value in outside(divergence, training, ranges).items():
        note(
            f"{key} is {value:g}, outside the range {ranges[key].low:g} to {ranges[key].high:g} "
            "that is searched, so the given settings are not the first trial"
        )
    name = f"{Path(settings.data).stem}-{type(divergence).__name__}"
    folder = Path(settings.out or f"tunings/{name}")
    way = _optuna if optuna else _population
    way(settings, folder, splits, (divergence, training), ranges)


def _needs_optuna(settings: Namespace, splits: Splits) -> bool:
    """Whether it was asked for, by its name or by what a population does not have."""
    if settings.search is not None:
        return bool(settings.search == "optuna")
    beyond = settings.aim != "nll" or len(splits.shape) > 1
    return bool(beyond or settings.folds is not None or settings.storage)


def _population(
    settings: Namespace, folder: Path, splits: Splits, pair: Pair, ranges: Ranges
) -> None:
    """Train a population, write its mixture as a run, compare it with the given settings."""
    if len(splits.shape) > 1 or settings.aim != "nll":
        raise ValueError("a population needs a table and --aim nll: give --search optuna")
    source, run = options.data_settings(settings), folder / "run"
    began = time.perf_counter()
    with owned(run), errors.status("training") as line:
        if (run / runs.METRICS).exists():
            raise runs.RunError(f"{run} holds a finished run: choose another --out")
        grown = population(
            splits,
            *pair,
            ranges=ranges,
            trials=settings.trials or 16,
            tell=lambda alive, epoch, of: line.update(f"{alive} settings, epoch {epoch} of {of}"),
        )
        seconds = time.perf_counter() - began
        measured = experiments.evaluate(grown.experiment, splits, splits.test)
        write_run(grown, splits, source, run, {"test": measured, "seconds": seconds})
        line.update("training the given settings")
        beside = trainings.train(splits, *pair)[1]["test"]
    output.print(_table(grown.tried, len(grown.tried), grown.best.number, "nll", splits.name))
    tuned = Tuned(*with_settings(*pair, grown.best.settings), grown.best)
    results.write(folder, source, tuned, grown.tried)
    table = numbers(f"{splits.name}: test data", "", list(measured))
    for title, found in (("population", measured), ("given settings", beside)):
        table.add_row(title, *(spread([value]) for value in found.values()))
    output.print(table)
    shares = ", ".join(f"trial {number} {share:.0%}" for number, share in grown.shares.items())
    say(f"Run: {run}, the average of {shares}; predict with")
    say(f"  bayesdiv predict {run} {settings.data} -o predicted.csv")
    test = {"population": measured, "given": beside}
    runs.write_json(folder / results.RESULT, {"best": grown.best._asdict(), "test": test})


def _optuna(settings: Namespace, folder: Path, splits: Splits, pair: Pair, ranges: Ranges) -> None:
    """Search by Optuna, then train the best and the given settings again."""
    (divergence, training), name = pair, f"{Path(settings.data).stem}-{type(pair[0]).__name__}"
    place = settings.storage or folder / "search.db"
    how = {"trials": settings.trials or 30, "seed": settings.seed}
    search = Search(place, name, **how)
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
            folds=3 if settings.folds is None else settings.folds,
            about={"data": data},
            tell=tell,
        )
    tried = trials(search)
    output.print(_table(tried, search.trials, tuned.best.number, settings.aim, splits.name))
    best = results.write(folder, options.data_settings(settings), tuned, tried)
    results.draw(search, folder, f"validation {metric.title(settings.aim)}")
    say(f"Trials: {folder / results.TRIALS}, drawn in {folder / results.PAGE}")
    with errors.status("training the best settings and the given ones again"):
        _compare(folder, splits, tuned, {"best": tuned[:2], "given": (divergence, training)})
    say(f"Best settings: {folder / results.BEST}; train them with")
    say(f"  bayesdiv train {settings.data} {best} --out runs/{name}")


def _ranges(settings: Namespace) -> dict[str, FloatDistribution]:
    found = {}
    for name, usual in RANGES.items():
        if settings[f"{name}_range"] is None:
            continue
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
def _shown(search: Search) -> Iterator[Tell]:
    """A line with the progress of the search, on a terminal."""
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
    names = list(dict.fromkeys(name for trial in begun for name in trial.settings))
    table = numbers(f"{title}: search", "trial", [*names, f"validation {metric.title(aim)}"])
    table.add_column("state", no_wrap=True)
    for trial in begun:
        cells = [f"{trial.settings[k]:.3g}" if k in trial.settings else "" for k in names]
        value = "" if trial.value is None else rounded(trial.value, 4)
        mark = "*" if trial.number == best else " "
        style = "bold green" if mark == "*" else "dim" if trial.state != "complete" else None
        diverged = trial.state == "pruned" and trial.value is None
        state = escape("diverged" if diverged else trial.state)
        table.add_row(str(trial.number), *cells, value + mark, state, style=style)
    table.caption = f"{_count(tried, wanted)}; * best"
    return table


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
