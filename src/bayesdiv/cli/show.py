"""`bayesdiv show`: what a run is and how it went."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.markup import escape
from rich.table import Table

from bayesdiv import experiments, runs
from bayesdiv.cli.console import output, print_metrics
from bayesdiv.cli.options import command_parser
from bayesdiv.experiments import Training


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = command_parser("Print what a run is and how it went.", "bayesdiv show runs/diabetes")
    command.add_argument("run", type=str, help="folder of a run")
    return command


def show(settings: Namespace) -> None:
    """Describe a run."""
    folder = Path(settings.run)
    experiment, told = experiments.restore(folder)
    table = Table(title=escape(f"Run {folder}"), show_header=False)
    result = runs.read_json(folder / runs.METRICS)
    divergence = told["divergence"]
    rows = {
        "data": told["data"].get("data", ""),
        "target": told["target"],
        "task": told["task"]["kind"].lower(),
        "network": str(experiment.recipe),
        "weights": f"{experiments.num_weights(experiment):,}",
        "divergence": "none (deterministic)" if divergence is None else _told(divergence),
        **{f.name.replace("_", " "): told["training"][f.name] for f in fields(Training)},
        "epochs done": len(experiment.history),
        "best epoch": result["best_epoch"],
        "version": told["version"],
    }
    for name, value in rows.items():
        table.add_row(name, escape(str(value)))
    output.print(table)
    print_metrics(result)


def _told(divergence: Mapping[str, Any]) -> str:
    values = ", ".join(f"{key}={value}" for key, value in divergence.items() if key != "kind")
    return f"{divergence['kind']}({values})"
