"""Drawings of the page on what a Bayesian network buys, from the committed results."""

from collections.abc import Callable
from functools import partial
from statistics import fmean

from benchmarks.field import page
from reproduction.plots import COLOURS
from tools.figures import blank, svg
from tools.ink import INK

_OURS = {"KL": "KL", "JS-G": "JSG", "JS-A": "JSA"}


def drawn(name: str, found: dict[str, list[float]]) -> str:
    """One score: a dot per seed, a line at the mean, a row per method; ours are coloured."""
    figure, (axes,) = blank(1)
    for place, (title, values) in enumerate(reversed(found.items())):
        ours = next((own for word, own in _OURS.items() if word in title), None)
        colour = INK if ours is None else COLOURS[ours]
        axes.plot(values, [place] * len(values), "o", color=colour, markersize=5, alpha=0.6)
        axes.plot(fmean(values), place, "|", color=colour, markersize=16, markeredgewidth=2)
    axes.set_yticks(range(len(found)), list(reversed(found)), fontsize=10)
    axes.set_title(page.TITLES_DRAWN[name], color=INK, fontsize=11)
    axes.grid(axis="x", color=INK, alpha=0.25)
    axes.margins(y=0.08)
    return svg(figure)


def field_figures() -> dict[str, Callable[[], str]]:
    """Every drawing of the page by its name."""
    return {name: partial(drawn, name, found) for name, found in page.drawings().items()}
