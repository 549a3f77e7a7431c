"""`bayesdiv compare`: compare losses and simple models in one table."""

import contextlib
import itertools
import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from rich.markup import escape
from rich.table import Table
from torch import Tensor

from bayesdiv.app import metric, options, runs
from bayesdiv.app import training as trainings
from bayesdiv.app.baselines import baselines
from bayesdiv.app.command import Command
from bayesdiv.app.console import NONE, Pace, errors, note, numbers, output, say, warn_if_late
from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.app.experiment import Training, settled
from bayesdiv.app.report import comparison
from bayesdiv.app.settings import named
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.divergence import Divergence
from bayesdiv.predictive import Predictive
from bayesdiv.training.fit import Diverged

NUMBERS, PAGE = "comparison.json", "comparison.html"
SEEDS = 3
# From here on test rows are so many that seeds differ little, and a training takes minutes.
LARGE, UPDATES = 20_000, 6000


def parser() -> Command:
    out = "folder for the page and its numbers (default: comparisons/NAME, or NAME-2 and so on if "
    out += "that exists)"
    command = Command(
        "Train several losses on the same splits with several seeds, and print one table with "
        "simple scikit-learn models for comparison.",
        "bayesdiv compare concrete.csv --target strength --divergences KL JSA:0.3 deterministic",
        {"--out": out},
    )
    options.add_data(command)
    command.add_argument(
        "--divergences",
        type=str,
        nargs="+",
        default=["KL", "JSG:0.1", "JSA:0.5", "deterministic"],
        help="losses to compare, with alpha after a colon; deterministic is a plain network",
    )
    said = "repetitions, each with its own split and weights; 3 if not given, or 1 for tables of "
    command.add_argument("--seeds", type=int, help=f"{said}20,000 training rows or more")
    options.add_training(command, skip={"seed", "pretrained"})
    return command


def compare(settings: Namespace) -> None:
    """Train several losses on the same splits and print one table."""
    if settings.seeds is not None and settings.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {settings.seeds}")
    losses = {name: named(name) for name in dict.fromkeys(settings.divergences)}
    training = options.training_of(settings)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in losses}
    histories: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in losses}
    predictions: dict[str, list[tuple[Predictive, Tensor]]] = {}
    diverged: dict[str, list[str]] = {}
    beside: dict[str, list[dict[str, Any]]] = {}
    source = options.open_data(settings)
    splits = options.part_data(source, settings, seed=0)
    note(*splits.notes)
    training = _in_minutes(settings, training, splits)
    plain = {key: value for key, value in vars(settings).items() if value is not None}
    folder = _free_folder(settings)
    with runs.owned(folder), Pace(settings.seeds * len(losses)) as pace:
        for divergence in losses.values():
            _warm_up(splits, divergence, training)
        for seed in range(settings.seeds):
            splits = options.part_data(source, settings, seed=seed)
            for name, result in baselines(splits, seed).items():
                beside.setdefault(name, []).append(result)
            for name, divergence in losses.items():
                own = settled(replace(training, seed=seed), splits.num_data, splits.shape)
                title = f"{name}, seed {seed + 1} of {settings.seeds}"
                tell = pace.teller(title, own.epochs)
                try:
                    experiment, result = trainings.train(splits, divergence, own, tell=tell)
                except Diverged as error:
                    errors.print(f"[bold red]{escape(title)}:[/] {escape(str(error))}")
                    diverged.setdefault(name, []).append(f"seed {seed}: {error}")
                    continue
                results[name].append(result)
                histories[name].append(experiment.history)
                tested = experiment.predict(splits.test.x), splits.test.y
                predictions.setdefault(name, []).append(tested)
        if not predictions:
            raise Diverged("every loss diverged: lower the learning rate or the strength")
        told = {"settings": plain, "results": results, "diverged": diverged, "baselines": beside}
        noise = f", noise {settings.noise}" if settings.noise else ""
        title = f"{splits.name}{noise}: {splits.num_data} training examples"
        every = {**results, **beside}
        try:
            parts = (every, histories, predictions, splits, experiment.watch)
            runs.write(folder / PAGE, comparison.page(title, *parts).encode())
        finally:  # last, since they mark a comparison as finished
            runs.write_json(folder / NUMBERS, told)
    output.print(_table(every, [*losses][-1], splits))
    warn_if_late([run for each in results.values() for run in each], own.epochs)
    say(f"Page: {folder / PAGE}")


def _in_minutes(settings: Namespace, training: Training, splits: Splits) -> Training:
    """Fewer seeds and updates for a large table, where the user has not said how many."""
    large, short = splits.num_data >= LARGE and len(splits.shape) == 1, training
    if large and training.epochs is None:
        size = settled(training, splits.num_data, splits.shape).batch_size
        short = replace(training, epochs=math.ceil(UPDATES / math.ceil(splits.num_data / size)))
    fewer = large and (settings.seeds is None or short != training)
    settings.seeds = settings.seeds or (1 if large else SEEDS)
    if fewer:
        note(
            f"a table of {splits.num_data} training rows is compared over {settings.seeds} "
            f"seed{'s' * (settings.seeds > 1)} and {short.epochs} epochs, to take minutes: give "
            "--seeds and --epochs for more"
        )
    return short


def _free_folder(settings: Namespace) -> Path:
    """Where nothing is written over: as asked for, or the first of its name that is not taken."""
    if settings.out is not None:
        folder = Path(settings.out)
        if (folder / NUMBERS).exists():  # a page alone is left by a comparison that was killed
            raise ValueError(f"{folder / NUMBERS} exists already: choose another --out")
        return folder
    usual = Path("comparisons", Path(settings.data).stem)
    numbered = (usual.with_name(f"{usual.name}-{k}") for k in itertools.count(2))
    every = itertools.chain([usual], numbered)
    return next(folder for folder in every if not (folder / NUMBERS).exists())


def _warm_up(splits: Splits, divergence: Divergence | None, training: Training) -> None:
    """A batch trained and forgotten: what is loaded at a first step is not a loss's own time."""
    few = Part(*(rows[: training.batch_size or 64] for rows in splits.train))
    once = replace(training, epochs=1, test_samples=2)
    with contextlib.suppress(Diverged):
        trainings.train(replace(splits, train=few, validation=few, test=few), divergence, once)


def _table(every: Mapping[str, Sequence[Mapping[str, Any]]], last: str, splits: Splits) -> Table:
    """A row per loss, up to the `last`, and per simple model; what is clearly best is marked."""
    values, best, seeds, _ = comparison.compared(every, splits)
    how = " (mean ± standard deviation over seeds)" if seeds > 1 else ""
    table = numbers(f"{splits.name}: test data{how}", "loss", [*best, "seconds"])
    for name, ended in every.items():
        cells = ["diverged"] * len(best) + [""]
        if ended:
            texts = {k: metric.spread(v[name]) if v[name] else NONE for k, v in values.items()}
            cells = [
                f"[bold green]{t}*[/]" if name == best[k] else f"{t} " for k, t in texts.items()
            ]
            seconds = mean(run["seconds"] for run in ended)
            cells.append(f"{seconds:.{1 if seconds >= 1 else 2}f}")
        lost = f" ({seeds - len(ended)} of {seeds} diverged)" if 0 < len(ended) < seeds else ""
        table.add_row(escape(name + lost), *cells, end_section=name == last)
    parts = ["* better than every other row: the 95 % interval of the difference excludes 0"]
    if not any(best.values()):
        parts = ["no row is better than every other beyond the 95 % interval of the difference"]
    if seeds == 1:
        parts = ["no row is marked, as one seed has no interval: give --seeds 3 or more"]
    if "coverage" in best:
        parts.append("coverage: share of targets inside the 90 % interval; best near 0.9")
    if "false_negative_rate" in best and isinstance(splits.task, Classification):
        parts.append(f"missed: share of class {splits.task.classes[1]} that was not recognised")
    for key, held in values.items():
        if any(len(held[name]) < len(ended) for name, ended in every.items()):
            parts.append(f"{metric.title(key)}: over the seeds for which it is defined")
    table.caption = escape("; ".join(parts))
    return table
