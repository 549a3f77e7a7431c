"""Every sentence of the project that a person reads: pages, docstrings, messages and help."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
CODE = ("src/bayesdiv", "reproduction", "tutorials", "tools", "examples")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs")


class Text(NamedTuple):
    """A piece of prose, and where it is."""

    place: str
    words: str


def texts() -> list[Text]:
    """All of it."""
    pages = [path for name in PAGES for path in _files(ROOT / name, "md")]
    sources = [path for name in CODE for path in _files(ROOT / name, "py")]
    return [*(t for p in pages for t in _of_page(p)), *(t for p in sources for t in _of_code(p))]


def _files(place: Path, ending: str) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob(f"*.{ending}"))


def _of_page(path: Path) -> Iterator[Text]:
    """Paragraphs of a page, without code and formulas."""
    blank = re.sub(r"^```.*?^```|\$\$.*?\$\$", _lines, path.read_text("utf-8"), flags=re.M | re.S)
    for found in re.finditer(r"(?:^.*\S.*\n?)+", blank, re.M):
        words = re.sub(r"`[^`]*`", "`x`", " ".join(found[0].split()))
        yield Text(_place(path, blank[: found.start()].count("\n") + 1), words)


def _lines(found: "re.Match[str]") -> str:
    return "\n" * found[0].count("\n")


def _of_code(path: Path) -> Iterator[Text]:
    """Docstrings, and other strings with a space between words; comments in a tutorial's cells."""
    text = path.read_text("utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = " ".join(node.value.split())
            if re.search(r"[a-z]+ [a-z]+", words):
                yield Text(_place(path, node.lineno), re.sub(r"`[^`]*`", "`x`", words))
    if path.parent.name == "tutorials":
        said = re.findall(r"^# (?!%%)(.*)$", text, re.M)
        yield Text(_place(path, 1), " ".join(said))


def _place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"
