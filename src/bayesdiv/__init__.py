"""Bayesian neural networks held near their prior by a divergence of your choice.

Every public name is imported when it is first used: `bayesdiv --version` needs no torch.
"""

import ast
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

__version__ = "0.2.0"

# One list in few lines. The stub, __init__.pyi, has their homes, and rooms such as `calibration`.
__all__ = [
    "JSA", "JSG", "KL", "AroundStart", "Auto", "Batches", "Bayesian", "BayesianClassifier",
    "BayesianRegressor", "Binary", "ChiSquared", "Classes", "Constraint", "Diverged",
    "Divergence", "Eager", "Ensemble", "Exact", "FanIn", "FullRank", "Gaussian",
    "HeteroscedasticGaussian", "Looped", "LossModule", "LowRank", "MeanField", "MonteCarlo",
    "Natural", "Objective", "Point", "Poisson", "Predictive", "Prior", "Quadrature", "Recorded",
    "Renyi", "ReverseKL", "ScaleMixture", "StudentTNoise", "TotalVariation", "Vectorized",
    "WarmUp", "WeightedKL", "__version__", "at_mean", "bayesianize", "draw_weights", "draws",
    "export", "fit", "labelled", "load", "parameter_groups", "plain", "predict", "predict_at",
    "save", "stacked",
]  # fmt: skip


class _Package(ModuleType):
    """This package: `draws` and `export` stay functions when files of these names are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("draws", "export") and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


@cache
def _homes() -> dict[str, str]:
    """Where each name is imported from, as the stub says to type checkers."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    found = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in found for alias in node.names}


def __getattr__(name: str) -> object:
    """A public name or a room of the package, imported when it is first used."""
    home = _homes().get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == __name__:
        return import_module(f"{home}.{name}")
    import_module("bayesdiv.compute.backend")  # enters the fast forms of the divergences
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """For completion, without importing anything."""
    return sorted({*globals(), *_homes()})
