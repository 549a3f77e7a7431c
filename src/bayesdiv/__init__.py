"""Bayesian neural networks held near their prior by a divergence of your choice."""

from bayesdiv import metrics
from bayesdiv.divergence import (
    JSA,
    JSG,
    KL,
    ChiSquared,
    Divergence,
    Points,
    Renyi,
    ReverseKL,
    TotalVariation,
    UnmodifiedJSA,
    UnmodifiedJSG,
    WeightedKL,
    closed_form,
    joint_jsa,
)
from bayesdiv.divergence.estimators import (
    Auto,
    Estimator,
    Exact,
    MonteCarlo,
    NoExactForm,
    Quadrature,
)
from bayesdiv.draws import Batched, Loop, Over, batched, draw_weights, draws, loop
from bayesdiv.likelihoods import (
    Binary,
    Classes,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    StudentTNoise,
    balanced,
)
from bayesdiv.model.bayesian import Bayesian, at_mean, bayesian_modules, bayesianize, stacked
from bayesdiv.model.layout import Layout, everything, unfrozen
from bayesdiv.model.posteriors import MeanField, Point, Posterior
from bayesdiv.model.priors import AroundStart, FanIn, Prior, ScaleMixture
from bayesdiv.objective.evidence import ELBO, ChiVI, Evidence, RenyiVI, TotalVariationVI
from bayesdiv.objective.objective import Constraint, Loss, Objective, WarmUp
from bayesdiv.prediction import predict, predict_at
from bayesdiv.predictive import Predictive
from bayesdiv.training.fit import (
    Batches,
    Diverged,
    Epoch,
    EpochLoss,
    each_rank,
    fit,
    shared,
    step,
)
from bayesdiv.training.steps import Graphed
from bayesdiv.training.trials import TrialsEpoch, fit_trials

__version__ = "0.1.0"

__all__ = [
    "ELBO",
    "JSA",
    "JSG",
    "KL",
    "AroundStart",
    "Auto",
    "Batched",
    "Batches",
    "Bayesian",
    "BayesianClassifier",
    "BayesianRegressor",
    "Binary",
    "ChiSquared",
    "ChiVI",
    "Classes",
    "Constraint",
    "Diverged",
    "Divergence",
    "Epoch",
    "EpochLoss",
    "Estimator",
    "Evidence",
    "Exact",
    "FanIn",
    "Gaussian",
    "Graphed",
    "HeteroscedasticGaussian",
    "Layout",
    "Likelihood",
    "Loop",
    "Loss",
    "MeanField",
    "MonteCarlo",
    "NoExactForm",
    "Objective",
    "Over",
    "Point",
    "Points",
    "Posterior",
    "Predictive",
    "Prior",
    "Quadrature",
    "Renyi",
    "RenyiVI",
    "ReverseKL",
    "ScaleMixture",
    "StudentTNoise",
    "TotalVariation",
    "TotalVariationVI",
    "TrialsEpoch",
    "UnmodifiedJSA",
    "UnmodifiedJSG",
    "WarmUp",
    "WeightedKL",
    "__version__",
    "at_mean",
    "balanced",
    "batched",
    "bayesian_modules",
    "bayesianize",
    "closed_form",
    "draw_weights",
    "draws",
    "each_rank",
    "everything",
    "fit",
    "fit_trials",
    "joint_jsa",
    "loop",
    "metrics",
    "predict",
    "predict_at",
    "shared",
    "stacked",
    "step",
    "unfrozen",
]


def __getattr__(name: str) -> object:
    """The estimators are loaded when they are asked for: scikit-learn is a heavy import."""
    if name in ("BayesianClassifier", "BayesianRegressor"):
        from bayesdiv.app import sklearn as tabular

        return getattr(tabular, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
