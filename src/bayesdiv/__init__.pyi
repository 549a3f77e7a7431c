# Where each public name is defined, for type checkers and, read by __init__.py, for Python.
# A stub exports what it imports as itself.
from bayesdiv import (
    calibration as calibration,
    compute as compute,
    divergence as divergence,
    likelihoods as likelihoods,
    metrics as metrics,
    model as model,
    objective as objective,
    outliers as outliers,
    prediction as prediction,
    predictive as predictive,
    quantiles as quantiles,
    saving as saving,
    serving as serving,
    testing as testing,
    training as training,
)
from bayesdiv.app.sklearn.estimators import (
    BayesianClassifier as BayesianClassifier,
    BayesianRegressor as BayesianRegressor,
)
from bayesdiv.divergence import closed_form as closed_form
from bayesdiv.divergence.arithmetic import JSA as JSA
from bayesdiv.divergence.base import Divergence as Divergence
from bayesdiv.divergence.estimators import Auto as Auto, Exact as Exact, MonteCarlo as MonteCarlo
from bayesdiv.divergence.kl import (
    JSG as JSG,
    KL as KL,
    ReverseKL as ReverseKL,
    WeightedKL as WeightedKL,
)
from bayesdiv.divergence.others import (
    ChiSquared as ChiSquared,
    Renyi as Renyi,
    TotalVariation as TotalVariation,
)
from bayesdiv.divergence.quadrature import Quadrature as Quadrature
from bayesdiv.draws import (
    Looped as Looped,
    Vectorized as Vectorized,
    draw_weights as draw_weights,
    draws as draws,
)
from bayesdiv.export import export as export
from bayesdiv.likelihoods import (
    Binary as Binary,
    Classes as Classes,
    Gaussian as Gaussian,
    HeteroscedasticGaussian as HeteroscedasticGaussian,
    Poisson as Poisson,
    StudentTNoise as StudentTNoise,
)
from bayesdiv.model.bayesian import Bayesian as Bayesian, at_mean as at_mean, stacked as stacked
from bayesdiv.model.bayesianize import bayesianize as bayesianize, plain as plain
from bayesdiv.model.correlated import FullRank as FullRank, LowRank as LowRank
from bayesdiv.model.posteriors import Ensemble as Ensemble, MeanField as MeanField, Point as Point
from bayesdiv.model.priors import (
    AroundStart as AroundStart,
    FanIn as FanIn,
    Prior as Prior,
    ScaleMixture as ScaleMixture,
)
from bayesdiv.objective.objective import LossModule as LossModule, Objective as Objective
from bayesdiv.objective.strength import Constraint as Constraint, WarmUp as WarmUp
from bayesdiv.prediction import predict as predict, predict_at as predict_at
from bayesdiv.predictive import Predictive as Predictive
from bayesdiv.saving import load as load, save as save
from bayesdiv.training.batches import Batches as Batches, labelled as labelled
from bayesdiv.training.checks import parameter_groups as parameter_groups
from bayesdiv.training.fit import Diverged as Diverged, fit as fit
from bayesdiv.training.optimizers.natural import Natural as Natural
from bayesdiv.training.steps import Eager as Eager, Recorded as Recorded

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

__version__: str
