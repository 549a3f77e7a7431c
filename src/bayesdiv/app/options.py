"""What several commands take: which data, which divergence, how to train."""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesdiv import divergence as divergences
from bayesdiv.app import task as tasks
from bayesdiv.app.data.files import KNOWN, Written
from bayesdiv.app.data.loading import opened, parted, reading_of
from bayesdiv.app.data.noise import Bias
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.data.table import Table
from bayesdiv.app.experiment import Training
from bayesdiv.divergence import Divergence

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

    from bayesdiv.app.data.images import Images


FIRST = ("data", "target", "noise", "bias", "task", "seed")
WRITTEN = ("separator", "decimal", "encoding", "header", "sheet")
READING = ("drop", "impute", "test", "split", *WRITTEN)


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
        help=f"a data set by name, such as diabetes, digits or concrete, or {KNOWN}",
    )
    known = " or ".join(tasks.names())
    add_text(command, "--target", "column to predict; the last if not given")
    add_text(command, "--task", f"what the target is: {known}; else decided from its values")
    add_text(command, "--drop", "columns to leave out: id or id,name")
    filled = "fill missing values by medians or the commonest category, and mark where"
    command.add_argument("--impute", action="store_true", help=filled)
    add_text(command, "--test", "a file with the rows to test on")
    apart = "time:COLUMN tests on the latest rows, group:COLUMN keeps groups of rows in one part"
    add_text(command, "--split", apart)
    add_written(command)
    noise = "standard deviation of noise added once to all inputs"
    command.add_argument("--noise", type=float, default=0.0, help=noise)
    add_text(command, "--bias", "LABEL:KEEP, a class and the share of it to keep: malignant:0.2")


def add_written(command: "ArgumentParser") -> None:
    """The arguments that say how a file is written."""
    add_text(command, "--separator", "what parts the fields of a text file, such as ; or tab")
    add_text(command, "--decimal", "the decimal sign, . or ,")
    add_text(command, "--encoding", "of a text file, such as latin-1; UTF-8 if not given")
    add_text(command, "--header", "whether the first line has the names of the columns: yes or no")
    add_text(command, "--sheet", "of an Excel file; the first if not given")


def add_text(command: "ArgumentParser", name: str, said: str) -> None:
    """An option that may be left out."""
    command.add_argument(name, type=str | None, default=None, help=said)


def add_page(command: "ArgumentParser", usual: str) -> None:
    """The option that `page_path` reads."""
    said = "file for the page, one for all of it"
    command.add_argument("--out", "-o", type=str, default=usual, help=said)


def page_path(settings: "Namespace") -> Path:
    """The file for a page."""
    path = Path(settings.out)
    if path.suffix != ".html" or path.is_dir():
        raise ValueError(f"out must be an .html file, got {path}")
    return path


def open_data(settings: "Namespace") -> "Table | Images":
    """The data that a command is to use, read once."""
    return opened(settings.data, **reading_of(settings.as_dict()))


def part_data(source: "Table | Images", settings: "Namespace", seed: int) -> Splits:
    """The data in three parts, split by this seed."""
    bias = None if settings.bias is None else Bias.parse(settings.bias)
    return parted(source, seed=seed, noise=settings.noise, bias=bias)


def written_of(settings: "Namespace", source: Mapping[str, Any]) -> Written:
    """How a new file is written: as the options say, else as the file of the run was."""
    given = {name: settings[name] or source.get(name) for name in WRITTEN}
    written: Written = reading_of({"target": None, **given})["written"]
    return written


def data_settings(settings: "Namespace") -> dict[str, Any]:
    """Where the data come from, to be kept with a result; a file by its whole path."""
    told = {name: settings[name] for name in (*FIRST, *READING)}
    for name in ("data", "test"):
        if told[name] is not None and Path(told[name]).exists():
            told[name] = str(Path(told[name]).resolve())
    return {name: value for name, value in told.items() if name in FIRST or value}


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
    if name not in known():
        raise ValueError(unknown(text, "or deterministic"))
    kind: Any = getattr(divergences, name)
    if alpha and "alpha" not in {f.name for f in fields(kind)}:
        raise ValueError(f"{name} has no alpha, got {text!r}")
    alpha = alpha or {"JSG": "0.1", "JSA": "0.5"}.get(name, "")
    try:
        made: Divergence = kind(float(alpha)) if alpha else kind()
        return made
    except (ValueError, TypeError) as error:
        raise ValueError(f"alpha of {text!r}: {error}") from None


def known() -> list[str]:
    """The names of all divergences."""
    kinds = {name: getattr(divergences, name) for name in divergences.__all__}
    ours = {name: kind for name, kind in kinds.items() if isinstance(kind, type)}
    return [
        n for n, kind in ours.items() if issubclass(kind, Divergence) and kind is not Divergence
    ]


def unknown(text: str, other: str) -> str:
    """What to say of a name that is no divergence: it may be misspelt.

    Examples:
        >>> unknown("Reny", "or an import path")
        'Reny is not a known divergence; did you mean Renyi?'
    """
    close = difflib.get_close_matches(text.partition(":")[0], known(), n=1)
    hint = f"; did you mean {close[0]}?" if close else f": give one of {', '.join(known())} {other}"
    return f"{text} is not a known divergence{hint}"
