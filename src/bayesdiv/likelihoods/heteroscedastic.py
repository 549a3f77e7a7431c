"""Targets that are normal, each with its own noise level."""

from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.likelihoods.base import Spread, joined


class HeteroscedasticGaussian(Spread):
    """Targets are normal, each with its own noise level: two outputs, the mean and its rho.

        y | x, w ~ N(f_1, (smallest + softplus(f_2 + shift))²)

    Several targets have two outputs each: all means first, then all rhos.

    Args:
        smallest: the lowest scale, without which a single row could be fitted exactly. A hundredth
            of the targets' standard deviation suits targets with few different values.
        shift: added to rho; `shift_to` finds the shift for a given scale at output 0.

    Examples:
        >>> import torch
        >>> HeteroscedasticGaussian()(torch.zeros(4, 6)).event_shape
        torch.Size([3])
    """

    def forward(self, outputs: Tensor) -> Distribution:
        return joined(Normal, *self.parts(outputs))
