"""A target that counts something, with Poisson noise."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bayesdiv.app.data.columns import numbers_of
from bayesdiv.app.data.splits import ensure
from bayesdiv.app.families import family_of
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
        fine = family_of(cls.usual).fits(values)
        row = int(fine.argmin())
        got = f"got {values[row]:g} in row {row + 1} of {target.name!r}"
        ensure(fine.all(), f"the target of counts must hold 0, 1, 2, …, {got}")

    @property
    def description(self) -> str:
        return "counts: the target is 0, 1, 2, …"
