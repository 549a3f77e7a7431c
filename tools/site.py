"""What the documentation is built with besides its pages: the article, figures, formulas."""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from bayesdiv.app.explore.page import page as article
from tools.figures import FIGURES
from tools.gallery import LIMIT, Broken, make

_TUTORIALS = Path(__file__).resolve().parents[1] / "tutorials"
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the article and the figures, which are made and not kept, so that links are checked."""
    files.append(File.generated(config, "why-bounded.html", content=article()))
    for name, draw in FIGURES.items():
        files.append(File.generated(config, f"figures/{name}.svg", content=draw()))
    import tutorials.style  # noqa: F401  # one look for all of them

    for script in sorted(_TUTORIALS.glob("[0-9]*.py")):
        _add(script, files, config)
    return files


def _add(script: Path, files: Files, config: MkDocsConfig) -> None:
    made = make(script)
    if made.seconds > 2 * LIMIT:  # of a machine that may be half as fast as a reader's
        raise Broken(f"{script} takes {made.seconds:.0f} s of CPU: {LIMIT:.0f} s are allowed")
    files.append(File.generated(config, f"tutorials/{script.stem}.md", content=made.markdown))
    for name, picture in made.pictures.items():
        files.append(File.generated(config, f"tutorials/{name}", content=picture))


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as MathML, which browsers draw by themselves."""
    return _FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return convert(html.unescape(found[2]).strip(), display=display)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Python files beside the pages are watched too."""
    config.watch.append(str(Path(__file__).parent))
    return config
