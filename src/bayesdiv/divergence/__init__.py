"""The divergences: which distance holds the posterior near the prior."""

from bayesdiv.divergence.arithmetic import JSA, UnmodifiedJSA
from bayesdiv.divergence.base import Divergence, Estimator, Points
from bayesdiv.divergence.estimators import Auto, NoExactForm
from bayesdiv.divergence.kl import JSG, KL, LearnedAlpha, ReverseKL, UnmodifiedJSG, WeightedKL
from bayesdiv.divergence.others import ChiSquared, Renyi, TotalVariation

__all__ = ["JSA", "JSG", "KL", "Auto", "ChiSquared", "Divergence", "Estimator", "LearnedAlpha"]
__all__ += ["NoExactForm", "Points", "Renyi", "ReverseKL", "TotalVariation", "UnmodifiedJSA"]
__all__ += ["UnmodifiedJSG", "WeightedKL"]
