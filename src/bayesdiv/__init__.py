"""Bayesian neural networks held near their prior by a divergence of your choice."""

from bayesdiv import metrics
from bayesdiv.divergence import (
    JSA,
    JSG,
    KL,
    ChiSquared,
    Divergence,
    Renyi,
    ReverseKL,
    TotalVariation,
    WeightedKL,
    closed_form,
)
from bayesdiv.divergence.estimators import Auto, Exact, MonteCarlo, Quadrature
from bayesdiv.draws import Looped, Vectorized, draw_weights, draws
from bayesdiv.likelihoods import (
    Binary,
    Classes,
    Gaussian,
    HeteroscedasticGaussian,
    StudentTNoise,
)
from bayesdiv.model.bayesian import Bayesian, at_mean, bayesianize, stacked
from bayesdiv.model.posteriors import MeanField, Point
from bayesdiv.model.priors import AroundStart, FanIn, Prior, ScaleMixture
from bayesdiv.objective.objective import Constraint, Objective, WarmUp
from bayesdiv.prediction import predict, predict_at
from bayesdiv.predictive import Predictive
from bayesdiv.training.fit import Batches, Diverged, fit
from bayesdiv.training.steps import Eager, Recorded

__version__ = "0.1.0"

__all__ = [
    "JSA",
    "JSG",
    "KL",
    "AroundStart",
    "Auto",
    "Batches",
    "Bayesian",
    "BayesianClassifier",
    "BayesianRegressor",
    "Binary",
    "ChiSquared",
    "Classes",
    "Constraint",
    "Diverged",
    "Divergence",
    "Eager",
    "Exact",
    "FanIn",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Looped",
    "MeanField",
    "MonteCarlo",
    "Objective",
    "Point",
    "Predictive",
    "Prior",
    "Quadrature",
    "Recorded",
    "Renyi",
    "ReverseKL",
    "ScaleMixture",
    "StudentTNoise",
    "TotalVariation",
    "Vectorized",
    "WarmUp",
    "WeightedKL",
    "__version__",
    "at_mean",
    "bayesianize",
    "closed_form",
    "draw_weights",
    "draws",
    "fit",
    "metrics",
    "predict",
    "predict_at",
    "stacked",
]


def __getattr__(name: str) -> object:
    """The estimators are loaded when they are asked for: scikit-learn is a heavy import."""
    if name in ("BayesianClassifier", "BayesianRegressor"):
        from bayesdiv.app import sklearn as tabular

        return getattr(tabular, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
