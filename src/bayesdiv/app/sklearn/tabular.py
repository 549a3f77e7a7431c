"""What both estimators share: settings, preparation of the table, training, predictions."""

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, is_dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from bayesdiv.app.data.splits import ensure
from bayesdiv.app.families import Floats, Units, moments
from bayesdiv.app.nets.tables import MLP, Away
from bayesdiv.app.recipe import TABLES, Rate, Watch, halved
from bayesdiv.app.sklearn import rows as tables
from bayesdiv.app.sklearn.rows import Parts, Repeated, Rows, Stream
from bayesdiv.compute.noise import preserved, seeded
from bayesdiv.divergence import Divergence
from bayesdiv.likelihoods import Likelihood
from bayesdiv.model.bayesian import Bayesian, stacked
from bayesdiv.model.bayesianize import bayesianize
from bayesdiv.model.posteriors import MeanField, Mixture
from bayesdiv.model.priors import FanIn, PriorFor
from bayesdiv.objective.objective import Objective
from bayesdiv.objective.strength import Constraint, WarmUp
from bayesdiv.prediction import predict
from bayesdiv.predictive import Predictive
from bayesdiv.training.best import Best
from bayesdiv.training.checks import finite_trials, parameter_groups
from bayesdiv.training.fit import Diverged, Epoch, EpochLoss, fit
from bayesdiv.training.steps import Eager, Recorded

log = logging.getLogger(__name__)

Network = Callable[[int, int], nn.Module]

ENOUGH_TO_HOLD_OUT = 20  # different rows; of fewer, all are learned from
# By how much the noise learns faster than the weights, up to which rate: it begins as large as the
# targets, and weights that are fitted to more noise than there is stay vague.
NOISE_FASTER, NOISE_FASTEST = 10, 0.1
# Of a hidden layer in an update. A second thread saves a twentieth of the time at half as many, and
# takes ten times as long where another program has its core.
FEW_NUMBERS = 1 << 17


@dataclass(eq=False, repr=False)
class Tabular(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: settings, preparation of the table, training, predictions."""

    divergence: Divergence | None = None
    _: KW_ONLY
    likelihood: str | None = None
    class_weight: str | Mapping[Any, float] | None = None
    strength: float | WarmUp | Constraint = TABLES.strength
    network: Network | None = None
    hidden: Sequence[int] = TABLES.hidden
    members: int | None = None
    prior: nn.Module | PriorFor | None = None
    start: float | None = None
    epochs: int | None = None
    learning_rate: float = TABLES.learning_rate
    batch_size: int | None = None
    samples: int = TABLES.samples
    test_samples: int = 100
    validation_fraction: float | None = None
    seconds: float = TABLES.seconds
    warm_start: bool = False
    verbose: int = 0
    random_state: int | np.random.RandomState | None = None
    device: str | torch.device = "cpu"
    _learn: ClassVar[Callable[..., None]]

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `divergence__alpha` and the like replace a field of a value."""
        super().set_params(**{key: value for key, value in params.items() if "__" not in key})
        for key in [key for key in params if "__" in key]:
            name, _, inner = key.partition("__")
            value = getattr(self, name, None)
            value = TABLES.divergence if value is None and name == "divergence" else value
            if is_dataclass(value) and not isinstance(value, type):
                setattr(self, name, replace(value, **{inner: params[key]}))
            else:
                super().set_params(**{key: params[key]})
        return self

    @property
    def _warm(self) -> bool:
        """Whether a fit continues an earlier one."""
        goes_on = self.warm_start or (self._stream.on and self._stream.seen > 0)
        return goes_on and hasattr(self, "model_")

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from rows X and targets y: numbers, one per row or several, or labels.

        A sample weight is how many times its row counts: 2 is the row twice, 0 without it. Weights
        with a mean of 1 leave the balance of data and prior, which `strength` sets, as it is.
        """
        self._stream = Stream()
        self._learn(X, y, sample_weight)
        return self

    def _next(self, *given: ArrayLike | None) -> Self:
        if not hasattr(self, "model_"):
            self._stream = Stream()
        self._stream.on = True
        self._learn(*given)
        return self

    def _numbers(self, X: ArrayLike, reset: bool) -> Floats:
        """Rows as numbers; what a first table has besides numbers gets an encoder."""
        if reset:
            self._encoder = tables.encoder_for(X)
        if tables.is_frame(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
        elif self._encoder is not None:
            raise ValueError("X must be a DataFrame with the columns that the fit had")
        if self._encoder is not None:
            rows: Any = X
            ensure(len(rows), "X must have a row to predict, got an array with 0 sample(s)")
            return np.asarray(self._encoder.transform(X), dtype=np.float64)
        if tables.is_frame(X):
            tables.check_numbers(X)
        return cast(Floats, validate_data(self, X, dtype=np.float64, reset=reset))

    def _read(self, X: ArrayLike, y: ArrayLike, **checks: Any) -> tuple[Floats, NDArray[Any]]:
        """Rows and targets as numbers."""
        x = self._numbers(X, reset=not self._warm)
        x, targets = check_X_y(x, y, dtype=np.float64, estimator=self, **checks)
        return x, targets

    def predictive(self, X: ArrayLike) -> Predictive:
        """The mixture over members and weight draws, the same draws in every call."""
        check_is_fitted(self)
        rows = self._columns.learned(self._numbers(X, reset=False))
        how: Any = {"batch_size": tables.ROWS_AT_A_TIME, "seed": self._seed}
        x = self.model_.inputs(torch.from_numpy(rows))
        return predict(self.model_, self.likelihood_, x, self.test_samples, **how)

    def _fit(self, rows: Rows, likelihood: Likelihood, outputs: int, **shifted: int) -> None:
        """Learn from rows whose targets are standardised or class numbers."""
        self._check_settings()
        self._calibration: tuple[Predictive, Tensor] | None = None
        self._folds: list[tuple[Self, Predictive, Tensor]] = []  # of CV+
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # Divided by infinity, a column without anything to learn from says nothing later.
        units = moments(rows.x, rows.repeats, constant=np.inf)
        if not self._warm:
            ensure(len(rows.x) > 1, "a fit needs 2 different rows of positive weight, got 1 sample")
            self._columns = units
        elif self._stream.on:  # a part of a table may be the first in which a column varies
            new, before = np.isinf(self._columns.scale), self._columns
            both = (np.where(new, *pair) for pair in zip(units[:2], before[:2], strict=True))
            self._columns = Units(*both)
        rows = rows._replace(x=self._columns.learned(rows.x))
        warm, sample = self._warm, self._stream.sample(rows.x, self._seed)
        known = sample if self._stream.on else rows.x
        with preserved(), self._threads(len(rows.x)):
            with seeded(self._seed):
                models = self._built(rows.x.shape[1], outputs)
            if warm:
                likelihood.load_state_dict(self.likelihood_.state_dict())
                begin_at(models, self.model_.network)
            share = 0.0 if self._stream.on else self.validation_fraction
            if share is None:
                enough = self.epochs is None and len(rows.x) >= ENOUGH_TO_HOLD_OUT
                share = TABLES.held if enough else 0.0
            parts = Parts.of(rows, len(models), share, self._seed)
            model = self._trained(models, likelihood, parts)
        # In double precision: a row then has the same prediction alone and in a batch.
        self.likelihood_: Likelihood = likelihood.cpu().double()
        away = Away(mixture(model), rows.x.shape[1], len(known), **shifted)
        self.model_: Away = away.cpu().double()
        self.model_.settle(torch.from_numpy(known))

    def _check_settings(self) -> None:
        """What is not checked, under the name that users know it by, where it is used."""
        counts = "epochs batch_size members samples test_samples"
        for names, fits, rule in (
            ("hidden", _are_units, "name the units of each layer"),
            (counts, lambda value: isinstance(value, Integral), "be a whole number"),
            (counts, lambda value: value >= 1, "be at least 1"),
            ("learning_rate seconds", lambda value: 0 < value < math.inf, "be positive"),
            ("validation_fraction", lambda value: 0 <= value < 1, "lie in [0, 1)"),
            ("divergence", lambda value: isinstance(value, Divergence), "be one such as JSA(0.3)"),
            ("network", callable, "be a function of the numbers of inputs and outputs"),
            ("prior", callable, "be a prior such as FanIn()"),
        ):
            for name in names.split():
                value = getattr(self, name)
                if (value is not None or "samples" in name) and not fits(value):
                    raise ValueError(f"{name} must {rule}, got {value!r}")

    def _threads(self, rows: int) -> AbstractContextManager[object]:
        """One thread for layers of few numbers, which a second one only waits for."""
        draws = (self.members or TABLES.members) * self.samples
        numbers = draws * (self.batch_size or TABLES.batch_size(rows)) * max(self.hidden, default=1)
        few = self.network is None and numbers <= FEW_NUMBERS
        return threadpool_limits(1) if few else nullcontext()

    def _built(self, inputs: int, outputs: int) -> list[Bayesian]:
        """The members, each from weights of its own."""
        network = self.network or (lambda i, o: MLP(i, o, tuple(self.hidden)).build())
        prior = FanIn() if self.prior is None else self.prior
        start = TABLES.start_for(self.divergence) if self.start is None else self.start

        def one() -> Bayesian:
            module = network(inputs, outputs).float()
            with torch.no_grad():  # evaluating, which leaves running statistics alone
                found = tuple(module.eval()(torch.zeros(2, inputs, dtype=torch.float32)).shape)
            module.train()
            if found[1:] != (outputs,):
                got = found[1] if len(found) == 2 else f"shape {found} for two rows"
                many = f"{outputs} output{'s' * (outputs > 1)}"
                raise ValueError(f"network must give {many}, got {got}")
            return bayesianize(module, prior, start=start)

        first = one()
        # Members side by side share what is not random, such as running means: then there is one.
        usual = 1 if first.module.state_dict(prefix="own.") else TABLES.members
        return [first, *(one() for _ in range((self.members or usual) - 1))]

    def _trained(self, models: list[Bayesian], likelihood: Likelihood, parts: Parts) -> Bayesian:
        """The members as one model, with the weights of their best epoch."""
        divergence = TABLES.divergence if self.divergence is None else self.divergence
        how: Any = {"strength": self._strength(len(models)), "samples": self.samples}
        objective = Objective(Repeated(likelihood.float()), divergence, num_data=parts.rows, **how)
        model = (models[0] if len(models) == 1 else stacked(models)).to(self.device)
        optimizer = self._optimizer(model, objective.to(self.device))
        size = self.batch_size or TABLES.batch_size(parts.rows)
        batches = parts.batches(size, self._seed, model.loc.device)
        number, rate, watch = self._length(len(batches), parts)
        best = Best(model=model, likelihood=likelihood)
        self.history_: list[EpochLoss] = []
        how = {"schedule": LambdaLR(optimizer, rate), "seed": self._seed + self._stream.updates}
        how |= {"step": Recorded() if model.loc.is_cuda else Eager(), "device": self.device}
        for each in fit(model, objective, batches, optimizer, number, **how):
            epoch, loss = each.number, for_one_member(each, parts.repeats)
            self.history_.append(loss)
            if self.verbose and (epoch % self.verbose == 0 or epoch == number):
                print(f"epoch {epoch}: loss {loss.total:.4f}, NLL {loss.nll:.4f}", flush=True)
            update = epoch * len(batches)
            if parts.held and (watch is None or watch.due(update)):
                nll = parts.nll(model, likelihood, self._seed + epoch)
                best.after(epoch, nll)
                if watch is not None and watch.over(update, nll):
                    break
                if watch is not None and watch.turning:
                    best.restore()
        self._stream.adam = optimizer.state_dict()["state"] if self._stream.on else None
        self._stream.updates += len(self.history_) * len(batches)
        self._end(best, bool(parts.held), watch)
        return model

    def _length(self, each: int, parts: Parts) -> tuple[int, Rate, Watch | None]:
        """The epochs of a fit, its rate, and who ends it where its user leaves that open."""
        if self._stream.on:  # the rate rises where it was left, and never falls
            return 1, Rate(TABLES.warm_up / (self._stream.updates + 1)), None
        fewest, most = TABLES.updates(parts.rows, parts.train[0].x.shape[1])
        if self.epochs is None and parts.held:
            rate = Rate(TABLES.warm_up)
            return 2 * math.ceil(most / each) + 2, rate, Watch(rate, fewest, most, self.seconds)
        epochs = self.epochs or math.ceil(fewest / each)
        rate = halved(epochs * each)
        if self._warm:  # good weights are not to be shaken by Adam's first steps
            rate.warm_up = TABLES.warm_up
        return epochs, rate, None

    def _end(self, best: Best, watching: bool, watch: Watch | None) -> None:
        """Keep the best weights; say what the fit did, and warn where it was cut short."""
        if watching and best.kept.epoch == 0:
            said = "the validation likelihood was not finite after any epoch"
            raise Diverged(f"{said}: lower the learning rate")
        self.best_epoch_ = best.restore() if watching else len(self.history_)
        self.report_ = f"{len(self.history_)} epochs"
        if watch is None:
            return
        self.report_ += f", the weights of epoch {self.best_epoch_} kept: {watch.sentence}"
        log.info("%s (%.3f nats per example)", self.report_, best.kept.score)
        if watch.cut:
            said = f"{watch.sentence}: give epochs={2 * len(self.history_)} for a longer fit"
            warnings.warn(said, ConvergenceWarning, stacklevel=5)

    def _strength(self, members: int) -> float | WarmUp | Constraint:
        """The user's, or a Constraint like it that learns: one multiplier per member."""
        given = self.strength
        if isinstance(given, Constraint | WarmUp) and self._stream.on:
            raise ValueError(f"strength of partial_fit must be a number, got {given!r}")
        if isinstance(given, Constraint):
            first = given.value()
            return Constraint(given.epsilon, first if members == 1 else first.repeat(members))
        return given if isinstance(given, WarmUp) else given * self._stream.part

    def _optimizer(self, model: Bayesian, objective: Objective) -> torch.optim.Adam:
        """Adam, in which the noise has its own faster rate; of a stream, where it was left."""
        rate, multiplier = self.learning_rate, list(objective.strength.parameters())
        noise = {"lr": min(NOISE_FASTER * rate, max(rate, NOISE_FASTEST))}
        groups = parameter_groups(model, objective.likelihood, noise=noise)
        groups += [{"params": multiplier}] if multiplier else []
        adam = torch.optim.Adam(groups, rate, capturable=model.loc.is_cuda, fused=True)
        if self._stream.adam is not None:
            rates = adam.state_dict()["param_groups"]
            adam.load_state_dict({"state": self._stream.adam, "param_groups": rates})
        return adam


def mixture(model: Bayesian) -> Bayesian:
    """One model whose draws cycle through the members of a trained stack that are finite."""
    if model.loc.dim() == 1:
        return model
    assert isinstance(model.posterior, MeanField)
    loc, scale = model.loc.detach(), model.posterior.scale.detach()
    fine = finite_trials(model).to(loc.device)
    each = MeanField(loc[fine], scale[fine])
    return Bayesian(model.module, model.layout, Mixture(each, int(fine.sum())), model.prior)


def begin_at(models: Sequence[Bayesian], before: Bayesian) -> None:
    """Let members begin where those of a trained mixture, or of a single network, ended."""
    posterior = before.posterior.each if isinstance(before.posterior, Mixture) else before.posterior
    assert isinstance(posterior, MeanField)
    ended, wanted = posterior.loc.reshape(-1, posterior.loc.shape[-1]).shape, models[0].layout.size
    if ended != (len(models), wanted):
        rule = f"warm_start needs {ended[0]} members of {ended[1]} weights, like the fit before"
        raise ValueError(f"{rule}, got {len(models)} of {wanted}")
    for name, value in posterior.state_dict().items():
        for model, own in zip(models, value.reshape(ended), strict=True):
            model.posterior.get_parameter(name).data.copy_(own)


def for_one_member(epoch: Epoch, repeats: float) -> EpochLoss:
    """The loss of an epoch for one example, the mean over the members that are finite."""
    each = epoch.trials
    members = 1 if each is None else int((each.nll + each.divergence).isfinite().sum())
    if not members:
        raise Diverged(f"the loss of epoch {epoch.number} is not finite: lower the learning rate")
    total, nll, divergence = (part / members for part in epoch.loss)
    return EpochLoss(total / repeats, nll / repeats, divergence)


def _are_units(value: object) -> bool:
    return isinstance(value, Iterable) and all(isinstance(units, Integral) for units in value)
