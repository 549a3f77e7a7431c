"""What several commands are told: which data, which divergence, how to train."""

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesdiv import divergence as divergences
from bayesdiv.app.data import Bias, DataError, Splits, load
from bayesdiv.app.experiment import Training, asked_task
from bayesdiv.divergence import JSA, JSG, Divergence

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace


def command_parser(description: str, example: str) -> "ArgumentParser":
    """A parser with one worked example at its end."""
    from jsonargparse import ArgumentParser

    return ArgumentParser(
        description=description, epilog=f"Example: {example}", exit_on_error=False
    )


def add_data(command: "ArgumentParser") -> None:
    """The arguments that `load_data` reads."""
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
        "--as_classes",
        type=bool | None,
        default=None,
        help="true or false: whether the target is a class; decided from its values if not given",
    )


def load_data(settings: "Namespace", seed: int) -> Splits:
    """The data a command is told to use, split by this seed."""
    bias = None if settings.bias is None else Bias.parse(settings.bias)
    if not math.isfinite(settings.noise):
        raise DataError(f"noise must be finite and not negative, got {settings.noise}")
    return load(
        settings.data,
        target=settings.target,
        seed=seed,
        noise=settings.noise,
        bias=bias,
        task=asked_task(settings.as_classes),
    )


def data_settings(settings: "Namespace") -> dict[str, Any]:
    """What `load_data` was told, to be kept with a result; a file by its whole path."""
    names = ("data", "target", "noise", "bias", "as_classes", "seed")
    told = {name: settings[name] for name in names}
    if Path(settings.data).exists():
        told["data"] = str(Path(settings.data).resolve())
    return told


def training_of(settings: "Namespace") -> Training:
    """How a command is told to train."""
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
        raise ValueError(
            f"{text!r} is no divergence: give one of {', '.join(known())} or deterministic"
        )
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


def _is_divergence(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Divergence) and kind is not Divergence
