"""Independent weights: Gaussians, or a point estimate that is penalised like them."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import softplus

from bayesdiv.compute.backend import draw
from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.divergence.gaussian import SoftplusNormal
from bayesdiv.model.posteriors.base import Posterior, checked, inverse_softplus


class MeanField(nn.Module, Posterior):
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
        return softplus(self._flat(self.rho))

    @property
    def mean(self) -> Tensor:
        return self._flat(self.loc)

    def _flat(self, parameter: Tensor) -> Tensor:
        return parameter if self.axes == 1 else parameter.flatten(-self.axes)

    def marginals(self) -> SoftplusNormal:
        return SoftplusNormal(self._flat(self.loc), self._flat(self.rho))

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        return draw(self.marginals(), samples, dtype, seed)


class Point(nn.Module, Posterior):
    """A point estimate: every draw is the mean, so the network is deterministic.

    The divergence is taken from a Gaussian of fixed scale around it: with KL, and `start=1` so that
    the scale is the prior's, that is weight decay, loc²/(2 scale²), the maximum a posteriori; with
    strength 0 maximum likelihood.

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
        return Normal(self.loc, self.scale, validate_args=False)

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        return self.loc.to(dtype or self.loc.dtype).unsqueeze(0).expand(samples, *self.loc.shape)
