"""Pages of escaped HTML, with charts that Vega-Lite draws and a table behind each.

All text is escaped unless it is markup already. Names that a user chose are values of charts, never
names of fields. The field `run` has colours and dashes in `page.css` and `page.js`.
"""

import base64
import hashlib
import html
import json
import math
import platform
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

import bayesdiv

Values = list[dict[str, Any]]
Columns = Mapping[str, Iterable[object]]

VOID = {"br", "img"}  # elements without an end


class Html(str):
    """Markup, made by `element`; other text is escaped where it is put among markup."""

    __slots__ = ()


Content = str | Iterable[str]


def element(tag: str, *content: Content, **attributes: object) -> Html:
    """An element around some content; class_ is the attribute class, aria_label aria-label."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    told = "".join(f' {name}="{html.escape(str(value))}"' for name, value in named.items())
    start = f"<{tag}{told}>"
    return Html(start if tag in VOID else f"{start}{joined(*content)}</{tag}>")


def joined(*content: Content) -> Html:
    """Pieces one after the other, text among them escaped."""
    pieces = (piece for part in content for piece in ([part] if isinstance(part, str) else part))
    return Html("".join(p if isinstance(p, Html) else html.escape(p) for p in pieces))


def section(title: str, *content: Content, kind: str = "") -> Html:
    """A part of a page, with its heading and what `notes.toml` says of it, or of a kind of it."""
    notes = tomllib.loads(_file("notes.toml"))
    said = [note(notes[name]) for name in (title, f"{title}: {kind}") if name in notes]
    return element("section", element("h2", title), *said, *content, class_="panel")


def note(*content: Content) -> Html:
    """A paragraph that explains."""
    return element("p", *content, class_="note")


def table(
    label: str, head: Sequence[Content], rows: Iterable[Sequence[Content]], **attributes: object
) -> Html:
    """A table in a box that scrolls sideways; the first cell of each row is its heading."""
    body = [
        element("tr", element("th", row[0], scope="row"), (element("td", cell) for cell in row[1:]))
        for row in rows
    ]
    heads = element("tr", (element("th", cell, scope="col") for cell in head))
    parts = element("thead", heads), element("tbody", body)
    whole = element("table", *parts, **attributes, aria_label=label)
    return element("div", whole, class_="scroll", role="region", aria_label=label, tabindex=0)


def plain(value: object) -> str:
    """A value as a file has it: 0 and not 0.0, 007 and not 7."""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def data_uri(content: bytes, kind: str) -> str:
    """A file inside an address, such as an image."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def document(title: str, style: str, *body: Content) -> str:
    """A whole page that fetches nothing, and runs no script but ours, which it has by hashes."""
    content = element("body", *body)
    vega = ("vega/vega.min.js", "vega/vega-lite.min.js", "vega/vega-interpreter.min.js")
    scripts = [_file(name) for name in (*vega, "page.js")] if 'class="chart"' in content else []
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}"
    held = {"policy": policy, "title": html.escape(title), "body": content}
    held |= {"style": f"{_file('page.css')}\n{style}"}
    held |= {"scripts": joined(element("script", Html(script)) for script in scripts)}
    return re.sub(r"{{(\w+)}}", lambda found: held[found[1]], _file("page.html"))


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _script(content: object, **attributes: object) -> Html:
    # A text that ends the script, or begins a comment, must not be seen in it.
    text = json.dumps(content, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")
    return element("script", Html(text), type="application/json", **attributes)


def rows(columns: Columns, **same: object) -> Values:
    """Values for a chart from columns; what is the same in all comes first."""
    every = zip(*columns.values(), strict=True)
    return [{**same, **dict(zip(columns, each, strict=True))} for each in every]


def thinned(values: Tensor, most: int) -> Tensor:
    """At most so many of the values for a chart, evenly apart, both ends among them."""
    return values[torch.linspace(0, len(values) - 1, min(len(values), most)).round().long()]


def chart(title: str, said: str, values: Values, kind: str, **options: object) -> Html:
    """A figure with a chart, whose kinds and options are in `page.js`, and the table behind it."""
    finite = [{name: _finite(field) for name, field in value.items()} for value in values]
    return element(
        "figure",
        element("figcaption", element("b", title), said),
        element("div", class_="plot", role="img", aria_label=f"{title}: {said}" if said else title),
        _script({"kind": kind, **options, "values": finite}),
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
    """A page with charts of runs, given by their name (the field run), label and loss."""
    looks = [dict(zip(("name", "label", "loss"), run, strict=True)) for run in runs]
    head = element("header", element("h1", title), element("p", versions()))
    return document(title, "", head, element("main", parts), _script(looks, id="looks"))


def versions() -> str:
    """What made a page, and when."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    torch_, python = torch.__version__, platform.python_version()
    return f"Made on {now} by bayesdiv {bayesdiv.__version__} with torch {torch_}, Python {python}."
