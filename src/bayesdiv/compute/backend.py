"""The one door to speed: totals of a divergence and draws, by the fastest way that serves."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.compute import fused
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.estimators import Estimator, Sum


@dataclass(frozen=True)
class Prepared:
    """A divergence between pairs like the one it was prepared for, added up over the weights.

    `prepare` makes it. A compiled or recorded step may call it: everything is looked up.

    Examples:
        >>> from torch.distributions import Normal
        >>> from bayesdiv import KL, Auto
        >>> q, p = Normal(torch.ones(4), torch.ones(4)), Normal(0.0, 1.0)
        >>> prepare(Auto(), KL(), q, p).total(q, p)
        tensor(2.)
    """

    way: Sum

    def total(self, q: Distribution, p: Distribution, weights: Tensor | None = None) -> Tensor:
        """The divergence summed over the last axis, (…), differentiable by q and p.

        Args:
            q: the posterior.
            p: the prior.
            weights: draws of q that an estimator which samples uses instead of its own.
        """
        return self.way(q, p, weights)

    def draw_and_total(
        self,
        q: Distribution,
        p: Distribution,
        samples: int,
        dtype: torch.dtype | None = None,
        seed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draws of q, (samples, …, weights), and the total, in one pass where a backend has one.

        Args:
            q: the posterior.
            p: the prior.
            samples: how many draws.
            dtype: of the draws; None is that of the parameters.
            seed: of the noise, as for `draw`.
        """
        return self.way.drawn(q, p, samples, dtype, seed)


def prepare(
    estimator: Estimator, divergence: Divergence, q: Distribution, p: Distribution
) -> Prepared:
    """Look up the rule and the fastest backend for pairs like this one, once.

    Args:
        estimator: how the divergence is computed.
        divergence: what is measured.
        q: a posterior like those to come.
        p: a prior like those to come.
    """
    return Prepared(estimator.prepare_total(divergence, q, p))


def draw(
    q: Distribution, samples: int, dtype: torch.dtype | None = None, seed: Tensor | None = None
) -> Tensor:
    """Draws of q, (samples, …, weights), through which gradients reach its parameters.

        w = loc + scale · ε

    Args:
        q: the posterior.
        samples: how many draws.
        dtype: of the draws; None is that of the parameters.
        seed: of the noise, one whole number; the same seed makes the same noise again. None takes
            one from torch's generator, which `torch.manual_seed` repeats.

    Examples:
        >>> from torch.distributions import Normal
        >>> q, seed = Normal(torch.zeros(3), torch.ones(3)), torch.tensor(7)
        >>> torch.equal(draw(q, 2, seed=seed), draw(q, 2, seed=seed))
        True
    """
    return fused.draw(q, samples, dtype, seed)
