"""Scikit-learn estimators: numbers in a table, one quantity or class out, with uncertainty."""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal
from torch.optim.lr_scheduler import CosineAnnealingLR

from bayesdiv.app.nets import MLP
from bayesdiv.divergence import JSA, Divergence
from bayesdiv.likelihoods.base import Likelihood
from bayesdiv.likelihoods.classes import Classes
from bayesdiv.likelihoods.gaussian import Gaussian
from bayesdiv.model.bayesian import Bayesian, bayesianize
from bayesdiv.model.priors import FanIn, PriorFor
from bayesdiv.objective.objective import Objective
from bayesdiv.objective.strength import Constraint, WarmUp
from bayesdiv.prediction import TURN, predict
from bayesdiv.predictive import Predictive
from bayesdiv.training.batches import Batches
from bayesdiv.training.fit import Epoch, EpochLoss, fit

Floats = NDArray[np.float64]
Network = Callable[[int, int], nn.Module]

UPDATES = 1000  # of a fit whose epochs are not given: a few seconds, and enough for small tables
# Nats that the NLL of an example falls in the second half of a fit that is too short: measured
# 0.16 to 0.30 on small tables with little noise, whose intervals are too wide; 0.08 or less on
# noisy ones.
STILL_FALLING = 0.1
WATCH_SAMPLES = 8  # weight draws for the validation after each epoch, which only picks the best
# By how much the noise learns faster than the weights, up to which rate: it begins as large as the
# targets, and weights that are fitted to more noise than there is stay vague.
NOISE_FASTER, NOISE_FASTEST = 10, 0.1
ROWS_AT_A_TIME = 1024  # of a prediction, so that the memory of hidden layers has a ceiling


class _Tabular(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: settings, preparation of the table, training, predictions."""

    def __init__(
        self,
        divergence: Divergence | None = None,
        *,
        strength: float | WarmUp | Constraint = 1.0,
        network: Network | None = None,
        hidden: Sequence[int] = (50,),
        prior: nn.Module | PriorFor | None = None,
        start: float = 0.1,
        epochs: int | None = None,
        learning_rate: float = 1e-2,
        batch_size: int = 32,
        samples: int = 1,
        test_samples: int = 100,
        validation_fraction: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.divergence = divergence
        self.strength = strength
        self.network = network
        self.hidden = hidden
        self.prior = prior
        self.start = start
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.samples = samples
        self.test_samples = test_samples
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device

    def predictive(self, X: ArrayLike) -> Predictive:
        """The mixture over weight draws: densities, quantiles and the two parts of uncertainty.

        The same draws in every call, so the same row has the same prediction in any table.
        """
        check_is_fitted(self)
        x = _standardised(validate_data(self, X, dtype=np.float64, reset=False), self._columns)
        with TURN, _seeded(self._seed):
            return predict(
                self.model_,
                self.likelihood_,
                torch.from_numpy(x),
                self.test_samples,
                batch_size=ROWS_AT_A_TIME,
            )

    def _fit(self, rows: "_Rows", likelihood: Likelihood, outputs: int) -> Self:
        """Learn from rows whose targets are standardised or class numbers."""
        self._check_settings()
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # Divided by infinity, a column without anything to learn from says nothing later either.
        self._columns = _moments(rows.x, rows.repeats, constant=np.inf)
        rows = rows._replace(x=_standardised(rows.x, self._columns))
        train, validation = self._split(rows)
        with _seeded(self._seed):
            model = self._built(rows.x.shape[1], outputs)
            best = _Best(model, likelihood, validation)
            self.history_: list[EpochLoss] = []
            for epoch in self._epochs(model, likelihood, train):
                self.history_.append(_an_example(epoch.loss, float(train.repeats.mean())))
                best.after(epoch)
        if self.epochs is None and validation is None:  # else the user has chosen when to stop
            _warn_if_falling([loss.nll for loss in self.history_])
        best.restore()
        self.best_epoch_ = best.epoch
        # In double precision: a row then has the same prediction alone and in a batch.
        self.model_, self.likelihood_ = model.cpu().double(), likelihood.cpu().double()
        return self

    def _check_settings(self) -> None:
        """What is not checked, under the name that users know it by, where it is used."""
        if isinstance(self.hidden, int):
            raise ValueError(f"hidden must name the units of each layer, got {self.hidden}")
        for name in ("epochs", "batch_size", "samples", "test_samples"):
            value = getattr(self, name)
            if value is None and name == "epochs":
                continue
            if not isinstance(value, Integral):
                raise ValueError(f"{name} must be a whole number, got {value!r}")
            if int(value) < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self._check_parts()
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must lie in [0, 1), got {self.validation_fraction}"
            )

    def _check_parts(self) -> None:
        """That what the network and its loss are made of is of the right kind."""
        if not (self.divergence is None or isinstance(self.divergence, Divergence)):
            raise ValueError(f"divergence must be one such as JSA(0.3), got {self.divergence!r}")
        if not (self.network is None or callable(self.network)):
            raise ValueError(
                "network must be a function of the numbers of inputs and outputs, got "
                f"{self.network!r}"
            )
        if not (self.prior is None or callable(self.prior)):
            raise ValueError(f"prior must be a prior such as FanIn(), got {self.prior!r}")

    def _split(self, rows: "_Rows") -> tuple["_Rows", "_Rows | None"]:
        """The rows to train on, and those that pick the best epoch."""
        if self.validation_fraction == 0:
            return rows, None
        total = len(rows.x)
        held = math.ceil(self.validation_fraction * total)
        if held == total:
            raise ValueError(
                f"validation_fraction must leave a row to train on, got {self.validation_fraction} "
                f"of {total} different rows"
            )
        order = np.random.default_rng(self._seed).permutation(total)
        return rows.at(order[held:]), rows.at(order[:held])

    def _built(self, inputs: int, outputs: int) -> Bayesian:
        network = self.network or (lambda i, o: MLP(i, o, tuple(self.hidden)).build())
        prior = FanIn() if self.prior is None else self.prior
        module = network(inputs, outputs).float()
        _check_outputs(module, inputs, outputs)
        return bayesianize(module, prior, start=self.start)

    def _epochs(self, model: Bayesian, likelihood: Likelihood, rows: "_Rows") -> Iterator[Epoch]:
        """Train, with a learning rate that falls to 0 along half a cosine."""
        objective = Objective(
            _Repeated(likelihood.float()),
            JSA(0.3) if self.divergence is None else self.divergence,
            num_data=len(rows.x),
            strength=copy.deepcopy(self.strength),  # a Constraint learns, the user's must not
            samples=self.samples,
        )
        device = torch.device(self.device)
        model.to(device)
        objective.to(device)
        optimizer = torch.optim.Adam(self._groups(model, objective, likelihood))
        batches = Batches(*rows.tensors(device), self.batch_size, self._seed)
        epochs = self.epochs or math.ceil(UPDATES / len(batches))
        schedule = CosineAnnealingLR(optimizer, epochs * len(batches))

        yield from fit(
            model,
            objective,
            batches,
            optimizer,
            epochs,
            seed=self._seed,
            schedule=schedule,
            device=device,
        )

    def _groups(
        self, model: Bayesian, objective: Objective, likelihood: Likelihood
    ) -> list[dict[str, Any]]:
        """The parameters with their learning rates: the noise has a faster one of its own."""
        noise = list(likelihood.parameters())
        known = {id(parameter) for parameter in noise}
        others = [p for part in (model, objective) for p in part.parameters() if id(p) not in known]
        rate = self.learning_rate
        faster = min(NOISE_FASTER * rate, max(rate, NOISE_FASTEST))
        return [{"params": others, "lr": rate}, {"params": noise, "lr": faster}]


class BayesianRegressor(RegressorMixin, MultiOutputMixin, _Tabular):  # type: ignore[misc]
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
        batch_size: rows an update.
        samples: weight draws an update.
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
        """Learn from rows X and targets y, one a row or several.

        A sample weight is how many times its row counts: 2 is the row twice, 0 without it. Weights
        with a mean of 1 leave the balance of data and prior, which `strength` sets, as it is.
        """
        x, quantity = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._target_shape = quantity.shape[1:]
        quantity = quantity.reshape(len(x), -1).astype(np.float64)
        rows = _distinct(x, quantity, _repeats(sample_weight, len(x)))
        self._targets = _moments(rows.y, rows.repeats)
        standard = rows._replace(y=_standardised(rows.y, self._targets))
        targets = rows.y.shape[1]
        return self._fit(standard, Gaussian() if targets == 1 else _Gaussians(targets), targets)

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


class BayesianClassifier(ClassifierMixin, _Tabular):  # type: ignore[misc]
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
        repeats = _repeats(sample_weight, len(x))
        counts = repeats > 0  # a class without a row that counts is none
        self.classes_, number = np.unique(label[counts], return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have two classes or more, got one class: {self.classes_[0]}")
        rows = _distinct(x[counts], number[:, None].astype(np.float64), repeats[counts])
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


class _Rows(NamedTuple):
    """Different rows, and how many times each is repeated."""

    x: Floats  # (rows, columns)
    y: Floats  # (rows, targets); the number of a class as a float
    repeats: Floats  # (rows,)

    def at(self, places: NDArray[np.intp]) -> "_Rows":
        return _Rows(*(part[places] for part in self))

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Inputs, and targets with their repeats as a last column, in single precision."""
        both = np.column_stack([self.y, self.repeats])
        x, y = (torch.from_numpy(part).to(device, torch.float32) for part in (self.x, both))
        return x, y


def _repeats(sample_weight: ArrayLike | None, rows: int) -> Floats:
    """How many times each row is repeated: its sample weight, checked."""
    if sample_weight is None:
        return np.ones(rows)
    repeats = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if repeats.shape != (rows,):
        raise ValueError(f"sample_weight must have shape ({rows},), got {repeats.shape}")
    if repeats.min() < 0:
        raise ValueError(f"sample_weight must not be negative, got {repeats.min()}")
    if repeats.max() == 0:
        raise ValueError("sample_weight must not be zero for all rows")
    return cast(Floats, repeats)


def _distinct(x: Floats, y: Floats, repeats: Floats) -> _Rows:
    """Rows that are there, sorted, each once with the sum of its repeats.

    Thereby a row of weight 2 is exactly two rows, in any order, for the batches and their noise
    too; and no row that is held out has a twin among those that are trained on.
    """
    table = np.hstack([x, y])[repeats > 0]
    table, place = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(place.ravel(), repeats[repeats > 0]).astype(np.float64)
    return _Rows(table[:, : x.shape[1]], table[:, x.shape[1] :], total)


class _Moments(NamedTuple):
    """What columns are standardised by."""

    loc: Floats  # (columns,)
    scale: Floats


def _moments(values: Floats, repeats: Floats, constant: float = 1.0) -> _Moments:
    """Mean and standard deviation of each column; `constant` for one that differs by rounding."""
    width = np.ptp(values, axis=0)
    varies = width > 10 * np.finfo(np.float64).eps * np.abs(values).max(axis=0)
    width = np.where(varies, width, 1.0)
    loc = np.average(values, axis=0, weights=repeats)
    # In units of the width, so that the squares neither overflow nor vanish.
    variance = np.average(((values - loc) / width) ** 2, axis=0, weights=repeats)
    return _Moments(loc, np.where(varies, width * np.sqrt(variance), constant))


def _standardised(values: Floats, moments: _Moments) -> Floats:
    return (values - moments.loc) / moments.scale


def _check_outputs(network: nn.Module, inputs: int, outputs: int) -> None:
    """That two rows of zeros give as many outputs as there must be."""
    with torch.no_grad():  # evaluating, which leaves running statistics alone
        found = tuple(network.eval()(torch.zeros(2, inputs, dtype=torch.float32)).shape)
    network.train()
    if found[1:] != (outputs,):
        one = found[1] if len(found) == 2 else f"shape {found} for two rows"
        raise ValueError(f"network must give {outputs} output{'s' * (outputs > 1)}, got {one}")


class _Gaussians(Gaussian):
    """Several targets, each normal with a learned noise level of its own."""

    def __init__(self, targets: int) -> None:
        super().__init__(torch.ones(targets))

    def _for(self, loc: Tensor, axes: int) -> Tensor:
        return self.scale  # (targets,), the last axis of the outputs


class _Repeated(nn.Module):
    """A likelihood of targets whose last entry is how many times they are repeated."""

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__()
        self.likelihood = likelihood

    def forward(self, outputs: Tensor) -> Distribution:
        return _RepeatedTargets(self.likelihood(outputs))


class _RepeatedTargets(Distribution):
    """Targets y that are repeated n times: log p(y, n) = n log p(y)."""

    def __init__(self, base: Distribution) -> None:
        self.base = base
        width = torch.Size([base.event_shape.numel() + 1])
        super().__init__(base.batch_shape, width, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        y, repeats = value[..., :-1], value[..., -1]
        return repeats * self.base.log_prob(y if self.base.event_shape else y.squeeze(-1))


def _an_example(loss: EpochLoss, repeats: float) -> EpochLoss:
    """The loss for one example where it was for one row repeated `repeats` times."""
    return EpochLoss(loss.total / repeats, loss.nll / repeats, loss.divergence)


def _warn_if_falling(nll: Sequence[float]) -> None:
    """Tell of a fit that was too short, by what its epochs gained after the first half."""
    half, few = len(nll) // 2, max(1, len(nll) // 10)
    fall = float(np.mean(nll[half : half + few]) - np.mean(nll[-few:]))
    if fall > STILL_FALLING:
        warnings.warn(
            f"the NLL still fell by {fall:.2f} in the second half of {len(nll)} epochs, and "
            f"intervals may be too wide: raise epochs, such as epochs={4 * len(nll)}",
            ConvergenceWarning,
            stacklevel=4,
        )


class _Best:
    """Remembers the weights of the best epoch by validation NLL, or those of the last."""

    def __init__(self, model: Bayesian, likelihood: Likelihood, rows: _Rows | None) -> None:
        self.parts = nn.ModuleList([model, likelihood])
        self.rows = rows
        self.epoch, self.nll = 0, float("inf")
        self.state: dict[str, Tensor] | None = None

    def after(self, epoch: Epoch) -> None:
        if self.rows is None:
            self.epoch = epoch.number
            return
        nll = self._nll(self.rows)
        if nll < self.nll:
            self.nll, self.epoch = nll, epoch.number
            self.state = copy.deepcopy(self.parts.state_dict())

    def _nll(self, rows: _Rows) -> float:
        model, likelihood = self.parts
        x, repeated = rows.tensors(next(model.parameters()).device)
        found = predict(model, likelihood, x, WATCH_SAMPLES, batch_size=ROWS_AT_A_TIME)
        y, repeats = repeated[:, :-1], repeated[:, -1]
        each = found.log_prob(y if found.conditional.event_shape else y.squeeze(-1))
        return -(repeats * each).sum().item()

    def restore(self) -> None:
        if self.state is not None:
            self.parts.load_state_dict(self.state)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Noise from a seed; afterwards torch's generators are where they were."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
