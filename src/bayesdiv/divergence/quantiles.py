"""Where the mass of a distribution lies: its quantiles, by whatever it offers to find them."""

import math

import torch
from torch import Tensor
from torch.distributions import Distribution, TransformedDistribution

from bayesdiv.divergence.densities import edges

_DRAWS = 1023


def quantiles(distribution: Distribution, levels: Tensor) -> Tensor:
    """The points below which these shares of the mass lie, (levels, *batch), to find features."""
    # By `icdf`, else by bisection of `cdf`, else from draws with a fixed seed, which are close
    # enough to place panels. A quantile that overflows is given as the median.
    levels = levels.reshape(-1, *[1] * len(distribution.batch_shape))
    levels = levels.expand(-1, *distribution.batch_shape)
    if offers(distribution, "icdf"):
        found = distribution.icdf(levels)
    elif offers(distribution, "cdf"):
        bottom, top = edges(distribution)
        low, high = torch.full_like(levels, -690.0), torch.full_like(levels, 690.0)
        for _ in range(64):
            middle = (low + high) / 2
            below = distribution.cdf(_spread(middle, bottom, top)) < levels
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        found = _spread((low + high) / 2, bottom, top)
    else:
        with torch.random.fork_rng(devices=[levels.device] if levels.is_cuda else []):
            torch.manual_seed(0)
            draws = distribution.sample(torch.Size([_DRAWS])).sort(0).values
        places = levels.reshape(len(levels), -1)[:, 0] * (_DRAWS - 1)  # the same for every weight
        found = draws[[math.floor(place) for place in places.tolist()]]
    middle = found[len(found) // 2]
    return torch.where(found.isfinite(), found, torch.where(middle.isfinite(), middle, 0.0))


def offers(distribution: Distribution, name: str) -> bool:
    """Whether a distribution has a `cdf` or `icdf` of its own, or one of what it transforms."""
    own = getattr(type(distribution), name)
    if isinstance(distribution, TransformedDistribution):
        inner = own is getattr(TransformedDistribution, name)
        return offers(distribution.base_dist, name) if inner else True
    return own is not getattr(Distribution, name)


def _spread(u: Tensor, low: Tensor | float | None, high: Tensor | float | None) -> Tensor:
    """The support as a function of the line, so that all orders of magnitude are searched."""
    if low is None and high is None:
        return u.sinh()
    if high is None:
        return low + u.exp()  # type: ignore[operator]
    return high - (-u).exp() if low is None else low + (high - low) * u.sigmoid()
