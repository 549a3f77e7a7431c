"""Targets that are counts."""

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions import Poisson as Counts

from bayesdiv.likelihoods.base import Likelihood, joined


class Poisson(Likelihood):
    """Targets are counts 0, 1, 2, …; the output is the logarithm of their expected number.

        y | x, w ~ Poisson(exp(centre + f_w(x)))

    One output gives a count per row, several give independent counts.

    Args:
        centre: the logarithm of the expected number at the output 0, one for all or one each.

    Examples:
        >>> Poisson()(torch.zeros(4, 1)).mean
        tensor([1., 1., 1., 1.])
    """

    centre: Tensor

    def __init__(self, centre: float | Tensor = 0.0) -> None:
        super().__init__()
        self.register_buffer("centre", torch.as_tensor(centre, dtype=torch.get_default_dtype()))

    def forward(self, outputs: Tensor) -> Distribution:
        return joined(Counts, (outputs + self.centre).exp())
