"""Targets that are normal with one noise level."""

from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from bayesdiv.likelihoods.base import Noisy


class Gaussian(Noisy):
    """Targets are normal around the output, with one learned noise level.

        y | x, w ~ N(f_w(x), scale²)

    One output gives one number per row; several give independent numbers with the same noise.

    Examples:
        >>> import torch
        >>> Gaussian(scale=0.5)(torch.zeros(4, 1)).scale
        tensor([0.5000, 0.5000, 0.5000, 0.5000], grad_fn=<ExpandBackward0>)
    """

    def forward(self, outputs: Tensor) -> Distribution:
        if outputs.shape[-1] == 1:
            return Normal(outputs.squeeze(-1), self.scale_for(1), validate_args=False)
        each = Normal(outputs, self.scale_for(2), validate_args=False)
        return Independent(each, 1, validate_args=False)
