"""`bayesdiv evaluate`: print the test metrics of a run."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from bayesdiv.app.console import print_metrics
from bayesdiv.app.experiment import evaluate as measured
from bayesdiv.app.options import add_text, command_parser
from bayesdiv.app.settings import reloaded, restore


def parser() -> ArgumentParser:
    """The parser of this command."""
    command = command_parser("Print the test metrics of a run.", "bayesdiv evaluate runs/diabetes")
    command.add_argument("run", type=str, help="folder of a run")
    add_text(command, "--data", "the file of training, where it has moved")
    return command


def evaluate(settings: Namespace) -> None:
    """Print the test metrics of a run, computed anew from its data."""
    experiment, told = restore(Path(settings.run), settings.data)
    splits = reloaded(experiment, told, settings.run)
    parts = {"validation": splits.validation, "test": splits.test}
    found = {name: measured(experiment, splits, part) for name, part in parts.items()}
    print_metrics(found)
