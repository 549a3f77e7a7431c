"""The divergences: which distance holds the posterior near the prior."""

from bayesdiv.divergences.arithmetic import JSA, UnmodifiedJSA, joint_jsa
from bayesdiv.divergences.base import Divergence, Points
from bayesdiv.divergences.geometric import JSG, UnmodifiedJSG, WeightedKL
from bayesdiv.divergences.kl import KL, ReverseKL
from bayesdiv.divergences.rivals import ChiSquared, Renyi, TotalVariation

__all__ = [
    "JSA",
    "JSG",
    "KL",
    "ChiSquared",
    "Divergence",
    "Points",
    "Renyi",
    "ReverseKL",
    "TotalVariation",
    "UnmodifiedJSA",
    "UnmodifiedJSG",
    "WeightedKL",
    "joint_jsa",
]
