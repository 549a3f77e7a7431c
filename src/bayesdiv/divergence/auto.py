"""The estimator that fits: exact where there is an exact form, else samples or integration."""

import math
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.densities import log_density, parameter, part, whole_line
from bayesdiv.divergence.estimators import Computation, Estimator, Exact, MonteCarlo
from bayesdiv.divergence.quadrature import Quadrature

_NEAR, _FAR = 1e30, 1e60  # so far out that location and scale no longer count


@dataclass(frozen=True)
class Auto(Estimator):
    """The exact form if there is one, else the fallback; the default everywhere.

    It chooses for each term of a sum, such as `WeightedKL`. `Quadrature` replaces a fallback that
    samples where samples would mislead: for a divergence that is not a mean over points (JS-G
    without a closed form), for a prior with an edge, and where the mean or the variance of a sample
    does not exist, as with the tails of a Cauchy prior.

    Examples:
        >>> from torch.distributions import Cauchy, Laplace, Normal
        >>> from bayesdiv import JSG, WeightedKL
        >>> Auto()(JSG(0.5), Normal(0.0, 1.0), Laplace(0.0, 1.0))
        tensor(0.0489)
        >>> Auto()(WeightedKL(0.3), Normal(0.0, 1.0), Cauchy(0.0, 1.0))
        tensor(inf)
    """

    fallback: Estimator = field(default_factory=MonteCarlo)

    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        return self.choose(divergence, q, p).prepared(divergence, q, p)

    def rule(self, divergence: Divergence, q: Distribution, p: Distribution) -> Rule | None:
        return self.choose(divergence, q, p).rule(divergence, q, p)

    def choose(self, divergence: Divergence, q: Distribution, p: Distribution) -> Estimator:
        """The estimator that fits this divergence and pair."""
        if closed_form.find(divergence, q, p) is not None:
            return Exact()
        if divergence.parts:
            return InParts(self)
        # Whether samples give a right value and gradient, and a spread.
        led = divergence.linear and whole_line(p)
        led = led and all(fair(source, q, p) for source in divergence.averaged(q, p))
        return self.fallback if led or not isinstance(self.fallback, MonteCarlo) else Quadrature()


@dataclass(frozen=True)
class InParts(Estimator):
    """Every part of a divergence by the estimator that fits it."""

    auto: Auto

    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """The sum of the parts, from the same draws of q."""
        ways = [(factor, self.auto.prepared(each, q, p)) for factor, each in divergence.parts]

        def compute(q: Distribution, p: Distribution, weights: Tensor | None) -> Tensor:
            return reduce(add, (factor * way(q, p, weights) for factor, way in ways))

        return compute


def tail_index(distribution: Distribution) -> float:
    """The tail index ν of |x|^-(1+ν), the least over all weights and both sides; inf if lighter."""
    # Moments below ν exist. It is read off the density itself, far out.
    near, far = _logs(distribution)
    slope = (near - far) / math.log(_FAR / _NEAR) - 1
    # Where both are 0 there is no tail at all; a difference of two infinities says the same.
    return float(torch.where(far < -1e4, math.inf, slope).nan_to_num(math.inf, math.inf).min())


def tail_growth(distribution: Distribution) -> float:
    """The power of |x| with which the log density falls, the largest of all weights."""
    # 2 for a Gaussian, 1 for Laplace, about 0 for a power of |x|, inf beyond any power.
    near, far = (logs.abs().clamp(min=1.0) for logs in _logs(distribution))
    power = (far / near).log() / math.log(_FAR / _NEAR)
    return float(torch.where(near == math.inf, math.inf, power).max())


def fair(source: Distribution, q: Distribution, p: Distribution) -> bool:
    """Whether log q - log p has four moments under draws of `source`."""
    # Two make the variance of a mean finite, four that of its estimate.
    power = max(tail_growth(q), tail_growth(p))
    return power < math.inf and tail_index(source) > 4 * (power if power > 0.1 else 0.0)


def _logs(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Log densities at both far points of either side, (2, n) each."""
    with torch.no_grad():
        flat = part(distribution, slice(None))
        signs = parameter(flat).new_tensor([[-1.0], [1.0]])
        x = [signs.expand(-1, *flat.batch_shape) * place for place in (_NEAR, _FAR)]
        return log_density(flat, x[0]), log_density(flat, x[1])


Divergence.default = Auto()
