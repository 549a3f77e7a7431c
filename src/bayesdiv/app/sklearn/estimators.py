"""The two estimators, quantities and classes, and a likelihood chosen by rows held out."""

import logging
import math
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin, clone
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Distribution, Independent

from bayesdiv.app.families import Floats, candidates, check_targets, family_of, in_units
from bayesdiv.app.recipe import TABLES
from bayesdiv.app.sklearn.rows import Rows, distinct, repeats_of
from bayesdiv.app.sklearn.tabular import Tabular
from bayesdiv.calibration import FoldIntervals, Levels, Sets
from bayesdiv.compute.noise import seeded
from bayesdiv.likelihoods import Classes, Likelihood
from bayesdiv.predictive import Predictive
from bayesdiv.training.fit import Diverged

log = logging.getLogger(__name__)

UPDATES, MEMBERS = 2000, 2  # of a fit that is only to be compared
MOST_TRIED, MOST_JUDGED = 4000, 1000  # rows


class BayesianRegressor(RegressorMixin, MultiOutputMixin, Tabular):  # type: ignore[misc]
    """A Bayesian network for numbers: means, standard deviations and intervals of new rows.

    It trains an ensemble of networks together. Each minimises, over the posterior q of its weights,

        λ D(q ‖ p) - Σ_i n_i E_q[log N(y_i | f_w(x_i), s_w(x_i)²)]

    where n_i is the sample weight of row i, 1 if none is given, and the network predicts both the
    mean f and the noise s of a row. Predictions are the mixture over members and weight draws.
    Columns and targets are standardised; equal rows are merged into one that counts for more, so
    the order of the rows does not matter. A DataFrame may have text, booleans, dates and gaps:
    scikit-learn's encoders and imputers turn them into numbers, and a column marks gaps.

    Each pair of members learns from the same nine tenths of the rows; the fit continues while the
    likelihood of the other tenth rises, and keeps the best weights. Its defaults were chosen on
    validation rows of eight tables.

    Args:
        divergence: D, which holds the weights near the prior p; None is `JSA(0.3)`.
        likelihood: the noise of the targets: "heteroscedastic" (None), normal with a noise level
            per row; "gaussian" with one level for all rows; "student_t" with outliers; "mixture" of
            three normals; "log_normal" or "gamma" for positive targets; "poisson" or
            "negative_binomial" for counts; "auto" takes the one of those that the targets allow
            with the highest likelihood of held-out rows.
        class_weight: for `BayesianClassifier`: "balanced", or a weight per class.
        strength: λ, a number, a `WarmUp` or a `Constraint`; with 1 and `KL()` this is the ELBO.
        network: from the numbers of inputs and outputs to a module; None is an MLP of `hidden`
            units. To be pickled, it must be a function of a module, not a lambda.
        hidden: units of each hidden layer; () makes the network linear.
        members: networks in the ensemble; None is 4, or 1 for a network with running means.
        prior: anything that `bayesianize` takes; None is `FanIn()`.
        start: the posterior's initial scale as a fraction of the prior's; None suits the
            divergence.
        epochs: passes over the rows; None runs until the validation likelihood converges, with a
            `ConvergenceWarning` where the most updates for a table of this size were too few.
        learning_rate: of Adam; constant for half of the fit, then falling to 0.
        batch_size: rows per update; None is 64, more in tables of over 25,600 rows.
        samples: weight draws per update and member.
        test_samples: weight draws for predictions, of all members together.
        validation_fraction: share of the rows that a member does not learn from and that find its
            best epoch; None is a tenth, or 0 with `epochs` given or fewer than 20 rows.
        seconds: after which a fit without `epochs` ends, with a `ConvergenceWarning`.
        warm_start: whether a fit starts from the weights and units of the previous fit.
        verbose: print the loss every so many epochs; 0 prints nothing.
        random_state: makes fits repeatable, as everywhere in scikit-learn.
        device: where it is trained; predictions are made on the CPU.

    Attributes:
        model_: the trained `Bayesian`, for standardised columns, in double precision; its posterior
            is the mixture of the members.
        likelihood_: its likelihood, for standardised targets.
        family_: the word of the likelihood, the chosen one for "auto".
        history_: losses of each epoch, means over the members.
        best_epoch_: the epoch whose weights are kept, from 1.
        report_: what the fit did, in one line.

    Examples:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = BayesianRegressor(epochs=20, random_state=0).fit(X, y)
        >>> mean, std = model.predict(X[:2], return_std=True)
        >>> low, high = model.predict_interval(X[:2], level=0.9)
        >>> bool((low < mean).all() and (mean < high).all())
        True
    """

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """One pass over more rows, in the units of the first; the prior counts once for all."""
        return self._next(X, y, sample_weight)

    def _learn(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        if self.class_weight is not None:
            raise ValueError(f"class_weight is for a classifier, got {self.class_weight!r}")
        x, quantity = self._read(X, y, multi_output=True, y_numeric=True)
        self._target_shape = quantity.shape[1:]
        quantity = quantity.reshape(len(x), -1).astype(np.float64)
        rows = distinct(x, quantity, repeats_of(sample_weight, len(x)))
        said = ""
        if not self._warm:
            self.family_, said = chosen(self, rows)
        check_targets(self.family_, rows.y)
        family = family_of(self.family_)
        if not self._warm:
            self._targets = family.units(rows.y, rows.repeats)
        rows = rows._replace(y=self._targets.learned(rows.y))
        shifted = {"targets": rows.y.shape[1], "locations": family.locations}
        outputs = family.outputs * rows.y.shape[1]
        self._fit(rows, family.likelihood(self._targets), outputs, **shifted)
        self.report_ = said + self.report_

    def predictive(self, X: ArrayLike) -> Predictive:
        """The mixture over weight draws, in the units of the target: quantiles, both variances."""
        found = super().predictive(X)
        loc, scale = (torch.from_numpy(part) for part in self._targets[:2])
        return Predictive(in_units(found.conditional, loc, scale))

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Means of the targets, and their standard deviations if asked."""
        found = super().predictive(X)
        loc, scale = (torch.from_numpy(part) for part in self._targets[:2])
        mean = self._shaped(loc + scale * found.mean)
        # Squares of standard deviations may overflow in the units of the target, or vanish.
        return (mean, self._shaped(scale * found.variance.sqrt())) if return_std else mean

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[Floats, Floats]:
        """Lower and upper ends of intervals that hold a target with this probability.

        Before `calibrate` these are quantiles of the mixture over weight draws, noise included:
        right as far as the model is, and nothing is promised. After it they are split-conformal:
        whatever the model, a new target lies inside with probability `level` or more, on average
        over exchangeable calibration and new rows, not for a single row or a group. With n
        calibration rows, levels above n/(n + 1) have infinite ends.
        """
        check_is_fitted(self)
        if self._folds:
            fitted = FoldIntervals.fit([(found, y) for _, found, y in self._folds], level)
            low, high = fitted([own.predictive(X) for own, _, _ in self._folds])
            if family_of(self.family_).holds != "numbers":
                low, high = low.clamp(min=0), high.clamp(min=0)
        else:
            found = self.predictive(X)
            found = found if self._calibration is None else Levels.fit(*self._calibration)(found)
            low, high = found.interval(level)
        return self._shaped(low), self._shaped(high)

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Make the intervals keep their level, by rows that the fit has not seen."""
        found = self.predictive(X)
        given = np.array(y, dtype=np.float64)
        wanted, wrong = (len(found.mean), *self._target_shape), np.isnan(given).sum()
        if given.shape != wanted or wrong:
            got = f"{given.shape} with {wrong} NaN"
            raise ValueError(f"y must be a number for each row and target, {wanted}, got {got}")
        given = given.reshape(tuple(found.mean.shape))
        self._calibration, self._folds = (found, torch.from_numpy(given)), []
        return self

    def calibrate_by_folds(self, X: ArrayLike, y: ArrayLike, folds: int = 5) -> Self:
        """Bring the intervals near their level by the rows of the fit, X and y: CV+.

        A further fit is made without each fold. A new target then lies inside with probability
        1 - 2(1 - level) or more, less a little for the folds (see
        `bayesdiv.calibration.FoldIntervals`); in practice with about `level`.
        """
        check_is_fitted(self)
        quantity, self._folds = np.asarray(y, dtype=np.float64), []
        for learned, left in KFold(folds, shuffle=True, random_state=0).split(quantity):
            own = clone(self).fit(_safe_indexing(X, learned), quantity[learned])
            found = own.predictive(_safe_indexing(X, left))
            given = torch.from_numpy(quantity[left].reshape(tuple(found.mean.shape)))
            self._folds.append((own, found, given))
        return self

    def _shaped(self, values: Tensor) -> Floats:
        """An array with as many axes as the targets had."""
        return cast(Floats, values.numpy().reshape(len(values), *self._target_shape))


class BayesianClassifier(ClassifierMixin, Tabular):  # type: ignore[misc]
    """A Bayesian network for classes: probabilities averaged over weight draws.

    It minimises λ D(q ‖ p) - Σ_i n_i E_q[log softmax(f_w(x_i))_{y_i}] over the posterior q of the
    network's weights. Settings, attributes and the treatment of the table are those of
    `BayesianRegressor`; `classes_` has the labels in the order of the probabilities' columns.

    A y of several columns of 0 and 1 (multilabel) has a logit per column instead of the
    softmax; probabilities are then those of a 1 in each column.

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

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """One pass over more rows; the first call takes all classes, unless y has columns."""
        return self._next(X, y, sample_weight, classes)

    def _learn(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        classes: ArrayLike | None = None,
    ) -> None:
        table = (y if hasattr(y, "ndim") else np.asarray(y)).ndim > 1
        several = table and type_of_target(y, input_name="y") == "multilabel-indicator"
        x, label = self._read(X, y, multi_output=several)
        label = cast(Any, label).toarray() if hasattr(label, "toarray") else label
        check_classification_targets(label)
        repeats = repeats_of(sample_weight, len(x))
        if self._stream.on and self.class_weight == "balanced":
            raise ValueError("class_weight of partial_fit must be a weight per class, got balanced")
        if self.class_weight is not None:
            repeats = repeats * compute_sample_weight(self.class_weight, label)
        counts = repeats > 0  # a class without a row that counts is none
        x, label, repeats = x[counts], label[counts], repeats[counts]
        if several:
            self.classes_, number = np.arange(label.shape[1]), label
        else:
            number = self._numbered(label, classes)[:, None]
        many = len(self.classes_)
        if many < 2:
            raise ValueError(f"y must have two classes or more, got one class: {self.classes_[0]}")
        rows, self._several = distinct(x, number.astype(np.float64), repeats), several
        likelihood: Likelihood = _Labels() if several else Classes()
        self._fit(rows, likelihood, many, targets=many, free=many - (not several))

    def _numbered(self, label: NDArray[Any], classes: ArrayLike | None) -> NDArray[np.intp]:
        """The number of each label; a first fit finds the classes, a first part is given them."""
        if not self._warm:
            if classes is None and self._stream.on:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self.classes_ = np.unique(label if classes is None else np.asarray(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes must stay {self.classes_}, got {classes}")
        return self._places(label)

    def _places(self, label: NDArray[Any]) -> NDArray[np.intp]:
        """The numbers of labels that are known."""
        unknown = sorted(set(label.tolist()) - set(self.classes_.tolist()))
        if unknown:
            raise ValueError(f"y must hold classes of the fit, got {unknown[0]!r}")
        return cast(NDArray[np.intp], np.searchsorted(self.classes_, cast(Any, label)))

    def predict(self, X: ArrayLike) -> NDArray[np.generic]:
        """The most probable label of each row; of several, 1 where it is more probable than 0."""
        found = self.predict_proba(X)
        best = (found > 0.5).astype(int) if self._several else self.classes_[found.argmax(1)]
        return cast(NDArray[np.generic], best)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities of the classes, (rows, classes), or of a 1 in each column."""
        return cast(Floats, self.predictive(X).mean.numpy())

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Let `predict_set` keep its level, by rows that the fit has not seen."""
        found = self.predictive(X)
        if self._several:
            raise ValueError("sets are for one class per row, got a fit of several labels per row")
        self._calibration = found, torch.from_numpy(self._places(np.asarray(y)))
        return self

    def predict_set(self, X: ArrayLike, level: float = 0.9) -> NDArray[np.bool_]:
        """Split-conformal sets, (rows, classes), that hold a row's class with this probability.

        After `calibrate`: whatever the model, on average, for exchangeable rows; a few are empty.
        """
        found = self.predictive(X)
        if self._calibration is None:
            raise ValueError("predict_set needs rows that the fit has not seen: call calibrate")
        with seeded(self._seed):
            member = Sets.fit(*self._calibration, level)(found)
        return cast(NDArray[np.bool_], member.numpy())

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Their logarithms, finite where a probability is too small for its own number."""
        found = self.predictive(X).conditional
        if isinstance(found, Independent):
            each = nn.functional.logsigmoid(cast(Bernoulli, found.base_dist).logits)
        else:
            each = cast(Categorical, found).logits  # (S, B, C)
        return cast(Floats, (each.logsumexp(0) - math.log(len(each))).numpy())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class _Labels(Likelihood):
    """Several targets that are 0 or 1; the outputs are their logits."""

    def forward(self, outputs: Tensor) -> Distribution:
        return Independent(Bernoulli(logits=outputs, validate_args=False), 1, validate_args=False)


def chosen(estimator: Tabular, rows: Rows) -> tuple[str, str]:
    """The word of an estimator's likelihood; how "auto" judged all on a fifth of the rows."""
    if estimator.likelihood != "auto":
        return estimator.likelihood or "heteroscedastic", ""
    scores = {word: _nll(estimator, word, rows) for word in candidates(rows.y)}
    best, *others = sorted(scores, key=lambda word: scores[word])
    beside = ", ".join(f"{word} {scores[word]:.3f}" for word in others)
    said = f"likelihood {best} chosen by validation NLL, {scores[best]:.3f} ({beside})"
    log.info("%s", said)
    return best, f"{said}; "


def _nll(estimator: Tabular, word: str, rows: Rows) -> float:
    order = np.random.default_rng(0).permutation(len(rows.x))
    held = min(max(1, len(order) // 5), MOST_JUDGED)
    judged, learned = rows.at(order[:held]), rows.at(order[held : held + MOST_TRIED])
    updates = math.ceil(len(learned.x) / (estimator.batch_size or TABLES.batch_size(len(rows.x))))
    settings = {"likelihood": word, "members": MEMBERS, "validation_fraction": 0.0}
    trial: Any = clone(estimator).set_params(**settings, epochs=max(1, UPDATES // updates))
    try:
        y = learned.y[:, 0] if learned.y.shape[1] == 1 else learned.y
        found = trial.fit(learned.x, y, learned.repeats).predictive(judged.x)
        each = _log_score(found, judged.y, whole=bool((rows.y == rows.y.round()).all()))
    except (ValueError, Diverged):  # it cannot have these targets, or its fit diverged
        return math.inf
    nll = -float(np.average(each, weights=judged.repeats))
    return nll if math.isfinite(nll) else math.inf


def _log_score(predictive: Predictive, targets: Floats, whole: bool) -> Floats:
    """Log densities; of whole numbers the log probability of the unit around each."""
    y = torch.from_numpy(targets if targets.shape[1] > 1 else targets[:, 0])
    counts = getattr(predictive.conditional.support, "is_discrete", False)
    if y.dim() > 1 or counts or not whole:
        return predictive.log_prob(y).numpy()
    return (predictive.cdf(y + 0.5) - predictive.cdf(y - 0.5)).clamp(min=1e-300).log().numpy()
