"""Rows of a table for an estimator: as numbers, each different one once, for each member some.

Tables of pandas with text, booleans, dates and gaps become numbers by scikit-learn's encoders.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.utils import check_array
from torch import Tensor, nn
from torch.distributions import Distribution

from bayesdiv.app.data.columns import check_unique, parsed
from bayesdiv.app.families import Floats
from bayesdiv.likelihoods import Likelihood
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.prediction import predict
from bayesdiv.training.batches import Batches

WATCH_SAMPLES = 16  # weight draws for the validation, which only finds when to stop
MOST_WATCHED = 1000  # rows that a member is validated on
MOST_KEPT = 1000  # rows of a stream that distances are learned from
MOST_CATEGORIES = 100  # of a column; the rarest share one
ROWS_AT_A_TIME = 1024  # of a prediction, so that the memory of hidden layers has a ceiling


class Rows(NamedTuple):
    """Different rows, and how many times each is repeated."""

    x: Floats  # (rows, columns)
    y: Floats  # (rows, targets); the number of a class as a float
    repeats: Floats  # (rows,)

    def at(self, places: NDArray[np.intp]) -> "Rows":
        """Some of the rows."""
        return Rows(*(part[places] for part in self))


def repeats_of(sample_weight: ArrayLike | None, rows: int) -> Floats:
    """How many times each row is repeated: its sample weight, checked."""
    if sample_weight is None:
        return np.ones(rows)
    how = {"ensure_2d": False, "dtype": np.float64, "input_name": "sample_weight"}
    repeats = check_array(sample_weight, **how)
    for wrong, rule in (
        (repeats.shape != (rows,), f"have shape ({rows},), got {repeats.shape}"),
        (repeats.min() < 0, f"not be negative, got {repeats.min()}"),
        (repeats.max() == 0, "not be zero for all rows"),
    ):
        if wrong:
            raise ValueError(f"sample_weight must {rule}")
    return cast(Floats, repeats)


def distinct(x: Floats, y: Floats, repeats: Floats) -> Rows:
    """Rows that are there, sorted, each once with the sum of its repeats."""
    # A row of weight 2 is then two rows, in any order; and no row held out has a twin trained on.
    table = np.hstack([x, y])[repeats > 0]
    table, place = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(place.ravel(), repeats[repeats > 0]).astype(np.float64)
    return Rows(table[:, : x.shape[1]], table[:, x.shape[1] :], total)


class Parts(NamedTuple):
    """The rows that each member learns from, and those that it and one other are stopped by."""

    train: tuple[Rows, ...]
    held: tuple[Rows, ...]

    @classmethod
    def of(cls, rows: Rows, members: int, share: float, seed: int) -> Self:
        """All rows for each member, or all but a share."""
        if share == 0:
            return cls((rows,) * members, ())
        total = len(rows.x)
        held = math.ceil(share * total)
        if held == total:
            rule = "validation_fraction must leave a row to train on"
            raise ValueError(f"{rule}, got {share} of {total} different rows")
        order = np.random.default_rng(seed).permutation(total)
        turned = [np.roll(order, -(member // 2) * held) for member in range(members)]
        watched = (rows.at(places[: min(held, MOST_WATCHED)]) for places in turned)
        return cls(tuple(rows.at(places[held:]) for places in turned), tuple(watched))

    @property
    def rows(self) -> int:
        """How many different rows a member learns from."""
        return len(self.train[0].x)

    @property
    def repeats(self) -> float:
        """How often a row is repeated, on average."""
        return float(np.mean([part.repeats.mean() for part in self.train]))

    def batches(self, size: int, seed: int, device: torch.device) -> Batches:
        """Batches of one member, or of a stack of several with an order of rows each."""
        x, y = _together(self.train, device)
        if len(self.train) == 1:
            return Batches(x[0], y[0], size, seed)
        return Batches(x, y, size, [seed + member for member in range(len(self.train))])

    def nll(self, model: Bayesian, likelihood: Likelihood, seed: int) -> float:
        """The NLL of the whole ensemble on rows it has not seen, for one example, in nats.

        Two members hold out the same rows, so the NLL of one and of two are known. It falls with
        the number of members M as NLL_∞ + c/M, by which that of all is found: a single member, and
        a pair still, seems to overfit long before the ensemble does.
        """
        x, repeated = _together(self.held, next(model.parameters()).device)
        y, repeats = repeated[..., :-1], repeated[..., -1]
        if len(self.held) == 1:
            x, y = x[0], y[0]
        found = predict(model, likelihood, x, WATCH_SAMPLES, batch_size=ROWS_AT_A_TIME, seed=seed)
        each = found.log_prob(y if found.conditional.event_shape else y.squeeze(-1))
        each = each.reshape(repeats.shape)  # (members, rows)
        pairs = torch.stack([_mixed(each[at : at + 2]) for at in range(0, len(each), 2)])
        fine = each.isfinite().all(1)
        one = -((repeats * each)[fine].sum() / repeats[fine].sum()).item()
        two = -((repeats[::2] * pairs).sum() / repeats[::2].sum()).item()
        return two - (one - two) * (1 - 2 / len(each))


def _mixed(each: Tensor) -> Tensor:
    """The log density of a mixture in equal shares; members that diverged are left out."""
    fine = each[each.isfinite().all(1)]
    return fine.logsumexp(0) - math.log(len(fine)) if len(fine) else each.mean(0)


def _together(parts: Sequence[Rows], device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs, and targets with their repeats as a last column, (members, rows, …)."""
    x = np.stack([part.x for part in parts])
    y = np.stack([np.column_stack([part.y, part.repeats]) for part in parts])
    how: Any = {"dtype": torch.float32, "device": device}
    return torch.as_tensor(x, **how), torch.as_tensor(y, **how)


class Stream:
    """What `partial_fit` needs to know of the rows before."""

    def __init__(self) -> None:
        self.on = False  # whether the rows at hand are a part
        self.seen, self.updates = 0, 0  # rows and updates so far
        self.part = 1.0  # share of the rows at hand in these
        self.adam: dict[int, Any] | None = None  # its moments
        self.kept: Floats = np.empty((0, 0))  # rows of all parts, behind the number each drew

    def sample(self, x: Floats, seed: int) -> Floats:
        """A sample of all rows so far, these included: those that drew the smallest numbers."""
        rows = np.hstack([np.random.default_rng([seed, self.seen]).random((len(x), 1)), x])
        rows = rows if not self.seen else np.vstack([self.kept, rows])
        self.seen += len(x)
        self.part = len(x) / self.seen
        self.kept = rows[rows[:, 0].argsort()[:MOST_KEPT]]
        return self.kept[:, 1:]


class Repeated(nn.Module):
    """A likelihood of targets whose last entry is how many times they are repeated."""

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__()
        self.likelihood = likelihood

    def forward(self, outputs: Tensor) -> "RepeatedTargets":
        return RepeatedTargets(self.likelihood(outputs))


class RepeatedTargets(Distribution):
    """Targets y that are repeated n times: log p(y, n) = n log p(y)."""

    def __init__(self, base: Distribution) -> None:
        self.base = base
        width = torch.Size([base.event_shape.numel() + 1])
        super().__init__(base.batch_shape, width, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        y, repeats = value[..., :-1], value[..., -1]
        return repeats * self.base.log_prob(y if self.base.event_shape else y.squeeze(-1))


def encoder_for(X: ArrayLike) -> ColumnTransformer | None:
    """The encoder of a table of pandas, fitted; None for one that holds numbers alone."""
    if not is_frame(X):
        return None
    frame = cast(Any, X)
    check_unique(frame.columns)
    kinds = {name: frame[name].dtype.kind for name in frame.columns}
    if all(kind in "iuf" for kind in kinds.values()) and not frame.isna().to_numpy().any():
        return None
    numbers = [name for name, kind in kinds.items() if kind in "iufbmM"]
    texts = [name for name in kinds if name not in numbers]
    filled = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    few = {"handle_unknown": "infrequent_if_exist", "max_categories": MOST_CATEGORIES}
    floats, words = (FunctionTransformer(f, feature_names_out="one-to-one") for f in (_days, _text))
    coded = make_pipeline(words, OneHotEncoder(**few, sparse_output=False))
    parts = [("numbers", make_pipeline(floats, filled), numbers), ("categories", coded, texts)]
    return ColumnTransformer(parts).fit(frame)


def is_frame(X: object) -> bool:
    """Whether it is a table of pandas."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def check_numbers(frame: Any) -> None:
    """Complain of text that is not a number in a table of pandas."""
    for name, column in frame.items():
        if column.dtype.kind not in "iufbmM":
            wrong = column[column.map(lambda v: isinstance(v, str)) & np.isnan(parsed(column))]
            for value in wrong:
                rule = f"column {name!r} must hold numbers or dates as in the fit"
                raise ValueError(f"{rule}, got {value!r}")


def _days(frame: Any) -> Any:
    """Numbers and booleans as floats, dates in days since 1970."""
    import pandas as pd

    def days(column: Any) -> Any:
        if column.dtype.kind == "M":
            column = column - pd.Timestamp(0, tz=column.dt.tz)
        return column / np.timedelta64(1, "D") if column.dtype.kind == "m" else column

    frame = frame.infer_objects()  # dates that came as objects
    check_numbers(frame)
    return frame.apply(days).astype("float64")


def _text(frame: Any) -> Any:
    values = frame.astype(object).where(frame.notna(), np.nan)
    return values.map(str, na_action="ignore").astype(object)  # floats where all are missing
