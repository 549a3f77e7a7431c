"""`bayesdiv train`: train one network and write a run."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from bayesdiv.app import training as trainings
from bayesdiv.app.console import Pace, note, print_metrics, say, warn_if_late
from bayesdiv.app.experiment import settled
from bayesdiv.app.options import (
    add_data,
    add_divergence,
    add_training,
    command_parser,
    data_settings,
    divergence_of,
    open_data,
    part_data,
    training_of,
)


def parser() -> ArgumentParser:
    command = command_parser(
        "Train one network and write a run. If it is stopped, the same command resumes it.",
        "bayesdiv train diabetes --divergence JSA:0.3 --out runs/diabetes",
    )
    add_data(command)
    command.add_argument("--config", action="config", help="YAML file with any of these settings")
    add_divergence(command, "JSA:0.3", "; deterministic for a plain network")
    command.add_argument("--out", type=str, required=True, help="folder of the run")
    add_training(command)
    return command


def train(settings: Namespace) -> None:
    """Train one network and write a run."""
    divergence = divergence_of(settings.divergence)
    splits = part_data(open_data(settings), settings, settings.seed)
    training = settled(training_of(settings), splits.num_data, splits.shape)
    note(*splits.notes)
    folder = Path(settings.out)
    with Pace() as pace:
        tell = pace.teller(settings.divergence, training.length)
        _, result = trainings.train(
            splits, divergence, training, folder=folder, source=data_settings(settings), tell=tell
        )
    print_metrics(result)
    warn_if_late([result], training.length)
    say(f"Run: {folder}")
