"""Figures as drawings (SVG), which are small and read on light pages, dark ones and on paper."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from bayesdiv.app import runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What matplotlib draws black takes the colour of the reader's theme; dark grey becomes a mid grey.
STYLE = (
    "<style>svg { color: #1b1b1b } text { fill: currentColor } "
    "@media screen and (prefers-color-scheme: dark) { svg { color: #ececea } }</style>"
)


def save(figure: "Figure", path: Path) -> list[Path]:
    """Write a figure whole or not at all; the same figure gives the same file."""
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "reproduction", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", dpi=100, transparent=True, metadata={"Date": None})
    head, start, body = out.getvalue().partition("<defs>")
    for fixed, seen in {"#000000": "currentColor", "#555555": "#808080"}.items():
        body = body.replace(fixed, seen)
    runs.write(path, (head + STYLE + start + body).encode())
    return [path]
