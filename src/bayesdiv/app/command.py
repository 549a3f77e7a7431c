"""A command's arguments: their help, what is said of wrong ones, and configs that hold some."""

import re
from argparse import ArgumentParser, HelpFormatter, Namespace
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from bayesdiv.app.runs import check_file

OPTION = "--config"
MOST = 1 << 16  # bytes of a config
MOST_BRACKETS = 500  # the time that YAML takes grows with the square of their depth


class Command(ArgumentParser):
    """A parser of arguments of text, with a worked example, that refuses with a `ValueError`.

    All that does not begin with -- or end with a ? must be given.
    """

    def __init__(
        self, description: str, example: str, arguments: Mapping[str, str] | None = None, **how: Any
    ) -> None:
        super().__init__(
            " ".join(example.split()[:2]),
            description=description,
            epilog=f"Example: {example}",
            formatter_class=_Help,
            allow_abbrev=False,
            **how,
        )
        for name, said in (arguments or {}).items():
            self.add_argument(name.rstrip("?"), help=said, nargs="?" if name[-1] == "?" else None)

    def parse_args(self, arguments: Any = None, namespace: Any = None) -> Namespace:  # type: ignore[override]
        """The settings that the arguments say; those of a config stand before them."""
        if OPTION in self._option_string_actions:
            arguments = _expanded(list(arguments))
        settings: Namespace = super().parse_args(arguments, namespace)
        for name, value in vars(settings).items():
            if "" in (value if isinstance(value, list) else [value]):
                raise ValueError(f"{name} must not be empty, got '': give it a value")
        return settings

    def error(self, message: str) -> NoReturn:
        """Say what a user can act on, in place of argparse's own words."""
        name, example = self.prog.rpartition(" ")[2], str(self.epilog).partition(": ")[2]
        if surplus := re.search(r"unrecognized arguments: (.*)", message, re.S):
            raise ValueError(f"{name} {self._surplus(surplus[1].split(' ')[0], name)}")
        if left_out := re.search(r"arguments are required: (.*)", message):
            each = [one.partition("/")[0] for one in left_out[1].split(", ")]
            shown = [one if one.startswith("-") else one.upper() for one in each]
            listed = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
            raise ValueError(f"{name} needs {listed}, as in: {example}")
        said = re.sub(r"^argument -*(\w+)\S*: ", r"\1: ", message)
        value = r" value: (?:'(.+)'|(.*))$"
        said = re.sub(f": invalid int{value}", r" must be a whole number, got \1\2", said)
        said = re.sub(f": invalid float{value}", r" must be a number, got \1\2", said)
        said = re.sub(r"^(\w+): ignored explicit argument", r"--\1 takes no value, got", said)
        rule = r": invalid choice: '?(.*?)'? \(choose from (.*)\)"
        said = re.sub(rule, r" must be one of \2, got \1", said)
        raise ValueError(said.replace(": must", " must").replace(": expected", " needs"))

    def _surplus(self, given: str, name: str) -> str:
        """What to say of an argument that the command of this name does not have."""
        given, known = given.partition("=")[0], self._option_string_actions
        hint = f"see bayesdiv {name} --help"
        if not given.startswith("-"):
            return f"does not take {given!r}; {hint}"
        if close := get_close_matches(given.partition(".")[0], known, n=1, cutoff=0.7):
            hint = f"did you mean {close[0]}?"
            if given.startswith("--divergence."):
                hint = f"write {close[0]} JSA:0.3"
        return f"has no option {given}; {hint}"


class _Help(HelpFormatter):
    """Help that shows what each option is for and its default."""

    def _get_help_string(self, action: Any) -> str:
        usual = action.default if action.option_strings else None
        typed = " ".join(map(str, usual)) if isinstance(usual, list | tuple) else usual
        shown = "" if usual in (None, False, "==SUPPRESS==") else f" (default: {typed})"
        return (action.help or "").removesuffix(".").replace("%", "%%") + shown

    def _format_usage(self, usage: Any, actions: Any, *rest: Any, **more: Any) -> str:
        places = [action for action in actions if not action.option_strings]
        needed = [a.option_strings[0] for a in actions if a.option_strings and a.required]
        line = super()._format_usage(usage, places, *rest, **more).rstrip()
        return line + "".join(f" {name} {name[2:].upper()}" for name in needed) + " [options]\n\n"


def _expanded(arguments: Sequence[str]) -> list[str]:
    """Arguments with the settings of their config as options before them.

    Code of others that it names must be named on the command line too: importing runs it.
    """
    found, own = Command("", "", {OPTION: ""}, add_help=False).parse_known_args(arguments)
    if found.config is None:
        return own
    content = _content(found.config)
    if not isinstance(content, dict) or not all(str(name).isidentifier() for name in content):
        raise ValueError(f"a config must hold names and values, got {str(content)[:60]}")
    for name in re.findall(r"[^\W\d]\w*\.[\w.]*", str(content.get("divergence"))):
        if not (name.startswith("bayesdiv.") or any(name in each for each in own)):
            said = f"give it on the command line, as in --divergence {name}"
            raise ValueError(f"a config must not name code outside bayesdiv, got {name}: {said}")
    for name, value in reversed(content.items()):
        said = ",".join(map(str, value)) if isinstance(value, list) else value
        if said is not None and said is not False:
            own.insert(0, f"--{name}" if value is True else f"--{name}={said}")
    return own


def _content(given: str) -> Any:
    """The YAML file of a config as plain lists and mappings, unless it would blow up."""
    import yaml  # type: ignore[import-untyped]

    path = Path(given)
    check_file(path, MOST)
    try:
        text = path.read_text(encoding="utf-8")
        if sum(map(text.count, "[{")) > MOST_BRACKETS:
            raise ValueError(f"a config must have at most {MOST_BRACKETS} brackets, got more")
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError("a config must be without YAML aliases (*name): write values out")
        return yaml.safe_load(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text, got: {error.reason}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or "it holds control characters"
        raise ValueError(f"{path} is not valid YAML{where} ({why}): correct it") from None
