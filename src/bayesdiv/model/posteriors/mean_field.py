"""Independent Gaussians, one per weight."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import softplus

from bayesdiv.compute.backend import draw
from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.divergence.gaussian import SoftplusNormal
from bayesdiv.model.posteriors.base import checked, inverse_softplus, product_density


class MeanField(nn.Module):
    """Independent Gaussians: the posterior of the paper (algorithm 1).

        w = loc + scale · ε,   scale = softplus(rho) = log(1 + e^rho)

    Args:
        loc: mean of each weight, (…, weights).
        scale: standard deviation of each weight.

    Examples:
        >>> import torch
        >>> posterior = MeanField(torch.zeros(3), torch.full((3,), 0.1))
        >>> posterior.scale
        tensor([0.1000, 0.1000, 0.1000], grad_fn=<SoftplusBackward0>)
    """

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__()
        loc, scale = checked(loc, scale)
        self.loc = nn.Parameter(loc.clone())
        self.rho = nn.Parameter(inverse_softplus(scale))
        self.axes = 1  # of the parameters, after those of trials

    def take_shape(self, shape: Sequence[int]) -> None:
        """Keep the parameters in this shape, for optimizers that look at it; weights stay flat."""
        for name in ("loc", "rho"):
            own = getattr(self, name).detach().unflatten(-1, list(shape))
            setattr(self, name, nn.Parameter(own))
        self.axes = max(1, len(shape))

    @property
    def scale(self) -> Tensor:
        """Standard deviation of each weight."""
        return softplus(self._flat(self.rho))

    @property
    def mean(self) -> Tensor:
        return self._flat(self.loc)

    def _flat(self, parameter: Tensor) -> Tensor:
        return parameter if self.axes == 1 else parameter.flatten(-self.axes)

    def marginals(self) -> SoftplusNormal:
        return SoftplusNormal(self._flat(self.loc), self._flat(self.rho))

    def distribution(self) -> SoftplusNormal:
        return self.marginals()

    def log_prob(self, weights: Tensor) -> Tensor:
        return product_density(self.marginals(), weights)

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        return draw(self.marginals(), samples, dtype, seed)
