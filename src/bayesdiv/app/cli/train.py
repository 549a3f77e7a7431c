"""`bayesdiv train`: train one network and write a run."""

from argparse import Namespace
from pathlib import Path

from torch import Tensor

from bayesdiv.app import options
from bayesdiv.app import training as trainings
from bayesdiv.app.command import OPTION, Command
from bayesdiv.app.console import Pace, print_metrics, say, warn_if_late
from bayesdiv.app.image_recipe import IMAGES
from bayesdiv.app.settings import described, loss, named, restore
from bayesdiv.divergence import JSA, Divergence
from bayesdiv.model.bayesianize import plain


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
        tell = pace.teller(loss(described(divergence)), training.epochs)
        _, result = trainings.train(
            splits,
            divergence,
            training,
            folder=folder,
            source=options.data_settings(settings),
            tell=tell,
            weights=_pretrained(training.pretrained),
        )
    print_metrics(result)
    warn_if_late([result], training.epochs)
    say(f"Run: {folder}")


def _pretrained(given: str | None) -> dict[str, Tensor] | None:
    """The initial weights: of a file, or the means of a run."""
    if given is None:
        return None
    if Path(given).is_dir():
        model = plain(restore(Path(given))[0].model)
        return {name.partition(".")[2]: own for name, own in model.state_dict().items()}
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(given))
    except (OSError, SafetensorError) as error:
        raise ValueError(f"pretrained must be a .safetensors file, got {given}: {error}") from None
