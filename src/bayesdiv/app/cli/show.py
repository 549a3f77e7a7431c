"""`bayesdiv show`: print the settings and results of a run, or its progress."""

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.markup import escape
from rich.table import Table

from bayesdiv.app import calibrated, runs
from bayesdiv.app.console import output, print_metrics, say
from bayesdiv.app.experiment import Experiment, Training
from bayesdiv.app.options import command_parser
from bayesdiv.app.settings import outline, restore, result_of
from bayesdiv.metrics import TABLE as METRICS


def parser() -> ArgumentParser:
    command = command_parser(
        "Print the settings and results of a run, or its progress.", "bayesdiv show runs/diabetes"
    )
    command.add_argument("run", type=str, help="folder of a run, finished or not")
    return command


def show(settings: Namespace) -> None:
    """Describe a run."""
    folder = Path(settings.run)
    if not (folder / runs.METRICS).exists():
        _show_unfinished(folder)
        return
    experiment, told = restore(folder)
    result = result_of(folder)
    rows = {
        "epochs done": len(experiment.history),
        "best epoch": result["best_epoch"],
        "calibration": calibrated.named(experiment.calibration) or "none",
        "version": told["version"],
    }
    output.print(_table(folder, experiment, told, rows))
    print_metrics(result)


def _show_unfinished(folder: Path) -> None:
    experiment, told = outline(folder)
    history = experiment.history
    rows = {"epochs done": f"{len(history)}, unfinished"}
    if history:
        best = min(history, key=lambda line: line.get("validation_nll", math.inf))
        rows["best epoch so far"] = str(best["epoch"])
    rows["version"] = told["version"]
    output.print(_table(folder, experiment, told, rows))
    if history:
        last = history[-1]
        found = {key: last[f"validation_{key}"] for key in METRICS if f"validation_{key}" in last}
        print_metrics({"validation": found}, f"Metrics after epoch {last['epoch']}")
    say(f"{folder} is not finished: the same train command resumes it")


def _table(
    folder: Path, experiment: Experiment, told: Mapping[str, Any], how: Mapping[str, object]
) -> Table:
    table = Table(title=escape(f"Run {folder}"), box=None, padding=(0, 2, 0, 0), show_header=False)
    rows = {
        "data": told["data"].get("data", ""),
        "target": told["target"],
        "task": told["task"]["kind"],
        "network": str(experiment.recipe),
        "weights": f"{experiment.num_weights:,}",
        "divergence": runs.loss(told),
        **{f.name.replace("_", " "): told["training"][f.name] for f in fields(Training)},
        **how,
    }
    for name, value in rows.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        table.add_row(name, "–" if shown is None else escape(str(shown)))
    return table
