"""The package as a whole: its public names, what importing it costs, its extra, its first page."""

import ast
import importlib
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bayesdiv as bd
from bayesdiv.app.extra import EXTRA

ROOT = Path(__file__).parents[1]


def program(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a fresh interpreter makes of some code."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_every_public_name_is_there_and_documented():
    for name in bd.__all__:
        entry = getattr(bd, name)
        assert name.startswith("__") or entry.__doc__, f"{name} has no docstring"


def test_type_checkers_read_every_public_name_where_python_finds_it():
    tree = ast.parse(Path(bd.__file__).with_suffix(".pyi").read_text())
    typed = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert all(alias.asname == alias.name for node in typed for alias in node.names)
    found = {
        alias.name: importlib.import_module(node.module) for node in typed for alias in node.names
    }
    for name, home in found.items():
        assert getattr(bd, name) is getattr(home, name)
    functions = {name for name in found if not inspect.ismodule(getattr(bd, name))}
    assert functions | {"__version__"} == set(bd.__all__)
    (listed,) = (node for node in tree.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(listed.value) == bd.__all__  # what `import *` gives to both


def test_public_names_and_rooms_are_completed_without_importing_torch():
    out = program("import bayesdiv, sys; print('torch' in sys.modules, *dir(bayesdiv))")
    torch, *names = out.stdout.split()
    assert torch == "False"
    assert {*bd.__all__, "metrics", "calibration"} <= {*names}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        bd.nothing  # noqa: B018


def test_every_room_of_the_library_is_reached_from_the_package_alone():
    rooms = {path.stem for path in Path(bd.__file__).parent.glob("[a-z]*") if path.stem != "py"}
    rooms -= {"app", "draws", "export"}  # the application, and two names that are functions
    code = f"import bayesdiv, sys\nfor room in {sorted(rooms)}:\n"
    code += "    print(getattr(bayesdiv, room).__name__)\n"
    # Rooms import one another: each is asked for as if it were the first.
    code += "    for name in [name for name in sys.modules if name.startswith('bayesdiv.')]:\n"
    code += "        del sys.modules[name]\n        vars(bayesdiv).pop(name.split('.')[1], None)\n"
    out = program(code)
    assert out.stdout.split() == [f"bayesdiv.{room}" for room in sorted(rooms)], out.stderr


def test_draws_and_export_are_functions_however_their_files_were_imported_before():
    code = "from bayesdiv.draws import draw_weights; import bayesdiv; print(bayesdiv.draws)"
    assert program(code).stdout.startswith("<function draws")
    code = "from bayesdiv.export import Exported; import bayesdiv; print(bayesdiv.export)"
    assert program(code).stdout.startswith("<function export")


def test_importing_the_library_pulls_in_nothing_heavy():
    heavy = "torch numpy pandas matplotlib scipy sklearn optuna accelerate torchmetrics rich"
    code = f"import sys, bayesdiv; print(*[m for m in {heavy.split()!r} if m in sys.modules])"
    assert program(code).stdout.split() == []


def test_the_names_of_the_library_pull_in_torch_and_nothing_of_the_extra():
    names = [name for name in bd.__all__ if name not in ("BayesianClassifier", "BayesianRegressor")]
    heavy = [*EXTRA, "scipy", "accelerate", "torchmetrics", "torchvision"]
    code = f"import sys; from bayesdiv import {', '.join(names)}"
    code += f"; print(*[m for m in {heavy!r} if m in sys.modules])"
    found = program(code)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == []


@pytest.mark.parametrize("question", ["--version", "--help"])
def test_version_and_help_answer_without_torch(question):
    code = (
        "import sys\n"
        "from bayesdiv.__main__ import main\n"
        "try:\n    main()\n"
        "finally:\n    print('torch' in sys.modules, 'rich' in sys.modules)"
    )
    out = program(code, question)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[-1] == "False False"
    wanted = bd.__version__ if question == "--version" else "compare"
    assert wanted in out.stdout


def test_the_package_runs_as_a_program():
    out = subprocess.run(
        [sys.executable, "-m", "bayesdiv", "--help"], capture_output=True, text=True, check=True
    )
    assert "compare" in out.stdout


# Stands before code that runs without the packages of the extra.
HIDE = """
from importlib.machinery import PathFinder
whole = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {hidden!r} else whole(name, path, target)
PathFinder.find_spec = find_spec
"""
INSTALL = "pip install 'bayesdiv[app]'"


MISSING = {
    "import bayesdiv; bayesdiv.BayesianRegressor": "sklearn",
    "from bayesdiv import BayesianClassifier": "sklearn",
    "import bayesdiv.app.tuning.search": "optuna",
    "import bayesdiv.app.settings": "pandas",
    "from bayesdiv.app.data.files import read": "pandas",
}


def test_without_the_extra_an_import_says_how_to_install_it():
    """All in one process, each import from scratch but for torch, which takes seconds."""
    cases = [(code, hidden) for code, needs in MISSING.items() for hidden in (EXTRA, (needs,))]
    code = f"""
import sys
import torch
for code, hidden in {cases!r}:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("bayesdiv", *hidden)]:
        del sys.modules[name]
    try:
        exec(code)
    except ModuleNotFoundError as error:
        print(error)
"""
    out = program(HIDE.replace("{hidden!r}", "globals().get('hidden', ())") + code)
    assert out.returncode == 0, out.stderr
    said = out.stdout.splitlines()
    for (code, _), sentence in zip(cases, said, strict=True):
        assert sentence.startswith(f"this part of bayesdiv needs {MISSING[code]}")
        assert sentence.endswith(INSTALL)


def test_without_the_extra_the_command_line_says_how_to_install_it():
    code = HIDE.format(hidden=EXTRA) + "from bayesdiv.__main__ import main; main()"
    out = program(code, "compare", "digits")
    assert out.returncode == 2
    assert out.stderr.startswith("bayesdiv: ")
    assert out.stderr.count("\n") == 1
    assert INSTALL in out.stderr


def test_without_the_extra_a_network_is_trained():
    only_ours = tuple(name for name in EXTRA if name != "yaml")  # accelerate needs it too
    code = (
        HIDE.format(hidden=only_ours)
        + """
import torch, bayesdiv as bd
net = bd.bayesianize(torch.nn.Linear(2, 1), bd.FanIn())
objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=8)
optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()])
x = torch.randn(8, 2)
list(bd.fit(net, objective, bd.Batches(x, x.sum(1), 4), optimizer, 2))
print(bd.metrics.rmse(bd.predict(net, objective.likelihood, x, 5), x.sum(1)).item())
"""
    )
    out = program(code)
    assert out.returncode == 0, out.stderr
    assert float(out.stdout) > 0


def test_the_extra_of_the_project_is_the_one_that_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {"pillow": "PIL", "scikit-learn": "sklearn", "pyyaml": "yaml"}
    listed = [
        line.partition(">")[0].partition("[")[0] for line in project["optional-dependencies"]["app"]
    ]
    assert sorted(names.get(name, name) for name in listed) == sorted(EXTRA)
