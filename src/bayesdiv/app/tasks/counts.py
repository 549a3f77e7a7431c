"""A target that counts something, with Poisson noise."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bayesdiv.app.data.columns import numbers_of
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.tasks.regression import Regression

if TYPE_CHECKING:
    from pandas import Series


@dataclass(frozen=True)
class Counts(Regression):
    """A target that counts something, 0, 1, 2, …: y is the count itself.

    Examples:
        >>> import pandas as pd
        >>> Counts.fit(pd.Series([0, 3])).encode(pd.Series([2, 0]))
        tensor([2., 0.])
    """

    called: ClassVar[str] = "counts"
    usual: ClassVar[str] = "poisson"

    @classmethod
    def check(cls, target: "Series") -> None:
        super().check(target)
        values = numbers_of(target)
        wrong = np.flatnonzero((values < 0) | (values != np.floor(values)))
        if len(wrong):
            raise DataError(
                f"the target of counts must hold 0, 1, 2, …, got {values[wrong[0]]:g} in row "
                f"{wrong[0] + 1} of {target.name!r}"
            )

    @property
    def description(self) -> str:
        return "counts: the target is 0, 1, 2, …"
