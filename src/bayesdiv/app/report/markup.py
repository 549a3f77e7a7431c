"""HTML that no text can break: all text is escaped unless it is markup already."""

import base64
import hashlib
import html
import tomllib
from collections.abc import Iterable, Sequence
from importlib.resources import files

VOID = {"br", "img", "link", "meta"}  # elements without an end


class Html(str):
    """Markup, made by `element`; other text is escaped where it is put among markup."""

    __slots__ = ()


Content = str | Iterable[str]


def element(tag: str, *content: Content, **attributes: object) -> Html:
    """An element around some content; attributes that are None are left out.

    A name may end with an underscore, as class_ does; others stand for hyphens.
    """
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
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
    """A whole page that fetches nothing, and could not; with Vega where it has charts.

    The scripts are named by their hashes, so that none but these can run, wherever a name with
    markup may have come from.
    """
    content = element("body", *body)
    vega = ("vega/vega.min.js", "vega/vega-lite.min.js", "vega/vega-interpreter.min.js")
    scripts = [_file(name) for name in (*vega, "page.js")] if 'class="chart"' in content else []
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Html(f"{_file('page.css')}\n{style}")),
    )
    loaded = (element("script", Html(script)) for script in scripts)
    return f"<!doctype html>\n{element('html', head, content, *loaded, lang='en')}\n"


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
