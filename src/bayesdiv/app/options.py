"""What several commands take: which data, which divergence, how to train."""

import difflib
import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesdiv import divergence as divergences
from bayesdiv.app import task as tasks
from bayesdiv.app.data.loading import opened, parted
from bayesdiv.app.data.noise import Bias
from bayesdiv.app.data.splits import DataError, Splits
from bayesdiv.app.data.table import Table
from bayesdiv.app.experiment import Training
from bayesdiv.divergence import JSA, JSG, Divergence

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from bayesdiv.app.data.images import Images


def command_parser(description: str, example: str) -> "ArgumentParser":
    """A parser with one worked example at its end."""
    from jsonargparse import ArgumentParser

    return ArgumentParser(
        description=description, epilog=f"Example: {example}", exit_on_error=False
    )


def add_data(command: "ArgumentParser") -> None:
    """The arguments that `open_data` and `part_data` read."""
    command.add_argument(
        "data",
        type=str,
        help="a data set by name, such as diabetes, digits or concrete, or a .csv or .parquet file",
    )
    command.add_argument(
        "--target", type=str | None, default=None, help="column to predict; the last if not given"
    )
    command.add_argument(
        "--noise",
        type=float,
        default=0.0,
        help="standard deviation of noise added once to all inputs",
    )
    command.add_argument(
        "--bias",
        type=str | None,
        default=None,
        help="LABEL:KEEP, a class of which a share is kept, such as malignant:0.2",
    )
    command.add_argument(
        "--task",
        type=str | None,
        default=None,
        help=f"what the target is: {' or '.join(tasks.names())}; else decided from its values",
    )


def open_data(settings: "Namespace") -> "Table | Images":
    """The data that a command is to use, read once."""
    task = None if settings.task is None else tasks.named(settings.task)
    return opened(settings.data, target=settings.target, task=task)


def part_data(source: "Table | Images", settings: "Namespace", seed: int) -> Splits:
    """The data in three parts, split by this seed."""
    bias = None if settings.bias is None else Bias.parse(settings.bias)
    if not math.isfinite(settings.noise):
        raise DataError(f"noise must be finite and not negative, got {settings.noise}")
    return parted(source, seed=seed, noise=settings.noise, bias=bias)


def data_settings(settings: "Namespace") -> dict[str, Any]:
    """Where the data come from, to be kept with a result; a file by its whole path."""
    names = ("data", "target", "noise", "bias", "task", "seed")
    told = {name: settings[name] for name in names}
    if Path(settings.data).exists():
        told["data"] = str(Path(settings.data).resolve())
    return told


def training_of(settings: "Namespace") -> Training:
    """How a command is to train."""
    names = {f.name for f in fields(Training)}
    return Training(**{name: settings[name] for name in names if name in settings})


def named(text: str) -> Divergence | None:
    """A divergence by its name, with alpha after a colon: KL, JSA:0.3; None for deterministic.

    Examples:
        >>> named("JSA:0.3")
        JSA(alpha=0.3)
    """
    name, _, alpha = text.partition(":")
    if name == "deterministic":
        return None
    kind: Any = getattr(divergences, name, None)
    if kind is None or not _is_divergence(kind):
        raise ValueError(unknown(text, "or deterministic"))
    if alpha and "alpha" not in {f.name for f in fields(kind)}:
        raise ValueError(f"{name} has no alpha, got {text!r}")
    if not alpha:
        usual: dict[str, Divergence] = {"JSG": JSG(0.1), "JSA": JSA(0.5)}
        plain: Divergence = usual.get(name) or kind()
        return plain
    try:
        made: Divergence = kind(float(alpha))
        return made
    except (ValueError, TypeError) as error:
        raise ValueError(f"alpha of {text!r}: {error}") from None


def known() -> list[str]:
    """The names of all divergences."""
    return [n for n in divergences.__all__ if _is_divergence(getattr(divergences, n))]


def unknown(text: str, other: str) -> str:
    """What to say of a name that is no divergence: it may be misspelt.

    Examples:
        >>> unknown("Reny", "or an import path")
        'Reny is not a known divergence; did you mean Renyi?'
    """
    close = difflib.get_close_matches(text.partition(":")[0], known(), n=1)
    hint = f"; did you mean {close[0]}?" if close else f": give one of {', '.join(known())} {other}"
    return f"{text} is not a known divergence{hint}"


def _is_divergence(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Divergence) and kind is not Divergence
