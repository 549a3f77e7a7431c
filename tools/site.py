"""What the documentation is built with besides its pages: article, figures, tutorials, formulas."""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from bayesdiv.app.explore.page import page as article
from tools.field import field_figures
from tools.figures import FIGURES
from tools.gallery import LIMIT, Broken, Made, card, make
from tools.ink import both, darkened

_TUTORIALS = Path(__file__).resolve().parents[1] / "tutorials"
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_TAG = re.compile(r"\\tag\{(.*?)\}")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the article and the figures, which are made and not kept, so that links are checked."""
    files.append(File.generated(config, "why-bounded.html", content=article()))
    for name, draw in {**FIGURES, **field_figures()}.items():
        _add_figure(f"figures/{name}.svg", draw(), files, config)
    import tutorials.style  # noqa: F401  # one look for all of them

    made = {script.stem: _made(script) for script in sorted(_TUTORIALS.glob("[0-9]*.py"))}
    for name, tutorial in made.items():
        page = f"{tutorial.markdown}\n[This page as a script]({name}.py){{ download }}\n"
        files.append(File.generated(config, f"tutorials/{name}.md", content=page))
        script = (_TUTORIALS / f"{name}.py").read_text(encoding="utf-8")
        files.append(File.generated(config, f"tutorials/{name}.py", content=script))
        for picture, svg in tutorial.pictures.items():
            _add_figure(f"tutorials/{picture}", svg, files, config)
    start = (_TUTORIALS / "index.md").read_text(encoding="utf-8")
    cards = "\n".join(card(name, tutorial) for name, tutorial in made.items())
    files.append(File.generated(config, "tutorials/index.md", content=start.format(cards=cards)))
    return files


def _made(script: Path) -> Made:
    made = make(script)
    if made.seconds > 2 * LIMIT:  # of a machine that may be half as fast as a reader's
        raise Broken(f"{script} takes {made.seconds:.0f} s of CPU: {LIMIT:.0f} s are allowed")
    return made


def _add_figure(path: str, svg: str, files: Files, config: MkDocsConfig) -> None:
    files.append(File.generated(config, path, content=svg))
    files.append(File.generated(config, path[:-4] + "-dark.svg", content=darkened(svg)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Figures for light and dark pages."""
    return both(markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as MathML, which browsers draw by themselves."""
    return _FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    r"""MathML of a formula; the paper's number, `\tag{8}`, stands beside it."""
    text = html.unescape(found[2]).strip()
    formula = convert(_TAG.sub("", text), display="block" if found[1] == "div" else "inline")
    number = _TAG.search(text)
    if number is None:
        return formula
    label = f'<span class="number" title="its number in the paper">({number[1]})</span>'
    return f'<div class="numbered">{formula}{label}</div>'


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the dialog of the search, which the theme leaves without a name."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, dialog + ' aria-label="Search"')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Python files beside the pages are watched too."""
    config.watch.append(str(Path(__file__).parent))
    return config
