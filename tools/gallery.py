"""Tutorials: scripts that are run when the documentation is built, with what they print and draw.

A script is text in comments and code between them:

    # %% [markdown]
    # # A title
    # Sentences.
    # %%
    print("code, whose output follows it")

Figures are those that are open when a block ends (`plt.figure`); a comment at the end of the block
describes them to people who cannot see them. A script that fails, or prints to
its error stream, fails the build.
"""

import ast
import io
import re
import sys
import time
import traceback
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

LIMIT = 60.0  # seconds of computing that a reader may be asked to wait
_HEAD = re.compile(r"# ([^\n]+)\n\n(.+?[.?!])(?=\s)", re.DOTALL)
_MARK = re.compile(r"^# %%(.*)$", re.MULTILINE)


class Made(NamedTuple):
    """A page: its Markdown, and its pictures by name."""

    markdown: str
    pictures: dict[str, str]
    seconds: float


class Broken(RuntimeError):
    """A tutorial that does not run."""


def make(script: Path) -> Made:
    """Run a script and write down what it says, prints and draws.

    Raises:
        Broken: if it fails; the message holds its traceback.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    began, names = time.process_time(), {"__name__": "__main__", "__file__": str(script)}
    parts: list[str] = []
    pictures: dict[str, str] = {}
    for kind, text in blocks(script.read_text(encoding="utf-8")):
        if kind == "markdown":
            parts.append(text)
            continue
        printed, drawn = _run(text, script, names), _drawn()
        code, description = _described(text) if drawn else (text, "")
        parts.append(f"```python\n{code}\n```")
        if printed:
            parts.append(f"```text\n{printed}\n```")
        for picture in drawn:
            name = f"{script.stem}-{len(pictures) + 1}.svg"
            pictures[name] = picture
            parts.append(f"![{description}]({name})")
    return Made("\n\n".join(parts) + "\n", pictures, time.process_time() - began)


def card(name: str, made: Made) -> str:
    """A tutorial in the list of all: its first picture, its title and its first sentence."""
    head = _HEAD.match(made.markdown)
    if head is None or not made.pictures:
        raise Broken(f"{name} must begin with a title and a sentence, and draw a picture")
    title, sentence = head[1], " ".join(head[2].split())
    return f"- ![]({next(iter(made.pictures))})\n\n    **[{title}]({name}.md)**\n\n    {sentence}\n"


def blocks(text: str) -> list[tuple[str, str]]:
    """The parts of a script in their order, ("markdown" or "code", text)."""
    pieces = _MARK.split(text)
    found = []
    for head, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if "[markdown]" in head:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().split("\n")]
            found.append(("markdown", "\n".join(lines)))
        elif body.strip():
            found.append(("code", body.strip()))
    return found


def _run(code: str, script: Path, names: dict[str, object]) -> str:
    out = io.StringIO()
    with redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            tree = ast.parse(code, str(script))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, str(script), "exec"), names)  # our own scripts, as mkdocs runs them
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), str(script), "eval"), names)
                if isinstance(value, str | int | float | tuple):
                    print(value)
        except Exception as error:
            raise Broken(f"{script} does not run:\n{traceback.format_exc()}") from error
    return out.getvalue().rstrip()


def _drawn() -> list[str]:
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    found = []
    for number in plt.get_fignums():
        out = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": "bayesdiv", "svg.fonttype": "none"}):
            plt.figure(number).savefig(out, format="svg", metadata={"Date": None})
        found.append(out.getvalue())
    plt.close("all")
    return found


def _described(code: str) -> tuple[str, str]:
    """The code of a picture, and what the picture shows: the comment that ends the code."""
    shown, _, last = code.rpartition("\n")
    if not last.startswith("# "):
        raise Broken(f"code that draws must end with a comment on its picture, got {last!r}")
    return shown.rstrip(), last.removeprefix("# ").rstrip(".")


if __name__ == "__main__":
    for path in sys.argv[1:]:
        made = make(Path(path))
        print(f"{path}: {made.seconds:.1f} s of CPU, {len(made.pictures)} pictures")
