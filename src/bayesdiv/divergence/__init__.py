"""The divergences: which distance holds the posterior near the prior."""

from bayesdiv.divergence.arithmetic import JSA, UnmodifiedJSA, joint_jsa
from bayesdiv.divergence.auto import Auto
from bayesdiv.divergence.base import Divergence, Points
from bayesdiv.divergence.estimators import Estimator, NoExactForm
from bayesdiv.divergence.geometric import JSG, UnmodifiedJSG, WeightedKL
from bayesdiv.divergence.kl import KL, LearnedAlpha, ReverseKL
from bayesdiv.divergence.others import ChiSquared, Renyi, TotalVariation

__all__ = [
    "JSA",
    "JSG",
    "KL",
    "Auto",
    "ChiSquared",
    "Divergence",
    "Estimator",
    "LearnedAlpha",
    "NoExactForm",
    "Points",
    "Renyi",
    "ReverseKL",
    "TotalVariation",
    "UnmodifiedJSA",
    "UnmodifiedJSG",
    "WeightedKL",
    "joint_jsa",
]
