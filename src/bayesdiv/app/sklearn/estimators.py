"""The two estimators: quantities and classes."""

import math
from typing import Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal

from bayesdiv.app.sklearn.rows import Floats, distinct, moments, repeats_of, standardised
from bayesdiv.app.sklearn.tabular import Tabular
from bayesdiv.likelihoods.classes import Classes
from bayesdiv.likelihoods.gaussian import Gaussian
from bayesdiv.predictive import Predictive


class BayesianRegressor(RegressorMixin, MultiOutputMixin, Tabular):  # type: ignore[misc]
    """A Bayesian network for quantities: means, standard deviations and intervals of new rows.

    It minimises, over the posterior q of the network's weights and the noise's scale,

        λ D(q ‖ p) - Σ_i n_i E_q[log N(y_i | f_w(x_i), scale²)]

    where n_i is the sample weight of row i, 1 if none is given. Columns and targets are
    standardised inside; rows that are equal are learned as one that counts for more, so the order
    of the rows does not matter.

    Args:
        divergence: D, what holds the weights near the prior p; None is `JSA(0.3)`.
        strength: λ, a number, a `WarmUp` or a `Constraint`; with 1 and `KL()` this is the ELBO.
        network: from the numbers of inputs and outputs to a module; None is an MLP of `hidden`
            units. An estimator that is saved or sent to other processes needs one that can be
            pickled: a function of a module, not a lambda.
        hidden: units of each hidden layer; () makes the network linear.
        prior: anything that `bayesianize` takes; None is `FanIn()`.
        start: the posterior's scale to begin with, as a fraction of the prior's.
        epochs: passes over the rows; None makes 1000 updates, or one pass if that is more: a few
            seconds for small tables and large, with a `ConvergenceWarning` if that was too short.
            Large tables, and targets with little noise, gain from more.
        learning_rate: of Adam to begin with; it falls to 0.
        batch_size: rows per update.
        samples: weight draws per update.
        test_samples: weight draws for predictions.
        validation_fraction: share of the rows that is held out to keep the weights of the epoch
            with the best NLL on them; 0 learns from all and keeps the last.
        random_state: makes fits repeatable, as everywhere in scikit-learn.
        device: where it is trained; predictions are made on the CPU.

    Attributes:
        model_: the trained `Bayesian`, for standardised columns, in double precision.
        likelihood_: its likelihood, for standardised targets.
        history_: losses of each epoch.
        best_epoch_: the epoch whose weights are kept, from 1.
        n_features_in_: how many columns there are.
        feature_names_in_: their names, if X had any.

    Examples:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = BayesianRegressor(epochs=20, random_state=0).fit(X, y)
        >>> mean, std = model.predict(X[:2], return_std=True)
        >>> low, high = model.predict_interval(X[:2], level=0.9)
        >>> bool((low < mean).all() and (mean < high).all())
        True
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from rows X and targets y, one per row or several.

        A sample weight is how many times its row counts: 2 is the row twice, 0 without it. Weights
        with a mean of 1 leave the balance of data and prior, which `strength` sets, as it is.
        """
        x, quantity = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._target_shape = quantity.shape[1:]
        quantity = quantity.reshape(len(x), -1).astype(np.float64)
        rows = distinct(x, quantity, repeats_of(sample_weight, len(x)))
        self._targets = moments(rows.y, rows.repeats)
        standard = rows._replace(y=standardised(rows.y, self._targets))
        targets = rows.y.shape[1]
        return self._fit(standard, Gaussian() if targets == 1 else Gaussians(targets), targets)

    def predictive(self, X: ArrayLike) -> Predictive:
        """The mixture over weight draws, in the units of the target.

        It has what the other methods return and more: `log_prob`, `quantile`, and the variance in
        its two parts, `epistemic` (from not knowing the weights) and `aleatoric` (noise).
        """
        return self._in_units(super().predictive(X))

    def _in_units(self, standardised: Predictive) -> Predictive:
        """The same for targets in their own units."""
        standard = standardised.conditional
        loc, scale = (torch.from_numpy(moment) for moment in self._targets)
        mean, stddev = loc + scale * standard.mean, scale * standard.stddev
        each = Normal(mean, stddev, validate_args=False)
        return Predictive(
            Independent(each, 1, validate_args=False) if standard.event_shape else each
        )

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Means of the targets, and their standard deviations if asked."""
        standardised = super().predictive(X)
        mean = self._shaped(self._in_units(standardised).mean)
        if not return_std:
            return mean
        # The square of a deviation in the units of the target may overflow, or vanish.
        std = standardised.variance.sqrt() * torch.from_numpy(self._targets.scale)
        return mean, self._shaped(std)

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[Floats, Floats]:
        """Lower and upper ends of the central intervals that hold a target with this probability.

        These are quantiles of the mixture over weight draws, noise included.
        """
        low, high = self.predictive(X).interval(level)
        return self._shaped(low), self._shaped(high)

    def _shaped(self, values: Tensor) -> Floats:
        """An array with as many axes as the targets had."""
        return cast(Floats, values.numpy().reshape(len(values), *self._target_shape))


class BayesianClassifier(ClassifierMixin, Tabular):  # type: ignore[misc]
    """A Bayesian network for classes: probabilities averaged over weight draws.

    It minimises λ D(q ‖ p) - Σ_i n_i E_q[log softmax(f_w(x_i))_{y_i}] over the posterior q of the
    network's weights, where n_i is the sample weight of row i, 1 if none is given. Settings,
    attributes and the treatment of the table are those of `BayesianRegressor`.

    Attributes:
        classes_: the labels, in the order of the probabilities' columns.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = BayesianClassifier(epochs=20, random_state=0).fit(X, y)
        >>> model.predict_proba(X).shape
        (150, 3)
        >>> model.predictive(X).mutual_information.shape  # what more data could remove
        torch.Size([150])
    """

    classes_: NDArray[np.generic]

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from rows X and labels y.

        A sample weight is how many times its row counts: 2 is the row twice, 0 without it. Weights
        with a mean of 1 leave the balance of data and prior, which `strength` sets, as it is.
        """
        x, label = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(label)
        repeats = repeats_of(sample_weight, len(x))
        counts = repeats > 0  # a class without a row that counts is none
        self.classes_, number = np.unique(label[counts], return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have two classes or more, got one class: {self.classes_[0]}")
        rows = distinct(x[counts], number[:, None].astype(np.float64), repeats[counts])
        return self._fit(rows, Classes(), len(self.classes_))

    def predict(self, X: ArrayLike) -> NDArray[np.generic]:
        """The most probable label of each row."""
        best = self.predict_proba(X).argmax(1)
        return cast(NDArray[np.generic], self.classes_[best])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities of the classes, (rows, classes)."""
        return cast(Floats, self.predictive(X).probabilities.numpy())

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Their logarithms, finite where a probability is too small for a number of its own."""
        each = cast(Categorical, self.predictive(X).conditional).logits  # (S, B, C)
        return cast(Floats, (each.logsumexp(0) - math.log(len(each))).numpy())


class Gaussians(Gaussian):
    """Several targets, each normal with a learned noise level of its own."""

    def __init__(self, targets: int) -> None:
        super().__init__(torch.ones(targets))

    def scale_for(self, axes: int) -> Tensor:
        """The noise of each target."""
        return self.scale  # (targets,), the last axis of the outputs
