"""`bayesdiv show`: print the settings and results of a run, or its progress."""

import math
from argparse import Namespace
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from bayesdiv.app import calibrated, runs
from bayesdiv.app.command import Command
from bayesdiv.app.console import output, print_metrics, say
from bayesdiv.app.settings import outline, restore, result_of


def parser() -> Command:
    return Command(
        "Print the settings and results of a run, or its progress.",
        "bayesdiv show runs/diabetes",
        {"run": "folder of a run, finished or not"},
    )


def show(settings: Namespace) -> None:
    """Describe a run."""
    folder = Path(settings.run)
    finished = (folder / runs.METRICS).exists()
    experiment, told = restore(folder) if finished else outline(folder)
    result, history = result_of(folder) if finished else {}, experiment.history
    best = min(history, key=lambda line: line.get("validation_nll", math.inf), default={})
    pictured = () if told["encoder"] is None else ("net", "pretrained")  # nothing to a table
    training = {name: value for name, value in told["training"].items() if name not in pictured}
    rows = {
        "data": told["data"].get("data", ""),
        "target": told["target"],
        "task": told["task"]["kind"],
        "likelihood": type(experiment.likelihood).__name__,
        "network": str(experiment.recipe),
        "weights": f"{experiment.num_weights:,}",
        "divergence": told["divergence"],
        **{name.replace("_", " "): value for name, value in training.items()},
        "epochs done": len(history) if finished else f"{len(history)}, unfinished",
        f"best epoch{'' if finished else ' so far'}": result.get("best_epoch", best.get("epoch")),
        "calibration": calibrated.named(experiment.calibration) or "none",
        "version": told["version"],
    }
    table = Table(title=escape(f"Run {folder}"), box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, value in rows.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        table.add_row(name, "–" if shown is None else escape(str(shown)))
    output.print(table)
    if finished:
        return print_metrics(result)
    if history:
        pairs = [(key.partition("validation_")[2], value) for key, value in history[-1].items()]
        found = {"validation": {key: value for key, value in pairs if key}}
        print_metrics(found, f"Metrics after epoch {history[-1]['epoch']}")
    return say(
        f"{folder} is not finished: the same train command resumes it where it was last saved"
    )
