"""What targets that are numbers have in common."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data.columns import Numeric, kind_of, label_of
from bayesdiv.app.data.splits import DataError
from bayesdiv.metrics import NATS, TARGET
from bayesdiv.metrics import TABLE as METRICS
from bayesdiv.predictive import Predictive

if TYPE_CHECKING:
    from pandas import Series


@dataclass(frozen=True)
class Quantity:
    """A target that is a number; y is (target - loc) / scale.

    Examples:
        >>> Quantity(loc=150.0, scale=50.0).to_units(torch.tensor([0.0, 2.0]))
        tensor([150., 250.], dtype=torch.float64)
    """

    loc: float = 0.0
    scale: float = 1.0
    metrics: ClassVar[tuple[str, ...]] = ("rmse", "nll", "coverage")
    main: ClassVar[str] = "rmse"
    called: ClassVar[str] = "a regression"
    searched: ClassVar[tuple[str, ...]] = ("nll", "rmse")

    @classmethod
    def check(cls, target: "Series") -> None:
        """Complain of a column that does not hold numbers."""
        if kind_of(target) is not Numeric:
            raise DataError(
                f"the target of {cls.called} must hold numbers, got "
                f"{label_of(target.iloc[0])!r} in {target.name!r}"
            )

    @classmethod
    def strata(cls, target: "Series") -> NDArray[np.int64] | None:
        """No groups: rows are drawn freely."""
        return None

    @property
    def outputs(self) -> int:
        """One number, such as the mean."""
        return 1

    @property
    def shifted(self) -> dict[str, int]:
        """The first one, which says where the target lies."""
        return {"targets": 1}

    @property
    def log_scale(self) -> float:
        """To add to a negative log density of y: it then holds in the target's units."""
        return math.log(self.scale)

    def to_units(self, y: Tensor) -> Tensor:
        """Targets y or predicted means in the target's units, in double precision.

        In single precision, targets such as Unix seconds would all round to the same number.
        """
        return self.loc + self.to_distance(y)

    def to_distance(self, y: Tensor) -> Tensor:
        """Standard deviations, widths and other distances of y in the target's units."""
        return self.scale * y.double()

    def encode(self, target: "Series") -> Tensor:
        """Targets as y."""
        values = Numeric(str(target.name), self.loc, self.scale).encode(target)
        return torch.from_numpy(values).squeeze(1)

    def measured(self, predictive: Predictive, y: Tensor) -> dict[str, float]:
        """The metrics of predictions, in the units of the target."""
        found = {key: METRICS[key].function(predictive, y).item() for key in self.metrics}
        return {key: self._in_units(METRICS[key].unit, value) for key, value in found.items()}

    def _in_units(self, unit: str, value: float) -> float:
        if unit == NATS:
            return value + self.log_scale
        return value * self.scale if unit == TARGET else value

    def columns(self, predictive: Predictive, level: float) -> dict[str, Tensor | list[str]]:
        """Mean, standard deviation, the ends of the interval of this level, and the two parts.

        The parts are standard deviations: their squares add up to that of the whole.
        """
        low, high = predictive.interval(level)
        return {
            "predicted_mean": self.to_units(predictive.mean),
            "predicted_scale": self.to_distance(predictive.variance.sqrt()),
            "predicted_low": self.to_units(low),
            "predicted_high": self.to_units(high),
            "epistemic_scale": predictive.epistemic.sqrt() * self.scale,
            "aleatoric_scale": predictive.aleatoric.sqrt() * self.scale,
        }
