"""Figures as drawings (SVG), which are small and read on light pages, dark ones and on paper."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bayesdiv.app import runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MANY = 200  # marks without a line: more of them are smaller as dots than as drawings
DOTS = 120  # per inch
# What matplotlib draws black takes the colour of the reader's theme; dark grey becomes a mid grey.
STYLE = (
    "<style>svg { color: #1b1b1b } text { fill: currentColor } "
    "@media screen and (prefers-color-scheme: dark) { svg { color: #ececea } }</style>"
)
SHORTER = {
    "#000000": "currentColor",
    "#555555": "#808080",
    r"(\.\d\d)\d+": r"\1",  # a hundredth of a point is enough
    r"\s*\n\s*": "\n",
    r"(font[^;\"]*?: [^;\"']*)'DejaVu Sans'[^;\"]*": r"\1sans-serif",
}


def save(figure: "Figure", path: Path) -> list[Path]:
    """Write a figure whole or not at all; the same figure gives the same file."""
    import matplotlib as mpl
    from matplotlib.lines import Line2D

    for line in figure.findobj(Line2D):
        line.set_rasterized(line.get_linestyle() == "None" and np.size(line.get_xdata()) > MANY)
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "reproduction", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", dpi=DOTS, transparent=True, metadata={"Date": None})
    head, start, body = out.getvalue().partition("<defs>")
    for written, short in SHORTER.items():
        body = re.sub(written, short, body)
    runs.write(path, (head + STYLE + start + body).encode())
    return [path]
