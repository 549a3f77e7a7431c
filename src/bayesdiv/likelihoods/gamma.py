"""Positive targets with noise in proportion to their size."""

from torch import Tensor
from torch.distributions import Distribution
from torch.distributions import Gamma as Positive

from bayesdiv.likelihoods.base import Logarithmic, joined


class Gamma(Logarithmic):
    """Positive targets, gamma distributed: a mean, and a standard deviation relative to it.

        y | x, w ~ Gamma(k, k / mean),   mean = exp(centre + width · f_1)
        1 / √k = width · (smallest + softplus(f_2 + shift))

    Intervals lie above 0. The standard deviation is mean / √k.

    Examples:
        >>> import torch
        >>> Gamma()(torch.zeros(4, 2)).mean
        tensor([1., 1., 1., 1.])
    """

    def forward(self, outputs: Tensor) -> Distribution:
        log_mean, relative = self.parts(outputs)
        concentration = relative.pow(-2)
        return joined(Positive, concentration, concentration * (-log_mean).exp())
