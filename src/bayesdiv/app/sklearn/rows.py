"""Rows of a table for an estimator: each different one once, standardised, with its repeats."""

from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from torch import Tensor, nn
from torch.distributions import Distribution

from bayesdiv.app.families import Floats, Moments
from bayesdiv.likelihoods.base import Likelihood


class Rows(NamedTuple):
    """Different rows, and how many times each is repeated."""

    x: Floats  # (rows, columns)
    y: Floats  # (rows, targets); the number of a class as a float
    repeats: Floats  # (rows,)

    def at(self, places: NDArray[np.intp]) -> "Rows":
        """Some of the rows."""
        return Rows(*(part[places] for part in self))

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Inputs, and targets with their repeats as a last column, in single precision."""
        both = np.column_stack([self.y, self.repeats])
        x, y = (torch.from_numpy(part).to(device, torch.float32) for part in (self.x, both))
        return x, y


def repeats_of(sample_weight: ArrayLike | None, rows: int) -> Floats:
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


def distinct(x: Floats, y: Floats, repeats: Floats) -> Rows:
    """Rows that are there, sorted, each once with the sum of its repeats.

    Thereby a row of weight 2 is exactly two rows, in any order, for the batches and their noise
    too; and no row that is held out has a twin among those that are trained on.
    """
    table = np.hstack([x, y])[repeats > 0]
    table, place = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(place.ravel(), repeats[repeats > 0]).astype(np.float64)
    return Rows(table[:, : x.shape[1]], table[:, x.shape[1] :], total)


def standardised(values: Floats, moments: Moments) -> Floats:
    """Columns with mean 0 and standard deviation 1."""
    return (values - moments.loc) / moments.scale


class Repeated(nn.Module):
    """A likelihood of targets whose last entry is how many times they are repeated."""

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__()
        self.likelihood = likelihood

    def forward(self, outputs: Tensor) -> Distribution:
        """The distribution of targets and their repeats."""
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
