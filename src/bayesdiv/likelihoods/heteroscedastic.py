"""Targets that are normal, each with a noise level of its own."""

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal
from torch.nn.functional import softplus

from bayesdiv.likelihoods.base import Likelihood
from bayesdiv.model.posteriors.base import inverse_softplus


class HeteroscedasticGaussian(Likelihood):
    """Targets are normal with a noise level of their own: two outputs, the mean and its rho.

        y | x, w ~ N(f_1, (smallest + softplus(f_2 + shift))²)

    Several targets have two outputs each: all means first, then all rhos.

    Args:
        smallest: a floor for the scale, without which a single row can be fitted exactly. A
            hundredth of the targets' standard deviation suits targets with few different values.
        shift: what is added to rho; `shift_to` finds the one for a given scale at the output 0.

    Examples:
        >>> HeteroscedasticGaussian()(torch.zeros(4, 6)).event_shape
        torch.Size([3])
    """

    def __init__(self, smallest: float = 1e-4, shift: float = 0.0) -> None:
        super().__init__()
        if not smallest > 0:
            raise ValueError(f"smallest must be positive, got {smallest}")
        self.smallest, self.shift = smallest, shift

    def forward(self, outputs: Tensor) -> Distribution:
        """The distribution of the targets."""
        if outputs.shape[-1] % 2:
            raise ValueError(
                f"outputs must be two per target, mean and rho, got {outputs.shape[-1]}"
            )
        loc, rho = outputs.chunk(2, -1)
        scale = softplus(rho + self.shift) + self.smallest
        if loc.shape[-1] == 1:
            return Normal(loc.squeeze(-1), scale.squeeze(-1), validate_args=False)
        return Independent(Normal(loc, scale, validate_args=False), 1, validate_args=False)


def shift_to(scale: float, smallest: float) -> float:
    """The shift with which a `HeteroscedasticGaussian` has this scale where its output is 0.

    Examples:
        >>> likelihood = HeteroscedasticGaussian(0.01, shift_to(1.0, 0.01))
        >>> likelihood(torch.zeros(1, 2)).scale
        tensor([1.])
    """
    return float(inverse_softplus(torch.tensor(scale - smallest, dtype=torch.float64)))
