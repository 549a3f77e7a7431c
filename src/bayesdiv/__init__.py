"""Bayesian neural networks held near their prior by a divergence of your choice.

Every public name is imported when it is first used: `bayesdiv --version` needs no torch.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayesdiv import metrics as metrics
    from bayesdiv.app.sklearn.estimators import BayesianClassifier, BayesianRegressor
    from bayesdiv.divergence import closed_form as closed_form
    from bayesdiv.divergence.arithmetic import JSA
    from bayesdiv.divergence.base import Divergence
    from bayesdiv.divergence.estimators import Auto, Exact, MonteCarlo
    from bayesdiv.divergence.kl import JSG, KL, ReverseKL, WeightedKL
    from bayesdiv.divergence.others import ChiSquared, Renyi, TotalVariation
    from bayesdiv.divergence.quadrature import Quadrature
    from bayesdiv.draws import Looped, Vectorized, draw_weights, draws
    from bayesdiv.export import export
    from bayesdiv.likelihoods import (
        Binary,
        Classes,
        Gaussian,
        HeteroscedasticGaussian,
        Poisson,
        StudentTNoise,
    )
    from bayesdiv.model.bayesian import Bayesian, at_mean, stacked
    from bayesdiv.model.bayesianize import bayesianize, plain
    from bayesdiv.model.correlated import FullRank, LowRank
    from bayesdiv.model.posteriors import Ensemble, MeanField, Point
    from bayesdiv.model.priors import AroundStart, FanIn, Prior, ScaleMixture
    from bayesdiv.objective.objective import LossModule, Objective
    from bayesdiv.objective.strength import Constraint, WarmUp
    from bayesdiv.prediction import predict, predict_at
    from bayesdiv.predictive import Predictive
    from bayesdiv.saving import load, save
    from bayesdiv.training.batches import Batches, labelled
    from bayesdiv.training.checks import parameter_groups
    from bayesdiv.training.fit import Diverged, fit
    from bayesdiv.training.optimizers.natural import Natural
    from bayesdiv.training.steps import Eager, Recorded

__version__ = "0.2.0"

# One list in few lines: every name stands again under its home below.
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

# Where each name is defined; type checkers read the imports above, which say the same.
_HOMES = {
    "bayesdiv.app.sklearn.estimators": "BayesianClassifier BayesianRegressor",
    "bayesdiv.divergence.arithmetic": "JSA",
    "bayesdiv.divergence.base": "Divergence",
    "bayesdiv.divergence.estimators": "Auto Exact MonteCarlo",
    "bayesdiv.divergence.kl": "JSG KL ReverseKL WeightedKL",
    "bayesdiv.divergence.others": "ChiSquared Renyi TotalVariation",
    "bayesdiv.divergence.quadrature": "Quadrature",
    "bayesdiv.draws": "draw_weights draws Looped Vectorized",
    "bayesdiv.export": "export",
    "bayesdiv.likelihoods": "Binary Classes Gaussian HeteroscedasticGaussian Poisson StudentTNoise",
    "bayesdiv.model.bayesian": "at_mean Bayesian stacked",
    "bayesdiv.model.bayesianize": "bayesianize plain",
    "bayesdiv.model.correlated": "FullRank LowRank",
    "bayesdiv.model.posteriors": "Ensemble MeanField Point",
    "bayesdiv.model.priors": "AroundStart FanIn Prior ScaleMixture",
    "bayesdiv.objective.objective": "LossModule Objective",
    "bayesdiv.objective.strength": "Constraint WarmUp",
    "bayesdiv.prediction": "predict predict_at",
    "bayesdiv.predictive": "Predictive",
    "bayesdiv.saving": "load save",
    "bayesdiv.training.batches": "Batches labelled",
    "bayesdiv.training.checks": "parameter_groups",
    "bayesdiv.training.fit": "Diverged fit",
    "bayesdiv.training.optimizers.natural": "Natural",
    "bayesdiv.training.steps": "Eager Recorded",
}
_MODULES = {"closed_form": "bayesdiv.divergence.closed_form", "metrics": "bayesdiv.metrics"}
# Reached as bayesdiv.calibration and so on, not in __all__.
_ROOMS = (
    "calibration compute divergence likelihoods model objective outliers prediction predictive "
    "quantiles saving serving testing training"
)


class _Package(ModuleType):
    """This package: `draws` and `export` stay functions when files of these names are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("draws", "export") and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if not TYPE_CHECKING:  # else a checker would take every name for one of ours

    def __getattr__(name: str) -> object:
        """A public name, imported when it is first used."""
        if name in _MODULES:
            return import_module(_MODULES[name])
        if name in _ROOMS.split():
            return import_module(f"{__name__}.{name}")
        home = next((module for module, names in _HOMES.items() if name in names.split()), None)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import_module("bayesdiv.compute.backend")  # enters the fast forms of the divergences
        found = getattr(import_module(home), name)
        globals()[name] = found
        return found
