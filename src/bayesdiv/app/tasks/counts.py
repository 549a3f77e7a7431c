"""A target that counts something, with Poisson noise."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from torch import Tensor

from bayesdiv.app.data.columns import numbers_of
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.quantity import Quantity
from bayesdiv.likelihoods.base import Likelihood
from bayesdiv.likelihoods.poisson import Poisson

if TYPE_CHECKING:
    from pandas import Series


@dataclass(frozen=True)
class Counts(Quantity):
    """A target that counts something, 0, 1, 2, …: y is the count itself.

    Examples:
        >>> import pandas as pd
        >>> Counts.fit(pd.Series([0, 3])).encode(pd.Series([2, 0]))
        tensor([2., 0.])
    """

    called: ClassVar[str] = "counts"

    @classmethod
    def check(cls, target: "Series") -> None:
        """Complain of a column that holds anything but 0, 1, 2, …."""
        super().check(target)
        values = numbers_of(target)
        wrong = np.flatnonzero((values < 0) | (values != np.floor(values)))
        if len(wrong):
            raise DataError(
                f"the target of counts must hold 0, 1, 2, …, got {values[wrong[0]]:g} in row "
                f"{wrong[0] + 1} of {target.name!r}"
            )

    @classmethod
    def fit(cls, target: "Series") -> Self:
        """Counts are left in their own units."""
        return cls()

    @property
    def description(self) -> str:
        """What the target is, for people."""
        return "counts: the target is 0, 1, 2, …"

    def likelihood(self, balanced_by: Tensor | None = None) -> Likelihood:
        """Poisson, around the exponential of the output."""
        return Poisson()
