"""The estimator that fits: exact where there is an exact form, else samples or integration."""

from dataclasses import dataclass, field
from functools import reduce
from operator import add

from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.divergence import closed_form, tails
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.densities import whole_line
from bayesdiv.divergence.estimators import Computation, Estimator, Exact, MonteCarlo
from bayesdiv.divergence.quadrature import Quadrature


@dataclass(frozen=True)
class Auto(Estimator):
    """The exact form where there is one, else the fallback; the default everywhere.

    A sum of divergences, such as `WeightedKL`, takes the best way for each. `Quadrature` takes the
    place of a fallback that samples where samples mislead: for a divergence that is not a mean over
    points (JS-G without a closed form), for a prior with an edge, and where the mean or the
    variance of a sample does not exist, as under the tails of a Cauchy prior.

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
        if isinstance(self.fallback, MonteCarlo) and self._misled(divergence, q, p):
            return Quadrature()
        return self.fallback

    @staticmethod
    def _misled(divergence: Divergence, q: Distribution, p: Distribution) -> bool:
        """Whether samples give no right value, gradient or spread."""
        if not divergence.linear or not whole_line(p):
            return True
        return not all(tails.fair(source, q, p) for source in divergence.averaged(q, p))


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


Divergence.default = Auto()
