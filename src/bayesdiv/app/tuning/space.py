"""Which settings of an experiment are searched, and between which numbers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from optuna.trial import Trial

from bayesdiv.app.experiment import Training
from bayesdiv.divergence import Divergence


@dataclass(frozen=True)
class Uniform:
    """A setting between two numbers.

    Examples:
        >>> Uniform(0.0, 1.0)
        Uniform(low=0.0, high=1.0)
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(
                f"a range must be finite with low below high, got {self.low} and {self.high}"
            )

    def suggest(self, trial: Trial, name: str) -> float:
        """The value for a trial."""
        return trial.suggest_float(name, self.low, self.high)


@dataclass(frozen=True)
class LogUniform(Uniform):
    """A setting between two positive numbers, whose logarithm is searched.

    Examples:
        >>> LogUniform(1e-3, 1e2)
        LogUniform(low=0.001, high=100.0)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise ValueError(f"low must be positive on a logarithmic scale, got {self.low}")

    def suggest(self, trial: Trial, name: str) -> float:
        """The value for a trial."""
        return trial.suggest_float(name, self.low, self.high, log=True)


@dataclass(frozen=True)
class Space:
    """The settings of an experiment that are searched; None leaves one as it is.

    Args:
        alpha: of the divergence, where it has one.
        strength: λ in front of the divergence.
        learning_rate: of Adam.

    Examples:
        >>> Space(learning_rate=None).strength
        LogUniform(low=0.001, high=100.0)
    """

    alpha: Uniform | None = Uniform(0.0, 1.0)
    strength: Uniform | None = LogUniform(1e-3, 1e2)
    learning_rate: Uniform | None = LogUniform(3e-4, 3e-2)

    def ranges(self, divergence: Divergence) -> dict[str, Uniform]:
        """What is searched with this divergence, by name."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        if "alpha" not in {f.name for f in fields(divergence)}:  # type: ignore[arg-type]
            del given["alpha"]
        return {name: range_ for name, range_ in given.items() if range_ is not None}


def with_settings(
    divergence: Divergence, training: Training, settings: Mapping[str, float]
) -> tuple[Divergence, Training]:
    """A divergence and a training with some settings replaced.

    Examples:
        >>> from bayesdiv import JSA
        >>> with_settings(JSA(0.5), Training(), {"alpha": 0.2, "strength": 3.0})[0]
        JSA(alpha=0.2)
    """
    rest = dict(settings)
    if "alpha" in rest:
        divergence = replace(divergence, alpha=rest.pop("alpha"))  # type: ignore[type-var]
    return divergence, replace(training, **rest)  # type: ignore[arg-type]


def outside(divergence: Divergence, training: Training, space: Space) -> dict[str, float]:
    """The settings given that lie outside their ranges: a search does not begin with these.

    Examples:
        >>> from bayesdiv import KL
        >>> outside(KL(), Training(learning_rate=10.0), Space())
        {'learning_rate': 10.0}
    """
    ranges = space.ranges(divergence)
    found = given(divergence, training, ranges)
    return {k: v for k, v in found.items() if not ranges[k].low <= v <= ranges[k].high}


def given(divergence: Divergence, training: Training, names: Iterable[str]) -> dict[str, float]:
    """The values of settings that a search may begin with."""
    return {name: getattr(divergence if name == "alpha" else training, name) for name in names}
