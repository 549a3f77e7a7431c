"""The page with its style and scripts inside."""

from importlib.resources import files

from bayesdiv import __version__
from bayesdiv.app.plots import COLOURS

SCRIPTS = (
    *("divergences.js", "gradients.js", "charts.js", "network.js", "page.js", "scenes.js"),
    "begin.js",
)


def page() -> str:
    """The whole page as HTML, with its style and its scripts inside."""
    parts = {
        "style": _read("page.css"),
        "script": "\n".join(map(_read, SCRIPTS)),
        "version": __version__,
        **COLOURS,
    }
    html = _read("page.html")
    for name, content in parts.items():
        html = html.replace(f"{{{{{name}}}}}", content)
    return html


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
