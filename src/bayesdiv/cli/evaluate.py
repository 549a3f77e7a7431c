"""`bayesdiv evaluate`: the test metrics of a run."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from bayesdiv import experiments, runs
from bayesdiv.cli.console import print_metrics
from bayesdiv.cli.options import command_parser, task_of
from bayesdiv.data import Bias, load


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = command_parser("Print the test metrics of a run.", "bayesdiv evaluate runs/diabetes")
    command.add_argument("run", type=str, help="folder of a run")
    return command


def evaluate(settings: Namespace) -> None:
    """Print the test metrics of a run, computed anew from its data."""
    experiment, told = experiments.restore(Path(settings.run))
    source = told["data"]
    splits = load(
        source["data"],
        target=source["target"],
        seed=source["seed"],
        noise=source["noise"],
        bias=None if source["bias"] is None else Bias.parse(source["bias"]),
        task=task_of(source["as_classes"]),
    )
    same = experiments.describe(experiment, splits, source)
    for key in ("encoder", "task", "num_data"):
        if same[key] != told[key]:
            raise runs.RunError(
                f"{source['data']} has changed since {settings.run} was trained: its {key} differs"
            )
    parts = {"validation": splits.validation, "test": splits.test}
    found = {name: experiments.evaluate(experiment, splits, part) for name, part in parts.items()}
    print_metrics(found)
