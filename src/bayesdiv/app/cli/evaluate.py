"""`bayesdiv evaluate`: the test metrics of a run."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from bayesdiv.app import experiment as experiments
from bayesdiv.app.cli.console import print_metrics
from bayesdiv.app.cli.options import command_parser


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = command_parser("Print the test metrics of a run.", "bayesdiv evaluate runs/diabetes")
    command.add_argument("run", type=str, help="folder of a run")
    command.add_argument(
        "--data", type=str | None, default=None, help="the file of training, where it has moved"
    )
    return command


def evaluate(settings: Namespace) -> None:
    """Print the test metrics of a run, computed anew from its data."""
    experiment, told = experiments.restore(Path(settings.run), settings.data)
    splits = experiments.reloaded(experiment, told, settings.run)
    parts = {"validation": splits.validation, "test": splits.test}
    found = {name: experiments.evaluate(experiment, splits, part) for name, part in parts.items()}
    print_metrics(found)
