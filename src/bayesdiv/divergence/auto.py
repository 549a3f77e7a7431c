"""The estimator that fits: exact where there is an exact form, else samples or integration."""

from dataclasses import dataclass, field

from torch.distributions import Distribution

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.densities import whole_line
from bayesdiv.divergence.estimators import Computation, Estimator, Exact, MonteCarlo
from bayesdiv.divergence.quadrature import Quadrature


@dataclass(frozen=True)
class Auto(Estimator):
    """The exact form where there is one, else the fallback; the default everywhere.

    `Quadrature` takes the place of a fallback that samples where samples mislead: for a divergence
    that is not a mean over points (JS-G without a closed form), and for a learned q against a
    prior with an edge.

    Examples:
        >>> from torch.distributions import Laplace, Normal
        >>> from bayesdiv import JSG
        >>> Auto()(JSG(0.5), Normal(0.0, 1.0), Laplace(0.0, 1.0))
        tensor(0.0489)
    """

    fallback: Estimator = field(default_factory=MonteCarlo)

    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """The way of the estimator that fits."""
        return self.choose(divergence, q, p).prepared(divergence, q, p)

    def rule(self, divergence: Divergence, q: Distribution, p: Distribution) -> Rule | None:
        """That of the estimator that fits."""
        return self.choose(divergence, q, p).rule(divergence, q, p)

    def choose(self, divergence: Divergence, q: Distribution, p: Distribution) -> Estimator:
        """The estimator that fits this divergence and pair."""
        if closed_form.find(divergence, q, p) is not None:
            return Exact()
        misled = not divergence.linear or not whole_line(p)
        return Quadrature() if misled and isinstance(self.fallback, MonteCarlo) else self.fallback


Divergence.default = Auto()
