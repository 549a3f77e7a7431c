"""Targets that are normal, each with a noise level of its own."""

from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import softplus

from bayesdiv.likelihoods.base import Likelihood


class HeteroscedasticGaussian(Likelihood):
    """Targets are normal with a noise level of their own: two outputs, the mean and its rho.

    y | x, w ~ N(f_1, softplus(f_2)²)
    """

    smallest = 1e-4
    """A floor for the scale, without which a single row can be fitted exactly."""

    def forward(self, outputs: Tensor) -> Normal:
        """The distribution of the targets."""
        if outputs.shape[-1] != 2:
            raise ValueError(f"outputs must be two, mean and rho, got {outputs.shape[-1]}")
        loc, rho = outputs.unbind(-1)
        return Normal(loc, softplus(rho) + self.smallest, validate_args=False)
