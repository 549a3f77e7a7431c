"""Targets that are counts."""

from torch import Tensor
from torch.distributions import Distribution, Independent
from torch.distributions import Poisson as Counts

from bayesdiv.likelihoods.base import Likelihood


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
        rate = outputs.exp()
        if outputs.shape[-1] == 1:
            return Counts(rate.squeeze(-1), validate_args=False)
        return Independent(Counts(rate, validate_args=False), 1, validate_args=False)
