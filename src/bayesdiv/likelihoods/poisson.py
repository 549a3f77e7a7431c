"""Targets that are counts."""

from torch import Tensor
from torch.distributions import Distribution
from torch.distributions import Poisson as Counts

from bayesdiv.likelihoods.base import Likelihood, joined


class Poisson(Likelihood):
    """Targets are counts 0, 1, 2, …; the output is the logarithm of their expected number.

        y | x, w ~ Poisson(exp f_w(x))

    One output gives a count per row, several give independent counts.

    Examples:
        >>> import torch
        >>> Poisson()(torch.zeros(4, 1)).mean
        tensor([1., 1., 1., 1.])
    """

    def forward(self, outputs: Tensor) -> Distribution:
        """The distribution of the targets."""
        return joined(Counts, outputs.exp())
