"""Tables as files: CSV for programs, Markdown for pages, LaTeX for papers."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from bayesdiv.app import runs

_SIGNS = {
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "½": r"$\frac12$",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "χ": r"$\chi$",
    "é": r"\'e",
    "%": r"\%",
    "_": r"\_",
}


def tex(text: str) -> str:
    r"""A text as LaTeX shows it.

    Examples:
        >>> tex("λKL ±5 %")
        '$\\lambda$KL $\\pm$5 \\%'
    """
    return "".join(_SIGNS.get(sign, sign) for sign in text)


def write(
    out: Path, name: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str
) -> list[Path]:
    """A table as CSV, Markdown and LaTeX, with a sentence on what it shows."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    body = [" & ".join(map(tex, row)) + r" \\" for row in rows]
    latex = [
        f"% {note}",
        "% Needs the package booktabs.",
        rf"\begin{{tabular}}{{l{'c' * (len(head) - 1)}}}",
        rf"\toprule {' & '.join(map(tex, head))} \\ \midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    written = {
        ".csv": text.getvalue(),
        ".md": "\n".join([note, "", *lines, ""]),
        ".tex": "\n".join([*latex, ""]),
    }
    for ending, content in written.items():
        runs.write(out / f"{name}{ending}", content.encode())
    return [out / f"{name}{ending}" for ending in written]
