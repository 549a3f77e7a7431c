"""What is learned of the weights: a distribution over one flat vector of them."""

from typing import Protocol

from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn.functional import softplus

from bayesdiv.compute.fused import draw
from bayesdiv.divergence.gaussian import SoftplusNormal


class Posterior(Protocol):
    """A module over one flat vector of weights; leading axes are independent trials."""

    def distribution(self) -> Distribution:
        """The distribution of each weight."""

    def rsample(self, samples: int, distribution: Distribution | None = None) -> Tensor:
        """Weights drawn so that gradients reach the parameters, (samples, …, weights).

        From its distribution as it was computed already, if given.
        """


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
        if not bool((scale > 0).all()):
            raise ValueError(f"scale must be positive, got {scale.min().item()}")
        self.loc = nn.Parameter(loc.detach().clone())
        # The inverse of softplus, exact for tiny scales too: log(e^s - 1) = s + log(1 - e^-s).
        rho = scale + (-(-scale).expm1()).log()
        self.rho = nn.Parameter(rho.detach().expand_as(loc).clone())

    @property
    def scale(self) -> Tensor:
        """Standard deviation of each weight."""
        return softplus(self.rho)

    def distribution(self) -> SoftplusNormal:
        """The Gaussian of each weight."""
        return SoftplusNormal(self.loc, self.rho)

    def rsample(self, samples: int, distribution: Distribution | None = None) -> Tensor:
        """Draws of all weights, (samples, …, weights)."""
        return draw(self.distribution() if distribution is None else distribution, samples)


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
        if not bool((scale > 0).all()):
            raise ValueError(f"scale must be positive, got {scale.min().item()}")
        self.loc = nn.Parameter(loc.detach().clone())
        self.register_buffer("scale", scale.detach().expand_as(loc).clone())

    def distribution(self) -> Normal:
        """The Gaussian around the estimate."""
        return Normal(self.loc, self.scale, validate_args=False)

    def rsample(self, samples: int, distribution: Distribution | None = None) -> Tensor:
        """The estimate, as often as asked."""
        return self.loc.unsqueeze(0).expand(samples, *self.loc.shape)
