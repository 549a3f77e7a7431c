"""Bayesian neural networks held near their prior by a divergence of your choice."""

from bayesdiv import closed_form
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
from bayesdiv.estimators import Auto, Estimator, Exact, MonteCarlo, NoExactForm, Quadrature

__version__ = "0.1.0"

__all__ = [
    "JSA",
    "JSG",
    "KL",
    "Auto",
    "ChiSquared",
    "Divergence",
    "Estimator",
    "Exact",
    "MonteCarlo",
    "NoExactForm",
    "Points",
    "Quadrature",
    "Renyi",
    "ReverseKL",
    "TotalVariation",
    "UnmodifiedJSA",
    "UnmodifiedJSG",
    "WeightedKL",
    "__version__",
    "closed_form",
    "joint_jsa",
]
