"""The command line: a file per command, with its help, its `parser` and a function of its name."""

import argparse
import difflib
import importlib
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import bayesdiv
from bayesdiv.app.extra import require

require()

ORDER = ("compare", "train")  # what to start with comes first in the list of commands
DESCRIPTION = "Bayesian neural networks held near their prior by KL, JS-G or bounded JS-A."
EPILOG = "Start with: bayesdiv compare digits --noise 0.5"
UNFORESEEN = 70  # exit code of our own mistakes, EX_SOFTWARE of sysexits.h


def main(arguments: Sequence[str]) -> None:
    """Run the command line; what fails is one sentence on stderr, with exit code 2 or 70."""
    _answered(arguments)
    from bayesdiv.app.console import complain

    try:
        _run(arguments)
    except MemoryError:
        complain("there is not enough memory for this: use fewer rows, units or samples")
    except OSError as error:  # such as a name that is too long for a file
        complain(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "))
    except OverflowError:
        complain("a number in an argument or in the config is too large")
    except (ValueError, TypeError, RuntimeError) as error:  # also DataError, RunError, Diverged
        complain(str(error))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:200]
        descriptor, kept = tempfile.mkstemp(prefix="bayesdiv-")  # for its user's eyes alone
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(traceback.format_exc())
        complain(
            f"{arguments[0]} failed unexpectedly ({said}): please report it and attach "
            f"{kept}, which holds the traceback",
            UNFORESEEN,
        )


def _run(arguments: Sequence[str]) -> None:
    import torch

    logging.getLogger("accelerate").setLevel(logging.ERROR)
    if "OMP_NUM_THREADS" not in os.environ:
        # Networks for tables are small: handing a step to several threads costs more than it saves.
        torch.set_num_threads(1)
    settings = parser(arguments[0]).parse_args(arguments[1:])
    getattr(sys.modules[f"{__name__}.{arguments[0]}"], arguments[0])(settings)


def commands() -> dict[str, str]:
    """The commands, by the names of the files beside this one, and what each does."""
    paths = [path for folder in __path__ for path in Path(folder).glob("[!_]*.py")]
    paths.sort(key=lambda path: (*(path.stem != name for name in ORDER), path.stem))
    # The first line of a file, which is read and not imported.
    lines = {path.stem: path.read_text(encoding="utf-8").partition("\n")[0] for path in paths}
    return {name: line.partition(": ")[2].rstrip('."') for name, line in lines.items()}


def _answered(arguments: Sequence[str]) -> None:
    """Answer --version, --help and unknown commands before anything heavy is imported."""
    plain = argparse.ArgumentParser("bayesdiv", description=DESCRIPTION, epilog=EPILOG)
    plain.add_argument("--version", action="version", version=f"bayesdiv {bayesdiv.__version__}")
    known = commands()
    listed = plain.add_subparsers(title="commands", metavar="COMMAND [options]")
    for name, purpose in known.items():
        listed.add_parser(name, help=purpose)
    if not arguments or arguments[0] not in known:
        if {"-h", "--help", "--version"} & set(arguments[:1]):
            plain.parse_args(arguments)
        wrong = f"{arguments[0]} is not a command" if arguments else "give a command"
        close = difflib.get_close_matches(arguments[0], known, n=1) if arguments else []
        hint = f"did you mean {close[0]}?" if close else f"it must be one of {', '.join(known)}"
        sys.stderr.write(f"bayesdiv: {wrong}; {hint}\n")
        sys.exit(2)


def parser(command: str) -> argparse.ArgumentParser:
    """The parser of a command; the others are not imported."""
    found: argparse.ArgumentParser = importlib.import_module(f"{__name__}.{command}").parser()
    return found
