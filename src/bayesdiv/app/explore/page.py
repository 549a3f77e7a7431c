"""The page with its style and scripts inside."""

from importlib.resources import files

from bayesdiv import __version__

SCRIPTS = ("divergences", "gradients", "charts", "network", "page", "scenes", "begin")


def page() -> str:
    """The whole page as HTML, with its style and its scripts inside."""
    html, script = _read("page.html"), "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    parts = {"style": _read("page.css"), "script": script, "version": __version__}
    for name, content in parts.items():
        html = html.replace(f"{{{{{name}}}}}", content)
    return html


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
