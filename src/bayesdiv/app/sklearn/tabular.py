"""What both estimators share: settings, preparation of the table, training, predictions."""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from bayesdiv.app.nets.mlp import MLP
from bayesdiv.app.sklearn.rows import Repeated, Rows, moments, standardised
from bayesdiv.divergence import JSA, Divergence
from bayesdiv.likelihoods.base import Likelihood
from bayesdiv.model.bayesian import Bayesian, bayesianize
from bayesdiv.model.priors import FanIn, PriorFor
from bayesdiv.objective.objective import Objective
from bayesdiv.objective.strength import Constraint, WarmUp
from bayesdiv.prediction import TURN, predict
from bayesdiv.predictive import Predictive
from bayesdiv.training.batches import Batches
from bayesdiv.training.best import Best
from bayesdiv.training.fit import Epoch, EpochLoss, fit

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


class Tabular(BaseEstimator):  # type: ignore[misc]
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
        x = standardised(validate_data(self, X, dtype=np.float64, reset=False), self._columns)
        with TURN, _seeded(self._seed):
            return predict(
                self.model_,
                self.likelihood_,
                torch.from_numpy(x),
                self.test_samples,
                batch_size=ROWS_AT_A_TIME,
            )

    def _fit(self, rows: Rows, likelihood: Likelihood, outputs: int) -> Self:
        """Learn from rows whose targets are standardised or class numbers."""
        self._check_settings()
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # Divided by infinity, a column without anything to learn from says nothing later either.
        self._columns = moments(rows.x, rows.repeats, constant=np.inf)
        rows = rows._replace(x=standardised(rows.x, self._columns))
        train, validation = self._split(rows)
        with _seeded(self._seed):
            model = self._built(rows.x.shape[1], outputs)
            best = Best(model=model, likelihood=likelihood)
            self.history_: list[EpochLoss] = []
            for epoch in self._epochs(model, likelihood, train):
                self.history_.append(_an_example(epoch.loss, float(train.repeats.mean())))
                if validation is not None:
                    best.after(epoch.number, _nll(best.parts, validation))
        if self.epochs is None and validation is None:  # else the user has chosen when to stop
            _warn_if_falling([loss.nll for loss in self.history_])
        self.best_epoch_ = len(self.history_) if validation is None else best.restore()
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

    def _split(self, rows: Rows) -> tuple[Rows, Rows | None]:
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

    def _epochs(self, model: Bayesian, likelihood: Likelihood, rows: Rows) -> Iterator[Epoch]:
        """Train, with a learning rate that falls to 0 along half a cosine."""
        objective = Objective(
            Repeated(likelihood.float()),
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


def _check_outputs(network: nn.Module, inputs: int, outputs: int) -> None:
    """That two rows of zeros give as many outputs as there must be."""
    with torch.no_grad():  # evaluating, which leaves running statistics alone
        found = tuple(network.eval()(torch.zeros(2, inputs, dtype=torch.float32)).shape)
    network.train()
    if found[1:] != (outputs,):
        one = found[1] if len(found) == 2 else f"shape {found} for two rows"
        raise ValueError(f"network must give {outputs} output{'s' * (outputs > 1)}, got {one}")


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


def _nll(parts: Mapping[str, nn.Module], rows: Rows) -> float:
    """The negative log-likelihood of rows, each as often as it is repeated."""
    model, likelihood = parts["model"], parts["likelihood"]
    x, repeated = rows.tensors(next(model.parameters()).device)
    found = predict(model, likelihood, x, WATCH_SAMPLES, batch_size=ROWS_AT_A_TIME)
    y, repeats = repeated[:, :-1], repeated[:, -1]
    each = found.log_prob(y if found.conditional.event_shape else y.squeeze(-1))
    return -(repeats * each).sum().item()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Noise from a seed; afterwards torch's generators are where they were."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
