"""A target that is a quantity, with Gaussian noise."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from torch import Tensor

from bayesdiv.app.data.columns import Numeric
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.quantity import Quantity
from bayesdiv.likelihoods.base import Likelihood
from bayesdiv.likelihoods.gaussian import Gaussian

if TYPE_CHECKING:
    from pandas import Series


@dataclass(frozen=True)
class Regression(Quantity):
    """A target that is a quantity; y is standardised by the moments of training rows.

    Examples:
        >>> import torch
        >>> Regression(loc=150.0, scale=50.0).to_units(torch.tensor([0.0, 2.0]))
        tensor([150., 250.])
    """

    @classmethod
    def fit(cls, target: "Series") -> Self:
        """The task with mean and standard deviation of training targets."""
        found = Numeric.fit(target)
        if found is None:
            raise DataError(
                f"target {target.name!r} must vary in the training rows, got {target.iloc[0]} in "
                "all"
            )
        return cls(found.loc, found.scale)

    @property
    def description(self) -> str:
        """What the target is, for people."""
        return "regression: the target is a quantity"

    def likelihood(self, balanced_by: Tensor | None = None) -> Likelihood:
        """Normal, with one learned noise level."""
        return Gaussian()
