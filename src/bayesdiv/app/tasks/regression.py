"""A target that is a quantity."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data.columns import Encoder, Numeric, kind_of, label_of, numbers_of
from bayesdiv.app.data.splits import ensure
from bayesdiv.app.families import Family, Units, family_of
from bayesdiv.likelihoods import Likelihood
from bayesdiv.metrics import NATS, TARGET
from bayesdiv.metrics import TABLE as METRICS
from bayesdiv.predictive import Predictive

if TYPE_CHECKING:
    from pandas import Series


@dataclass(frozen=True)
class Regression:
    """A target that is a number; y is (target - loc) / scale by the moments of training rows.

    The family is a word of `bayesdiv.app.families`, or none for the `usual` one; its `Units` say
    what the numbers mean.

    Examples:
        >>> Regression(loc=150.0, scale=50.0).to_units(torch.tensor([0.0, 2.0]))
        tensor([150., 250.], dtype=torch.float64)
    """

    loc: float = 0.0
    scale: float = 1.0
    family: str = field(default="", repr=False)
    centre: float = field(default=0.0, repr=False)
    width: float = field(default=1.0, repr=False)
    usual: ClassVar[str] = "heteroscedastic"
    metrics: ClassVar[tuple[str, ...]] = ("rmse", "nll", "coverage")
    main: ClassVar[str] = "rmse"
    called: ClassVar[str] = "a regression"

    @classmethod
    def check(cls, target: "Series") -> None:
        got = f"got {label_of(target.iloc[0])!r} in {target.name!r}"
        numbers = type(kind_of(target)) is Numeric
        ensure(numbers, f"the target of {cls.called} must hold numbers, {got}")

    @classmethod
    def fit(cls, target: "Series", likelihood: str | None = None) -> Self:
        """The task with its units, from training targets; a likelihood other than the usual."""
        varies = kind_of(target).fit(target) is not None or cls.usual != Regression.usual
        rule = f"target {target.name!r} must vary in the training rows"
        ensure(varies, f"{rule}, got {target.iloc[0]} in all")
        values = numbers_of(target)[:, None]
        units = family_of(likelihood or cls.usual).units(values, np.ones(len(values)))
        loc, scale, centre, width = (float(part[0]) for part in units)
        return cls(loc, scale) if likelihood is None else cls(loc, scale, likelihood, centre, width)

    @classmethod
    def strata(cls, target: "Series") -> NDArray[np.int64] | None:
        return None

    @property
    def description(self) -> str:
        under = f", {self.family} noise" if self.family else ""
        return f"regression: the target is a quantity{under}"

    @property
    def outputs(self) -> int:
        return self._family.outputs

    @property
    def _family(self) -> Family:
        return family_of(self.family or self.usual)

    @property
    def shifted(self) -> dict[str, int]:
        return {"targets": 1, "locations": self._family.locations}

    def likelihood(self) -> Likelihood:
        numbers = (self.loc, self.scale, self.centre, self.width)
        return self._family.likelihood(Units(*(np.array([number]) for number in numbers)))

    @property
    def log_scale(self) -> float:
        return math.log(self.scale)

    def to_units(self, y: Tensor) -> Tensor:
        """Targets y or predicted means in the target's units; in double, or Unix seconds merge."""
        return self.loc + self.to_distance(y)

    def to_distance(self, y: Tensor) -> Tensor:
        """Standard deviations, widths and other distances of y in the target's units."""
        return self.scale * y.double()

    def encode(self, target: "Series") -> Tensor:
        kind = Numeric(str(target.name), self.loc, self.scale)
        return Encoder((kind,), (1,)).encode(target.to_frame(kind.name)).squeeze(1)

    def measured(self, predictive: Predictive, y: Tensor) -> dict[str, float]:
        found = {}
        for key in self.metrics:
            factor = self.scale if METRICS[key].unit == TARGET else 1.0
            shift = self.log_scale if METRICS[key].unit == NATS else 0.0
            found[key] = factor * METRICS[key].function(predictive, y).item() + shift
        return found

    def columns(self, predictive: Predictive, level: float) -> dict[str, Tensor | list[str]]:
        """Mean, standard deviation and its two parts, and the ends of the interval at `level`."""
        low, high = predictive.interval(level)
        return {
            "predicted_mean": self.to_units(predictive.mean),
            "predicted_scale": self.to_distance(predictive.variance.sqrt()),
            "predicted_low": self.to_units(low),
            "predicted_high": self.to_units(high),
            "epistemic_scale": self.to_distance(predictive.epistemic.sqrt()),
            "aleatoric_scale": self.to_distance(predictive.aleatoric.sqrt()),
        }
