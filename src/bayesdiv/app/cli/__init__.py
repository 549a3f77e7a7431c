"""The command line: a file per command, with its `parser` and a function of the command's name.

The first line of a file, after the command, is what `bayesdiv --help` says about it.
"""

import argparse
import difflib
import importlib
import logging
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bayesdiv
from bayesdiv.app.extra import require
from bayesdiv.app.stop import Terminated, code_of, stoppable

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

require()

ORDER = ("compare", "train")  # what to start with comes first in the list of commands
DESCRIPTION = "Bayesian neural networks held near their prior by KL, JS-G or bounded JS-A."
EPILOG = "Start with: bayesdiv compare digits --noise 0.5"
UNFORESEEN = 70  # exit code of our own mistakes, EX_SOFTWARE of sysexits.h


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2.

    An unexpected failure is one sentence too, with the path of its traceback and exit code 70.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    _answered(arguments)
    from rich.markup import escape

    from bayesdiv.app.console import complain, errors

    command = arguments[0]
    try:
        with stoppable():
            _run(arguments)
    except KeyboardInterrupt as stop:
        by = " by SIGTERM" if isinstance(stop, Terminated) else ""
        then = str(stop) or "the same command resumes it" * (command == "train")
        said = escape(f"stopped{by}" + f"; {then}" * bool(then))
        errors.print(f"[bold]bayesdiv:[/] {said}", soft_wrap=True)
        sys.exit(code_of(stop))
    except MemoryError:
        complain("there is not enough memory for this: use fewer rows, units or samples")
    except OSError as error:  # such as a name that is too long for a file
        complain(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "))
    except (ValueError, TypeError, RuntimeError) as error:  # also DataError, RunError, Diverged
        complain(str(error))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:200]
        descriptor, kept = tempfile.mkstemp(prefix="bayesdiv-")  # for its user's eyes alone
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(traceback.format_exc())
        complain(
            f"{command} failed unexpectedly ({said}): please report it and attach "
            f"{kept}, which holds the traceback",
            UNFORESEEN,
        )


def _run(arguments: Sequence[str]) -> None:
    import torch
    from jsonargparse import ArgumentError

    from bayesdiv.app.config import check
    from bayesdiv.app.console import complain

    logging.getLogger("accelerate").setLevel(logging.ERROR)
    if "OMP_NUM_THREADS" not in os.environ:
        # Networks for tables are small: handing a step to several threads costs more than it saves.
        torch.set_num_threads(1)
    try:
        check(arguments)
        if dotted := re.search(r"(?m)^--divergence\.\w+", "\n".join(arguments)):
            complain(f"{arguments[0]} has no option {dotted[0]}; write --divergence JSA:0.3")
        whole = parser(arguments[0])
        settings = whole.instantiate(whole.parse_args(list(arguments)))
    except OverflowError:
        complain("a number in an argument or in the config is too large")
    except (argparse.ArgumentTypeError, ValueError, TypeError, RecursionError, ArgumentError) as e:
        complain(_plain(str(e), arguments[0]))
    getattr(_module(settings.command), settings.command)(settings[settings.command])


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


def parser(command: str) -> "ArgumentParser":
    """The parser of the command line for one of its commands; the others are not imported."""
    from jsonargparse import ArgumentParser

    from bayesdiv.app.options import PlainHelp

    whole = ArgumentParser(
        prog="bayesdiv",
        description=DESCRIPTION,
        epilog=EPILOG,
        exit_on_error=False,
        formatter_class=PlainHelp,
    )
    whole.add_subcommands(dest="command").add_subcommand(command, _module(command).parser())
    return whole


def _module(command: str) -> Any:
    return importlib.import_module(f"bayesdiv.app.cli.{command}")


def _plain(message: str, command: str) -> str:
    """The sentence in a parser's message that a user of a command can act on."""
    own = _module(command).parser()
    if surplus := re.search(r"[Uu]nrecognized arguments: (\S+)", message):
        given = surplus[1].partition("=")[0]
        if not given.startswith("-"):
            return f"{command} does not take {given!r}; see bayesdiv {command} --help"
        known = {
            name.lstrip("-"): name for action in own._actions for name in action.option_strings
        }
        close = difflib.get_close_matches(given.lstrip("-"), known, n=1, cutoff=0.65)
        hint = f"did you mean {known[close[0]]}?" if close else f"see bayesdiv {command} --help"
        return f"{command} has no option {given}; {hint}"
    if left_out := re.search(r"arguments are required: (.*)", message):
        by_place = {action.dest for action in own._actions if not action.option_strings}
        names = [name.partition(".")[2] for name in left_out[1].split(", ")]
        shown = [name.upper() if name in by_place else f"--{name}" for name in names]
        listed = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
        return f"{command} needs {listed}, as in: {own.epilog.removeprefix('Example: ')}"
    message = re.sub(r"^argument --[\w.]+: ", "", message)
    lines = [line.strip(" -") for line in message.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r" must (lie|be) .*, got ", line)]
    if told:
        return told[-1]
    for rule, pattern in (
        ("of type", r"?<class \'(\w+)\'>\. Got value: (.*)"),
        ("of type", r"Subtypes: \[<class \'(\w+)\'>, .*Given value: (.*)"),
        ("one of", r"?Literal\[(.*)\]\. Got value: (.*)"),
    ):
        if found := re.search(rf'key "([\w.]+)".*{pattern}', message, re.S):
            return f"{found[1]} must be {rule} {found[2]}, got {found[3]}"
    return re.sub(rf"\b({'|'.join(commands())})\.", "--", "; ".join(lines[:2]))
