"""A point estimate of the weights, which stacks and is penalised like a posterior."""

from torch import Tensor, nn
from torch.distributions import Normal

from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.model.posteriors.base import checked, product_density


class Point(nn.Module):
    """A point estimate: every draw is the mean, so the network is deterministic.

    The divergence is taken from a Gaussian of fixed scale around it: with KL, and `start=1` so that
    the scale is the prior's, that is weight decay, loc²/(2 scale²), the maximum a posteriori.
    With strength 0 it is maximum likelihood, a plain network that stacks like a Bayesian one.

    Args:
        loc: the weights, (…, weights).
        scale: standard deviation of the Gaussian around them, not learned.

    Examples:
        >>> import torch
        >>> Point(torch.ones(2), torch.ones(2)).rsample(3).shape
        torch.Size([3, 2])
    """

    scale: Tensor

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__()
        loc, scale = checked(loc, scale)
        self.loc = nn.Parameter(loc.clone())
        self.register_buffer("scale", scale.clone())

    @property
    def mean(self) -> Tensor:
        return self.loc

    def marginals(self) -> Normal:
        """The Gaussian around the estimate, from which the divergence is taken."""
        return Normal(self.loc, self.scale, validate_args=False)

    def distribution(self) -> Normal:
        return self.marginals()

    def log_prob(self, weights: Tensor) -> Tensor:
        return product_density(self.marginals(), weights)

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        """The estimate, as often as asked; there is no noise that a seed could repeat."""
        return self.loc.to(dtype or self.loc.dtype).unsqueeze(0).expand(samples, *self.loc.shape)
