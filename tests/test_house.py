"""The house: layers, cycles, private names and other measures, from the source alone.

`make lint` runs this too.
"""

import ast
import graphlib
import re
import statistics
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
# A room may import its own and those before it, never one after it.
LAYERS = (
    ("divergence", "compute", "quantiles"),
    ("model",),
    ("likelihoods", "draws"),
    ("objective",),
    (
        "training",
        "prediction",
        "predictive",
        "metrics",
        "calibration",
        "outliers",
        "testing",
        "saving",
        "serving",
        "export",
    ),
    ("app",),
    ("reproduction",),
)
BANNED = ("utils", "helpers", "common", "misc", "factory", "manager")


class Import(NamedTuple):
    """One imported name: who asks, which module it comes from, where."""

    by: str
    module: str
    name: str
    line: int


def modules() -> dict[str, Path]:
    found = {}
    for base in (ROOT / "src", ROOT):
        top = "bayesdiv" if base.name == "src" else "reproduction"
        for path in sorted((base / top).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


FILES = modules()
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}
LIBRARY = {name: tree for name, tree in TREES.items() if name.startswith("bayesdiv")}


def imports(name: str) -> Iterator[Import]:
    """All imports of ours in a module, inside functions too, but for type checkers alone."""
    pending: list[ast.AST] = [TREES[name]]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        pending.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                home = whole if whole in FILES else node.module
                yield Import(name, home, alias.name, node.lineno)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, alias.name, node.lineno)


IMPORTS = [
    one for name in FILES for one in imports(name) if one.module in FILES and one.module != name
]


def layer(name: str) -> int | None:
    room = name.removeprefix("bayesdiv.").partition(".")[0]
    return next((place for place, rooms in enumerate(LAYERS) if room in rooms), None)


def test_every_room_has_a_place_in_the_layers():
    doors = {"bayesdiv", "bayesdiv.__main__"}
    assert [name for name in FILES if layer(name) is None and name not in doors] == []


def test_no_import_goes_against_the_layers():
    against = [
        f"{one.by}:{one.line} imports {one.module}"
        for one in IMPORTS
        if (own := layer(one.by)) is not None
        and (other := layer(one.module)) is not None
        and other > own
    ]
    assert against == []


def test_a_divergence_knows_no_fast_path():
    against = [
        f"{one.by}:{one.line} imports {one.module}"
        for one in IMPORTS
        if one.by.startswith("bayesdiv.divergence") and one.module.startswith("bayesdiv.compute")
    ]
    assert against == []


def test_no_modules_import_each_other_even_inside_functions():
    graph: dict[str, set[str]] = {name: set() for name in FILES}
    for one in IMPORTS:
        graph[one.by] |= {one.module} - {"bayesdiv"}
    graphlib.TopologicalSorter(graph).prepare()  # raises where there is a cycle


def test_no_private_name_is_used_across_files():
    private = [
        f"{one.by}:{one.line} takes {one.name}"
        for one in IMPORTS
        if one.name.startswith("_") and not one.name.startswith("__")
    ]
    assert private == []


def test_one_place_steps_an_optimizer():
    places = {
        name
        for name, tree in LIBRARY.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and "optimizer" in ast.unparse(node.func.value).lower()
    }
    assert places == {"bayesdiv.training.steps"}


def test_the_public_names_and_the_hard_dependencies_are_few():
    names = next(
        node.value
        for node in LIBRARY["bayesdiv"].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert isinstance(names, ast.List)
    assert len(names.elts) <= 60
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 5


def test_packages_are_docstrings_and_their_modules_are_imported_by_name():
    """But for the doors: public names, commands, and rooms that check for their extra."""
    names = ("bayesdiv", "bayesdiv.calibration", "bayesdiv.divergence", "bayesdiv.metrics")
    doors = {*names, "bayesdiv.app.cli"}
    full = [
        name
        for name, path in FILES.items()
        if path.name == "__init__.py" and name not in doors and not _is_door(TREES[name])
    ]
    assert full == []


def _is_door(tree: ast.Module) -> bool:
    """Nothing but a docstring, or besides it the question whether an extra is installed."""
    rest = [ast.unparse(node) for node in tree.body[1:]]
    checks = ("from bayesdiv.app.extra import require", "require(", "import bayesdiv.divergence")
    return all(line.startswith(checks) for line in rest)


def test_functions_are_short():
    sizes = sorted(
        node.body[-1].end_lineno - node.body[0].lineno + 1 - _docstring(node)
        for tree in LIBRARY.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    )
    assert statistics.median(sizes) <= 5
    assert sizes[int(0.95 * len(sizes))] <= 25
    assert sizes[-1] <= 50


def _docstring(node: ast.FunctionDef) -> int:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return first.end_lineno - first.lineno + 1
    return 0


@pytest.mark.parametrize("word", BANNED)
def test_no_file_is_named_after_nothing(word):
    assert [name for name in FILES if word in name.rpartition(".")[2]] == []


def test_nothing_is_left_to_be_done():
    marks = re.compile(r"\b(TODO|FIXME|XXX|raise NotImplementedError)\b")  # torch's may be caught
    assert [name for name, path in FILES.items() if marks.search(path.read_text())] == []


def test_few_lines_outside_compute_look_at_devices_or_compilers():
    """Those that must: what a library of torch is asked for by its device."""
    looks = re.compile(r"is_cuda|is_compiling|device\.type|is_available\(\)|capturing")
    outside = [name for name in LIBRARY if ".compute" not in name and ".app" not in name]
    lines = [
        f"{name}: {line.strip()}"
        for name in outside
        for line in FILES[name].read_text().splitlines()
        if looks.search(line)
    ]
    assert len(lines) <= 8, lines
