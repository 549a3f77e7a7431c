"""Likelihoods by the words that the estimators and the command line know them by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributions
from torch.distributions import Distribution

from bayesdiv import likelihoods
from bayesdiv.app.data.splits import DataError, ensure
from bayesdiv.app.recipe import TABLES
from bayesdiv.likelihoods import Likelihood

Floats = NDArray[np.float64]
COMPONENTS = 3  # of a mixture
OVERDISPERSED = 0.5  # relative spread of counts before anything is learned


class Units(NamedTuple):
    """How columns or targets are learned, (columns,) each.

    y is (value - loc) / scale. Where the network says a logarithm, 0 and 1 of its output are
    `centre` and `centre + width` of the logarithm of y.
    """

    loc: Floats
    scale: Floats
    centre: Floats = np.zeros(1)
    width: Floats = np.ones(1)

    def learned(self, values: Floats) -> Floats:
        """The values as they are learned."""
        return (values - self.loc) / self.scale


def moments(values: Floats, repeats: Floats, constant: float = 1.0) -> Units:
    """Mean and standard deviation of each column; `constant` for one that differs by rounding."""
    width = np.ptp(values, axis=0)
    varies = width > 10 * np.finfo(np.float64).eps * np.abs(values).max(axis=0)
    width = np.where(varies, width, 1.0)
    loc = np.average(values, axis=0, weights=repeats)
    # In units of the width, so that the squares neither overflow nor vanish.
    variance = np.average(((values - loc) / width) ** 2, axis=0, weights=repeats)
    return Units(loc, np.where(varies, width * np.sqrt(variance), constant))


@dataclass(frozen=True)
class Family:
    """A family of distributions around what a network says."""

    likelihood: Callable[[Units], Likelihood]  # for targets as they are learned
    units: Callable[[Floats, Floats], Units] = moments  # of targets and their repeats
    outputs: int = 2  # numbers out of the network per target
    locations: int = 1  # of these, those that say where the target lies; they come first

    @property
    def holds(self) -> str:
        """What targets must be."""
        positive = "positive" if self.units is _logarithmic else "numbers"
        return "0, 1, 2, …" if self.units is _counted else positive

    def fits(self, y: Floats) -> NDArray[np.bool_]:
        """Which targets are so."""
        whole = (y >= 0) & (y == np.floor(y)) if self.units is _counted else np.isfinite(y)
        return np.asarray(y > 0 if self.units is _logarithmic else whole)


def _logarithmic(y: Floats, repeats: Floats) -> Units:
    """Targets over their geometric mean."""
    found = moments(np.log(y), repeats)
    nothing = np.zeros_like(found.loc)
    return Units(nothing, np.exp(found.loc), nothing, found.scale)


def _counted(y: Floats, repeats: Floats) -> Units:
    """Counts themselves."""
    mean = np.average(y, axis=0, weights=repeats)
    nothing, one = np.zeros_like(mean), np.ones_like(mean)
    return Units(nothing, one, np.log(np.maximum(mean, 1e-3)), one)


class Gaussians(likelihoods.Gaussian):
    """Several targets, each normal with a learned noise level of its own."""

    def __init__(self, targets: int) -> None:
        super().__init__(torch.ones(targets))

    def scale_for(self, axes: int) -> Tensor:
        """The noise of each target."""
        return self.scale  # (targets,), the last axis of the outputs


_SMALLEST, _SHIFT = TABLES.smallest, likelihoods.shift_to(1.0, TABLES.smallest)


def _numbers(values: Floats) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float32))


def _of_logarithms(
    kind: Callable[..., Likelihood], spread: float = 1.0
) -> Callable[[Units], Likelihood]:
    """A likelihood whose network says a logarithm."""
    shift = likelihoods.shift_to(spread, _SMALLEST)
    return lambda units: kind(_SMALLEST, shift, _numbers(units.centre), _numbers(units.width))


FAMILIES = {
    "heteroscedastic": Family(lambda _: likelihoods.HeteroscedasticGaussian(_SMALLEST, _SHIFT)),
    "gaussian": Family(
        lambda u: Gaussians(len(u.loc)) if len(u.loc) > 1 else likelihoods.Gaussian(), outputs=1
    ),
    "student_t": Family(lambda _: likelihoods.StudentTNoise(), outputs=1),
    "mixture": Family(
        lambda _: likelihoods.GaussianMixture(COMPONENTS, _SMALLEST, _SHIFT),
        outputs=3 * COMPONENTS,
        locations=COMPONENTS,
    ),
    "log_normal": Family(_of_logarithms(likelihoods.LogNormal), _logarithmic),
    "gamma": Family(_of_logarithms(likelihoods.Gamma), _logarithmic),
    "poisson": Family(lambda u: likelihoods.Poisson(_numbers(u.centre)), _counted, outputs=1),
    "negative_binomial": Family(
        _of_logarithms(likelihoods.NegativeBinomial, OVERDISPERSED), _counted
    ),
}


def family_of(word: object) -> Family:
    """The family that goes by a word."""
    known = ", ".join((*FAMILIES, "auto"))
    ensure(word in FAMILIES, f"likelihood must be one of {known}, got {word!r}")
    return FAMILIES[str(word)]


def check_targets(word: str, y: Floats) -> None:
    """Complain of targets that a family cannot have."""
    family = family_of(word)
    wrong = y[~family.fits(y)]
    if wrong.size:
        said = f"targets of likelihood={word!r} must be {family.holds}, got {wrong[0]}"
        raise DataError(f"{said}: use 'heteroscedastic'")


def candidates(y: Floats) -> list[str]:
    """The words of families that these targets, (rows, targets), may be of."""
    words = [word for word, family in FAMILIES.items() if family.fits(y).all()]
    return [word for word in words if word != "student_t" or y.shape[1] == 1]


def in_units(found: Distribution, loc: Tensor, scale: Tensor) -> Distribution:
    """The distribution of loc + scale · y for that of y; of positive y and counts, loc is 0."""
    arguments: tuple[Any, ...] = ()
    match found:
        case distributions.Independent():
            arguments = in_units(found.base_dist, loc, scale), 1
        case distributions.Normal():
            arguments = loc + scale * found.loc, scale * found.scale
        case distributions.StudentT():
            arguments = found.df.to(loc.dtype), loc + scale * found.loc, scale * found.scale
        case distributions.MixtureSameFamily():
            each = in_units(found.component_distribution, loc.unsqueeze(-1), scale.unsqueeze(-1))
            arguments = found.mixture_distribution, each
        case distributions.LogNormal():
            arguments = found.loc + scale.log(), found.scale
        case distributions.Gamma():
            arguments = found.concentration, found.rate / scale
    kind: Any = type(found)
    return kind(*arguments, validate_args=False) if arguments else found
