"""What a posterior is: a module over one flat vector of weights."""

from collections.abc import Callable
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from bayesdiv.compute.backend import draw
from bayesdiv.compute.noise import Dtype, Seed

# From the mean and the scale of each weight to a posterior.
PosteriorFor = Callable[[Tensor, Tensor], nn.Module]


class Posterior(Protocol):
    """A module over one flat vector of weights; leading axes are independent trials.

    `bayesianize` makes one from the mean and the scale of each weight, by any function
    `(loc, scale) -> nn.Module` such as `MeanField` or `LowRank(rank=3)`. To add a family, write
    these five in one file, or derive from this class and write `rsample`, `mean` and either
    `marginals` or `distribution`; then run `bayesdiv.testing.check_posterior` on it.
    """

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        """Weights drawn so that gradients reach the parameters, (samples, …, weights).

        The same seed makes the same noise again; None takes noise from torch's generator.
        """

    @property
    def mean(self) -> Tensor:
        """Where `at_mean` runs the network, (…, weights); usually the mean."""

    def marginals(self) -> Distribution | None:
        """One distribution per weight where the posterior is their product, else None."""
        return None

    def distribution(self) -> Distribution:
        """`marginals()` of a product; else the joint one, with event shape (weights,)."""
        return cast(Distribution, self.marginals())

    def log_prob(self, weights: Tensor) -> Tensor:
        """Joint log density of all weights together, (samples, …) for (samples, …, weights)."""
        q = self.marginals()
        each: Tensor = (q or self.distribution()).log_prob(weights)
        return each if q is None else each.sum(-1)


def checked(loc: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and scale of each weight, detached, in single precision at least."""
    # In bfloat16 a step of 1e-3 of a weight would be lost in rounding: draws may be that coarse,
    # parameters may not.
    if not bool((scale > 0).all()):
        raise ValueError(f"scale must be positive, got {scale.min().item()}")
    dtype = torch.promote_types(loc.dtype, torch.float32)
    return loc.detach().to(dtype), scale.detach().to(loc.device, dtype).expand_as(loc)


def inverse_softplus(scale: Tensor) -> Tensor:
    """The rho with softplus(rho) = scale, exact for tiny ones: log(e^s - 1) = s + log(1 - e^-s)."""
    return scale + (-(-scale).expm1()).log()


def standard_noise(samples: int, like: Tensor, seed: Tensor | None) -> Tensor:
    """Standard normal numbers, (samples, *like.shape), without a gradient."""
    zero = torch.zeros_like(like, requires_grad=False)
    return draw(Normal(zero, torch.ones_like(zero), validate_args=False), samples, None, seed)
