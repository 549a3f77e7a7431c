"""Positive targets whose logarithm is normal."""

from torch import Tensor
from torch.distributions import Distribution
from torch.distributions import LogNormal as Positive

from bayesdiv.likelihoods.base import Logarithmic, joined


class LogNormal(Logarithmic):
    """Positive targets whose logarithm is normal, with a noise level of each row's own.

        log y | x, w ~ N(centre + width · f_1, (width · (smallest + softplus(f_2 + shift)))²)

    Intervals lie above 0. The tail on the right is heavier than that of `Gamma`.

    Examples:
        >>> import torch
        >>> LogNormal(centre=1.0)(torch.zeros(4, 2)).loc
        tensor([1., 1., 1., 1.])
    """

    def forward(self, outputs: Tensor) -> Distribution:
        return joined(Positive, *self.parts(outputs))
