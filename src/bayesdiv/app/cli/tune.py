"""`bayesdiv tune`: search alpha, strength, learning rate and prior width."""

import math
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import yaml  # type: ignore[import-untyped]
from optuna.distributions import FloatDistribution
from optuna.importance import get_param_importances
from optuna.trial import TrialState
from rich.markup import escape
from rich.table import Table

from bayesdiv.app import options, runs
from bayesdiv.app import training as trainings
from bayesdiv.app.command import Command
from bayesdiv.app.console import errors, note, numbers, output, print_metrics, say, visible
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.metric import number, rounded
from bayesdiv.app.report import markup
from bayesdiv.app.report.markup import chart, charts, element, section
from bayesdiv.app.settings import described, known, named
from bayesdiv.app.tuning import search as tuning
from bayesdiv.app.tuning.population import NEAR, population, write_run
from bayesdiv.app.tuning.search import Space, Tried, Tuned
from bayesdiv.divergence import JSA

BEST, TRIALS, RESULT, PAGE = "best.yaml", "trials.csv", "result.json", "search.html"
RUN, DATABASE, VALUE = "run", "search.db", "validation NLL"
FEWEST = 10  # finished trials that say something about importance
SERIES = [("finished", "finished trials", "KL"), ("best", "the best trial", "JSA")]


def parser() -> Command:
    command = Command(
        "Search alpha, strength, learning rate and prior width on the validation data. By default "
        "a population of settings is trained as one program, and the best are averaged: the "
        "result is a run. With --search optuna, trials run one by one; if that is stopped, the "
        "same command resumes it.",
        "bayesdiv tune diabetes --divergence JSA:0.3 --trials 16",
        {"--out": "folder of the results (default: tunings/NAME-DIVERGENCE)"},
    )
    said = "how; if not given, a population for tables, and optuna for images"
    command.add_argument("--search", choices=("population", "optuna"), help=said)
    options.add_data(command)
    searched = "; its alpha is searched, that of JSA only with --alpha_range or --search optuna"
    options.add_divergence(command, "JSA", searched)
    said = "total number of settings; if not given, 16, with optuna 30"
    command.add_argument("--trials", type=int, help=said)
    how: Any = {"type": float, "nargs": 2, "metavar": ("LOW", "HIGH")}
    for name, usual in tuning.RANGES.items():
        ends = f"{usual.low:g} {usual.high:g}"
        command.add_argument(f"--{name}_range", **how, help=f"range to search, such as {ends}")
    options.add_training(command, skip={"net", "pretrained"})
    return command


def tune(settings: Namespace) -> None:
    """Search, then compare what was found with the given settings on test data."""
    if settings.trials is not None and settings.trials < 1:
        raise ValueError(f"trials must be at least 1, got {settings.trials}")
    divergence, asked = named(settings.divergence), _ranges(settings)
    if divergence is None:
        names = ", ".join(known())
        raise ValueError(f"tune needs a divergence, got {settings.divergence}: give one of {names}")
    if "alpha" in asked and not hasattr(divergence, "alpha"):
        raise ValueError(f"{settings.divergence} has no alpha to search: leave out --alpha_range")
    splits, training = options.prepared(settings)
    pictures = len(splits.shape) > 1
    if pictures and settings.search == "population":
        raise ValueError(f"a population needs a table, got {settings.data}: give --search optuna")
    optuna = pictures or settings.search == "optuna"
    ranges = {**(tuning.RANGES if optuna else NEAR), **asked}
    if not optuna and isinstance(divergence, JSA) and "alpha" not in asked:
        del ranges["alpha"]
        way = "--alpha_range 0.1 0.6 searches it too, in four times the time"
        note(f"alpha stays {divergence.alpha}: {way}")
    space, own = Space(divergence, training, ranges), {"alpha": divergence}
    for name, value in space.given.items():
        if value != (given := getattr(own.get(name, training), name)):
            note(f"{name} is {given:g}, outside its range: the search starts with {value:g}")
    name = f"{Path(settings.data).stem}-{type(divergence).__name__}"
    folder = Path(settings.out or f"tunings/{name}")
    there = {"population": folder / RUN / runs.METRICS}  # whose results have the same names
    if not optuna:
        there["search by Optuna"] = folder / DATABASE
    for other in [kind for kind, file in there.items() if file.exists()]:
        raise runs.RunError(f"{folder} holds the results of a {other}: choose another --out")
    try:
        with runs.owned(folder):
            (_optuna if optuna else _population)(settings, name, folder, splits, space)
    except KeyboardInterrupt as stop:
        again = f"a population does not resume: the same command starts again in {folder}"
        if (folder / RUN / runs.METRICS).exists():
            again = f"the run is finished, {folder / RUN}; to start again, choose another --out"
        stop.args = ("the same command resumes it" if optuna else visible(again),)
        raise


def _population(settings: Namespace, _: str, folder: Path, splits: Splits, space: Space) -> None:
    """Train a population, write its mixture as a run, compare it with the given settings."""
    source, run = options.data_settings(settings), folder / RUN
    began = time.perf_counter()
    with errors.status("training") as line:
        grown = population(
            splits,
            space.divergence,
            space.training,
            ranges=space.ranges,
            trials=settings.trials or 16,
            tell=lambda alive, epoch, of: line.update(f"{alive} settings, epoch {epoch} of {of}"),
        )
        seconds = time.perf_counter() - began
        line.update("training the given settings")
        given = trainings.train(splits, space.divergence, space.training)[1]["test"]
        found = {"population": write_run(grown, splits, source, run, seconds), "given": given}
    best = grown.best
    output.print(_table(grown.tried, len(grown.tried), best.number, splits.name))
    _write(folder, source, Tuned(*space.at(best.settings), best), grown.tried)
    print_metrics(found, f"{splits.name}: test data", "settings")
    runs.write_json(folder / RESULT, {"best": best._asdict(), "test": found})
    shares = ", ".join(f"trial {number} {share:.0%}" for number, share in grown.shares.items())
    say(f"Run: {run}, the average of {shares}; predict with")
    new = settings.data if Path(settings.data).exists() else "new.csv"  # no name of a set
    say(f"  bayesdiv predict {run} {new} -o predicted.csv")


def _optuna(settings: Namespace, name: str, folder: Path, splits: Splits, space: Space) -> None:
    """Search by Optuna, then train the best and the given settings again."""
    source = options.data_settings(settings)
    search = tuning.Search(folder / DATABASE, name, settings.trials or 30, settings.seed)
    with errors.status("searching") as line:
        tuned = tuning.tune_experiment(
            splits,
            space.divergence,
            space.training,
            search,
            ranges=space.ranges,
            about={"data": {**source, "data": Path(settings.data).name}},
            tell=lambda tried: line.update(_count(tried, search.trials)),
        )
    tried = tuning.trials(search)
    output.print(_table(tried, search.trials, tuned.best.number, splits.name))
    best = _write(folder, source, tuned, tried)
    draw(search, folder)
    say(f"Trials: {folder / TRIALS}, drawn in {folder / PAGE}")
    both = {"best": tuned[:2], "given": (space.divergence, space.training)}
    with errors.status("training the best settings and the given ones again"):
        found = {name: trainings.train(splits, *how)[1]["test"] for name, how in both.items()}
    print_metrics(found, f"{splits.name}: test data, trained again", "settings")
    runs.write_json(folder / RESULT, {"best": tuned.best._asdict(), "test": found})
    say(f"Best settings: {folder / BEST}; train them with")
    say(f"  bayesdiv train {settings.data} {best} --out runs/{name}")


def _ranges(settings: Namespace) -> dict[str, FloatDistribution]:
    found = {}
    for name, usual in tuning.RANGES.items():
        low, high = getattr(settings, f"{name}_range") or (usual.low, None)
        if high is None:
            continue
        if not (0 if usual.log else -math.inf) < low < high < math.inf:
            rule = f"{name}_range must be finite with low below high, got {low} and {high}"
            raise ValueError(rule + ": low must be positive on a logarithmic scale" * usual.log)
        found[name] = FloatDistribution(low, high, log=usual.log)
    return found


def _count(tried: Sequence[Tried], wanted: int) -> str:
    finished = sum(trial.state in ("complete", "pruned") for trial in tried)
    return f"trials finished: {finished}, requested: {wanted}"


def _table(tried: Sequence[Tried], wanted: int, best: int, title: str) -> Table:
    """The trials; the best is marked."""
    names = list(dict.fromkeys(name for trial in tried for name in trial.settings))
    table = numbers(f"{title}: search", "trial", [*names, VALUE, "state"])
    for trial in tried:
        cells = [f"{trial.settings[k]:.3g}" if k in trial.settings else "" for k in names]
        value = "" if trial.value is None else rounded(trial.value, 4)
        mark = "*" if trial.number == best else " "
        style = "bold green" if mark == "*" else "dim" if trial.state != "complete" else None
        diverged = trial.state == "pruned" and trial.value is None
        state = escape("diverged" if diverged else trial.state)
        table.add_row(str(trial.number), *cells, value + mark, state, style=style)
    table.caption = f"{_count(tried, wanted)}; * best"
    return table


def _write(folder: Path, source: Mapping[str, Any], tuned: Tuned, tried: Sequence[Tried]) -> str:
    """The best settings for `bayesdiv train`, whose options are returned, and a table of trials."""
    divergence, options = described(tuned.divergence), f"--config {folder / BEST}"
    best = {key: value for key, value in source.items() if value is not None and key != "data"}
    if "." in divergence.partition(":")[0]:  # a config names no code outside bayesdiv
        options += f" --divergence {divergence}"
    else:
        best["divergence"] = divergence
    best |= {**asdict(tuned.training), "hidden": list(tuned.training.hidden)}
    text = f"# bayesdiv train {source['data']} {options} --out FOLDER\n"
    runs.write(folder / BEST, (text + yaml.safe_dump(best, sort_keys=False)).encode())
    rows = [{"trial": trial.number, **trial.settings, **trial._asdict()} for trial in tried]
    table = pd.DataFrame(rows).drop(columns=["number", "settings"])
    runs.write(folder / TRIALS, table.to_csv(index=False).encode())
    return options


def draw(search: tuning.Search, folder: Path) -> None:
    """Write a page on the trials and, if enough are finished, on how much each setting matters."""
    with tuning.opened(search) as study:
        tried, done = tuning.tried_in(study), study.get_trials(states=(TrialState.COMPLETE,))
        logs = {n for t in done for n, d in t.distributions.items() if getattr(d, "log", False)}
        enough = len({trial.value for trial in done}) >= FEWEST
        importance = get_param_importances(study) if enough else {}
    content = page(f"{search.name}: search", VALUE, tried, logs, importance)
    runs.write(folder / PAGE, content.encode())


def page(
    title: str, value: str, tried: Sequence[Tried], logs: Set[str], importance: Mapping[str, float]
) -> str:
    """The page on a search for the least of a value; `logs` are settings on a log scale."""
    done = [one for one in tried if one.state == "complete"]
    names = list(dict.fromkeys(name for one in done for name in one.settings))
    aim = min((one.value or 0.0 for one in done), default=math.nan)
    values: markup.Values = [
        {"trial": one.number, "value": one.value, **one.settings}
        | {"run": "best" if one.value == aim else "finished"}
        for one in done
    ]
    said = "a line per trial, each axis from its least to its greatest value"
    drawing: dict[str, Any] = {"names": [*names, "value"], "logs": sorted(logs)}
    drawn = [chart("Parallel coordinates", said, values, "parallel", **drawing)] if done else []
    for name in names:
        drawing = {"x": name, "y": value, "log": name in logs}
        drawn.append(chart(f"Slice over {name}", "", values, "slice", **drawing))
    matters = markup.note("Fewer than ten different trials finished: too few to say.")
    if importance:
        bars = [{"setting": n, "importance": v, "run": "finished"} for n, v in importance.items()]
        said = "share of the spread among the better trials that a setting explains (PED-ANOVA)"
        drawing = {"field": "setting", "x": "importance"}
        matters = charts(chart("Importance", said, bars, "bars", **drawing))
    body, told = [], any(one.reason for one in tried)
    for one in tried:
        cells = [number(one.settings[name]) if name in one.settings else "" for name in names]
        cells += ["" if one.value is None else number(one.value), one.state, *[one.reason] * told]
        body.append([str(one.number), *cells])
    heads = ["trial", *names, value, "state", *["reason"] * told]
    counted = f"{len(done)} of {len(tried)} trials finished. {_verdict(done, value, aim)}"
    parts = [
        section("Result", element("p", counted.strip())),
        section("Which settings matter", matters),
        section("Trials", charts(*drawn)),
        section("All trials", markup.table("All trials", heads, body, class_="sortable")),
    ]
    return markup.framed(title, SERIES, parts)


def _verdict(done: Sequence[Tried], value: str, aim: float) -> str:
    chosen = next((one for one in done if one.value == aim), None)
    if chosen is None:
        return ""
    found = ", ".join(f"{name} {number(v)}" for name, v in chosen.settings.items())
    close = sum(abs((one.value or 0.0) - aim) <= 0.01 * abs(aim) for one in done) - 1
    text = f"Trial {chosen.number} has the lowest {value}, {number(aim)}, with {found}"
    return f"{text}. Others within 1 % of it, which are as good: {close or 'none'}."
