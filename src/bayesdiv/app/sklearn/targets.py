"""What a quantity may be: the noise around it, and the units in which a network learns it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, LogNormal, Normal, StudentT

from bayesdiv.app.recipe import TABLES
from bayesdiv.app.sklearn.rows import Floats, Moments, moments, standardised
from bayesdiv.likelihoods.base import Likelihood, shift_to
from bayesdiv.likelihoods.gaussian import Gaussian
from bayesdiv.likelihoods.heteroscedastic import HeteroscedasticGaussian
from bayesdiv.likelihoods.poisson import Poisson
from bayesdiv.likelihoods.student_t import StudentTNoise


class Learned(NamedTuple):
    """Targets as a network learns them, and what leads back to their units."""

    values: Floats
    units: Moments


@dataclass(frozen=True)
class Noise:
    """One way in which targets scatter around what a network says.

    Args:
        outputs: numbers out of the network per target.
        likelihood: for targets as they are learned, (rows, targets).
        learned: from targets and repeats to what the network learns.
        in_units: from the distribution of what it learns to that of the targets.
    """

    outputs: int
    likelihood: Callable[[Floats], Likelihood]
    learned: Callable[[Floats, Floats], Learned]
    in_units: Callable[[Distribution, Moments], Distribution]


class Gaussians(Gaussian):
    """Several targets, each normal with a learned noise level of its own."""

    def __init__(self, targets: int) -> None:
        super().__init__(torch.ones(targets))

    def scale_for(self, axes: int) -> Tensor:
        """The noise of each target."""
        return self.scale  # (targets,), the last axis of the outputs


class Counts(Poisson):
    """Counts; the output is the logarithm of their expected number over that of their mean."""

    shift: Tensor

    def __init__(self, mean: Floats) -> None:
        super().__init__()
        self.register_buffer("shift", torch.from_numpy(np.log(np.maximum(mean, 1e-3))).float())

    def forward(self, outputs: Tensor) -> Distribution:
        """The distribution of the targets."""
        return super().forward(outputs + self.shift)


def _standard(y: Floats, repeats: Floats) -> Learned:
    units = moments(y, repeats)
    return Learned(standardised(y, units), units)


def _logarithm(y: Floats, repeats: Floats) -> Learned:
    if y.min() <= 0:
        raise ValueError(
            f"targets of likelihood='lognormal' must be positive, got {y.min()}: use "
            "'heteroscedastic'"
        )
    return _standard(np.log(y), repeats)


def _counts(y: Floats, repeats: Floats) -> Learned:
    wrong = y[(y < 0) | (y != np.floor(y))]
    if wrong.size:
        raise ValueError(f"targets of likelihood='poisson' must be 0, 1, 2, …, got {wrong[0]}")
    return Learned(y, Moments(np.zeros(y.shape[1]), np.ones(y.shape[1])))


def _stretched(found: Distribution, units: Moments) -> Distribution:
    """The same for loc + scale · y."""
    if isinstance(found, Independent):
        return Independent(_stretched(found.base_dist, units), 1, validate_args=False)
    loc, scale = (torch.from_numpy(moment) for moment in units)
    assert isinstance(found, Normal | StudentT)
    parts = loc + scale * found.loc, scale * found.scale
    if isinstance(found, StudentT):
        return StudentT(found.df.to(parts[0]), *parts, validate_args=False)
    return Normal(*parts, validate_args=False)


def _exponential(found: Distribution, units: Moments) -> Distribution:
    """The same for exp(loc + scale · y)."""
    stretched = _stretched(found, units)
    if isinstance(stretched, Independent):
        base = LogNormal(stretched.base_dist.loc, stretched.base_dist.scale, validate_args=False)
        return Independent(base, 1, validate_args=False)
    assert isinstance(stretched, Normal)
    return LogNormal(stretched.loc, stretched.scale, validate_args=False)


def _own_noise(values: Floats) -> Likelihood:
    """A learned scale for each row, 1 before anything is learned."""
    return HeteroscedasticGaussian(TABLES.smallest, shift_to(1.0, TABLES.smallest))


def _one_noise(values: Floats) -> Likelihood:
    return Gaussian() if values.shape[1] == 1 else Gaussians(values.shape[1])


NOISES = {
    "heteroscedastic": Noise(2, _own_noise, _standard, _stretched),
    "gaussian": Noise(1, _one_noise, _standard, _stretched),
    "student_t": Noise(1, lambda values: StudentTNoise(), _standard, _stretched),
    "lognormal": Noise(2, _own_noise, _logarithm, _exponential),
    "poisson": Noise(1, lambda values: Counts(values.mean(0)), _counts, lambda found, units: found),
}


def noise_of(word: object) -> Noise:
    """The noise that goes by a word.

    Examples:
        >>> noise_of("gaussian").outputs
        1
        >>> noise_of("normal")
        Traceback (most recent call last):
        ValueError: likelihood must be one of heteroscedastic, gaussian, student_t, lognormal, poisson, got 'normal'
    """  # noqa: E501
    if word not in NOISES:
        raise ValueError(f"likelihood must be one of {', '.join(NOISES)}, got {word!r}")
    return NOISES[str(word)]
