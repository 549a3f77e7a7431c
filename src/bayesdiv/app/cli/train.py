"""`bayesdiv train`: train one network and write a run."""

from argparse import Namespace
from pathlib import Path

from bayesdiv.app import options
from bayesdiv.app import training as trainings
from bayesdiv.app.command import OPTION, Command
from bayesdiv.app.console import Pace, print_metrics, say, warn_if_late
from bayesdiv.app.image_recipe import IMAGES
from bayesdiv.app.settings import described, named
from bayesdiv.divergence import JSA, Divergence


def parser() -> Command:
    command = Command(
        "Train one network and write a run. If it is stopped, the same command resumes it.",
        "bayesdiv train diabetes --divergence JSA:0.3 --out runs/diabetes",
    )
    options.add_data(command)
    command.add_argument(OPTION, help="YAML file with any of these settings")
    usual = "; deterministic for a plain network (default: JSA:0.3, for a resnet JSG:0.5)"
    options.add_divergence(command, None, usual)
    command.add_argument("--out", type=str, required=True, help="folder of the run")
    options.add_training(command)
    return command


def train(settings: Namespace) -> None:
    """Train one network and write a run."""
    folder = Path(settings.out)
    divergence: Divergence | None = JSA(0.3) if settings.net == "conv" else IMAGES.divergence
    if settings.divergence is not None:
        divergence = named(settings.divergence)
    splits, training = options.prepared(settings)
    with Pace() as pace:
        tell = pace.teller(described(divergence), training.epochs)
        source = options.data_settings(settings)
        _, result = trainings.train(
            splits, divergence, training, folder=folder, source=source, tell=tell
        )
    print_metrics(result)
    warn_if_late([result], training.epochs)
    say(f"Run: {folder}")
