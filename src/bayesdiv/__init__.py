"""Bayesian neural networks held near their prior by a divergence of your choice."""

from bayesdiv import closed_form, metrics
from bayesdiv.bayesian import Bayesian, at_mean, bayesian_modules, bayesianize, stacked
from bayesdiv.divergences import (
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
    joint_jsa,
)
from bayesdiv.draws import Batched, Loop, Over, batched, draw_weights, draws, loop
from bayesdiv.estimators import Auto, Estimator, Exact, MonteCarlo, NoExactForm, Quadrature
from bayesdiv.layout import Layout, everything
from bayesdiv.likelihoods import (
    Binary,
    Classes,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    StudentTNoise,
    balanced,
)
from bayesdiv.objective import Constraint, Loss, Objective, WarmUp
from bayesdiv.posteriors import MeanField, Posterior
from bayesdiv.prediction import predict, predict_at
from bayesdiv.predictive import Predictive
from bayesdiv.priors import AroundStart, FanIn, Prior, ScaleMixture
from bayesdiv.training import Batches, Diverged, Epoch, EpochLoss, each_rank, fit, shared, step

__version__ = "0.1.0"

__all__ = [
    "JSA",
    "JSG",
    "KL",
    "AroundStart",
    "Auto",
    "Batched",
    "Batches",
    "Bayesian",
    "Binary",
    "ChiSquared",
    "Classes",
    "Constraint",
    "Diverged",
    "Divergence",
    "Epoch",
    "EpochLoss",
    "Estimator",
    "Exact",
    "FanIn",
    "Gaussian",
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
    "Points",
    "Posterior",
    "Predictive",
    "Prior",
    "Quadrature",
    "Renyi",
    "ReverseKL",
    "ScaleMixture",
    "StudentTNoise",
    "TotalVariation",
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
    "joint_jsa",
    "loop",
    "metrics",
    "predict",
    "predict_at",
    "shared",
    "stacked",
    "step",
]
