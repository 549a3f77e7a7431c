"""Configs looked at before they are read: what they may name, and how much they may hold."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayesdiv.app.runs import check_file

OPTION = "--config"
MOST = 1 << 16  # bytes of a config
MOST_BRACKETS = 500  # the time that YAML takes grows with the square of their depth


def check(arguments: Sequence[str]) -> None:
    """Refuse configs that would blow up, and those that have code of others imported.

    A class of another package that a config names is imported, and importing runs its code. It must
    be named on the command line too.
    """
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        spelt, equal, rest = option.partition("=")
        # An unambiguous beginning of an option is the option.
        if len(spelt) <= 3 or not OPTION.startswith(spelt):
            continue
        given = rest if equal else value
        content = _content(given)
        named = str(content.get("divergence")) if isinstance(content, dict) else ""
        for name in re.findall(r"[^\W\d][\w.]*", named):  # JSA of JSA:0.3
            ours = name.startswith("bayesdiv.") or "." not in name
            if not ours and not any(name in each for each in arguments if given not in each):
                raise ValueError(
                    f"a config must not name code outside bayesdiv, got {name}: give it on the "
                    f"command line, as in --divergence {name}"
                )


def _content(given: str) -> Any:
    """A config as plain lists and mappings; it is a file, or the text itself."""
    import yaml  # type: ignore[import-untyped]

    path = Path(given)
    if len(given) < 4096 and "\n" not in given and path.exists():
        check_file(path, MOST)
        try:
            given = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be UTF-8 text, got: {error.reason}") from None
    if sum(map(given.count, "[{")) > MOST_BRACKETS:
        raise ValueError(f"a config must have at most {MOST_BRACKETS} brackets, got more")
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(given)):
            raise ValueError("a config must be without YAML aliases (*name): write values out")
        return yaml.safe_load(given)
    except yaml.YAMLError as error:
        line = " ".join(str(error).split())
        name = path if path.exists() else "config"
        raise ValueError(f"{name} is not valid YAML: {line}") from None
