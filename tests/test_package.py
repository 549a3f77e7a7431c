"""The package as a whole: its public names, what importing it costs, its first page."""

import subprocess
import sys

import bayesdiv as bd


def test_every_public_name_is_there_and_documented():
    for name in bd.__all__:
        entry = getattr(bd, name)
        assert name.startswith("__") or entry.__doc__, f"{name} has no docstring"


def test_importing_pulls_torch_and_nothing_heavy():
    heavy = "pandas matplotlib scipy sklearn optuna accelerate torchmetrics torchvision rich"
    code = f"import sys, bayesdiv; print(*[m for m in {heavy.split()!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == []


def test_the_package_runs_as_a_program():
    out = subprocess.run(
        [sys.executable, "-m", "bayesdiv", "--help"], capture_output=True, text=True, check=True
    )
    assert "compare" in out.stdout
