"""A target that is a quantity, with Gaussian noise."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from torch import Tensor

from bayesdiv.app.data.columns import Numeric
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.quantity import Quantity
from bayesdiv.app.recipe import TABLES
from bayesdiv.likelihoods.base import Likelihood, shift_to
from bayesdiv.likelihoods.heteroscedastic import HeteroscedasticGaussian

if TYPE_CHECKING:
    from pandas import Series


@dataclass(frozen=True)
class Regression(Quantity):
    """A target that is a quantity; y is standardised by the moments of training rows.

    Examples:
        >>> import torch
        >>> Regression(loc=150.0, scale=50.0).to_units(torch.tensor([0.0, 2.0]))
        tensor([150., 250.], dtype=torch.float64)
    """

    @classmethod
    def fit(cls, target: "Series") -> Self:
        """The task with mean and standard deviation of training targets."""
        found = Numeric.fit(target)
        if found is None:
            raise DataError(
                f"target {target.name!r} must vary in the training rows, got {target.iloc[0]} in "
                "all, rounding apart"
            )
        return cls(found.loc, found.scale)

    @property
    def description(self) -> str:
        """What the target is, for people."""
        return "regression: the target is a quantity"

    @property
    def outputs(self) -> int:
        """The mean, and the noise of each row."""
        return 2

    def likelihood(self, balanced_by: Tensor | None = None) -> Likelihood:
        """Normal, with a noise level that is learned for each row."""
        return HeteroscedasticGaussian(TABLES.smallest, shift_to(1.0, TABLES.smallest))
