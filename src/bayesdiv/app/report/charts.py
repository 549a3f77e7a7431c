"""The data of charts, which the page draws with Vega-Lite, with a table behind each.

Names that a user chose are values, never names of fields. The field `run` has the colours and
dashes of `series`, variables of the page, so that charts fit light, dark and print.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from bayesdiv.app import plots
from bayesdiv.app.report.markup import Html, document, element
from bayesdiv.app.report.reading import versions

Values = list[dict[str, Any]]
Columns = Mapping[str, Iterable[object]]

# The hues of print are too dim on dark; the others differ from them and from each other.
ON_DARK = {"KL": "#5ab1ec", "JSG": "#2fcb9d", "JSA": "#ff8f45", "deterministic": "#b9b9b9"}
OTHERS = ("#a3437f", "#8a6100", "#4b3fae", "#000000", "#7d1f2b")
OTHERS_ON_DARK = ("#ea9dcb", "#eec04f", "#a99ff5", "#f2f2f0", "#f08b93")
DASHES = {"KL": (1, 0), "JSG": (8, 4), "JSA": (9, 3, 2, 3), "deterministic": (2, 3)}
OTHER_DASHES = ((1, 0), (12, 3), (5, 2, 2, 2), (3, 2), (10, 2, 2, 2, 2, 2))


@dataclass(frozen=True)
class Series:
    """How what belongs to one run looks in every chart."""

    name: str  # the value of the field run
    label: str  # as the legend has it
    light: str  # colour on light pages
    dark: str  # colour on dark ones
    dash: tuple[int, ...]  # of its lines


def series(runs: Iterable[tuple[str, str, str]]) -> list[Series]:
    """A look for each run, from its name, label and loss: the first of each loss has its colour."""
    own = {loss: (plots.COLOURS[loss], ON_DARK[loss], DASHES[loss]) for loss in ON_DARK}
    others = cycle(zip(OTHERS, OTHERS_ON_DARK, OTHER_DASHES, strict=True))
    return [
        Series(name, label, *(own.pop(family) if family in own else next(others)))
        for name, label, loss in runs
        for family in [re.split(r"[(:]", loss)[0]]  # JSA of JSA:0.3
    ]


def _script(content: object, **attributes: object) -> Html:
    # A text that ends the script, or begins a comment, must not be seen in it.
    text = json.dumps(content, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")
    return element("script", Html(text), type="application/json", **attributes)


def rows(columns: Columns, **same: object) -> Values:
    """Values for a chart from columns; what is the same in all comes first."""
    return [
        {**same, **dict(zip(columns, each, strict=True))}
        for each in zip(*columns.values(), strict=True)
    ]


def chart(title: str, said: str, values: Values, kind: str, **options: object) -> Html:
    """A figure with a chart, whose kinds and options are in `page.js`, and the table behind it."""
    finite = [{name: _finite(field) for name, field in value.items()} for value in values]
    told = {"kind": kind, **options, "values": finite}
    return element(
        "figure",
        element("figcaption", element("b", title), said),
        element("div", class_="plot", role="img", aria_label=f"{title}: {said}" if said else title),
        _script(told),
        element("details", element("summary", "Numbers of this chart")),
        class_="chart",
    )


def _finite(field: object) -> object:
    """The same as JSON has it: to nine digits, and a gap where a number is not finite."""
    if not isinstance(field, float):
        return field
    return float(f"{field:.9g}") if math.isfinite(field) else None


def charts(*figures: Html) -> Html:
    """Figures side by side where there is room."""
    return element("div", figures, class_="charts")


def framed(title: str, runs: Iterable[tuple[str, str, str]], parts: Iterable[Html]) -> str:
    """A page with charts of runs, given as `series` takes them."""
    every = series(runs)
    light, dark = (
        ";".join(f"--s{place}:{hue}" for place, hue in enumerate(hues))
        for hues in zip(*((one.light, one.dark) for one in every), strict=True)
    )
    style = f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    looks = [{"name": one.name, "label": one.label, "dash": one.dash} for one in every]
    head = element("header", element("h1", title), element("p", versions()))
    return document(title, style, head, element("main", parts), _script(looks, id="looks"))
