"""What an estimator must know of a distribution: its density anywhere, its places and edges."""

import copy
import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MixtureSameFamily, Uniform, constraints


def common_shape(*shapes: torch.Size) -> torch.Size:
    """The shape these broadcast to."""
    return torch.Size(torch.broadcast_shapes(*shapes))


def check_pair(q: Distribution, p: Distribution) -> torch.Size:
    """The shape of the weights, after the checks that every estimator needs."""
    for name, distribution in (("q", q), ("p", p)):
        if not isinstance(distribution, Distribution):
            raise TypeError(f"{name} must be a torch distribution, got {distribution!r}")
        if type(distribution).log_prob is Distribution.log_prob:
            raise TypeError(f"{name} must have log_prob, which {type(distribution).__name__} lacks")
        if getattr(distribution.support, "is_discrete", False):
            raise ValueError(f"{name} must be continuous, got {type(distribution).__name__}")
        if distribution.event_shape:
            inner = " (its base_dist will do)" if isinstance(distribution, Independent) else ""
            raise ValueError(
                f"{name} must be one-dimensional for each weight{inner}, got "
                f"{type(distribution).__name__} with event shape {tuple(distribution.event_shape)}"
            )
    try:
        return common_shape(q.batch_shape, p.batch_shape)
    except RuntimeError:
        raise ValueError(
            f"the shapes of q and p must broadcast, got {tuple(q.batch_shape)} and "
            f"{tuple(p.batch_shape)}"
        ) from None


def whole_line(distribution: Distribution) -> bool:
    """Whether the support is all real numbers."""
    if isinstance(distribution, MixtureSameFamily):
        return whole_line(distribution.component_distribution)
    return distribution.support is constraints.real


def log_density(distribution: Distribution, points: Tensor) -> Tensor:
    """log_prob, and -inf outside the support, where torch raises or extrapolates."""
    if whole_line(distribution):
        return distribution.log_prob(points)
    inside = cast(constraints.Constraint, distribution.support).check(points)
    stand_in = distribution.mean.detach().expand(points.shape).to(points)
    return torch.where(
        inside, distribution.log_prob(torch.where(inside, points, stand_in)), -math.inf
    )


def places(distribution: Distribution) -> list[tuple[Tensor, Tensor]]:
    """Centres and scales at which the density has its features, one pair a component."""
    if isinstance(distribution, MixtureSameFamily):
        components = places(distribution.component_distribution)
        return [
            (loc[..., k], scale[..., k])
            for loc, scale in components
            for k in range(distribution.mixture_distribution.param_shape[-1])
        ]
    if isinstance(distribution, Uniform):
        low, high = distribution.low, distribution.high
        return [((low + high) / 2, (high - low) / 2)]
    if hasattr(distribution, "loc") and hasattr(distribution, "scale"):
        return [(distribution.loc, distribution.scale)]
    loc, scale = distribution.mean, distribution.stddev
    if not bool((loc.isfinite() & scale.isfinite()).all()):
        raise ValueError(
            f"{type(distribution).__name__} has neither loc and scale nor a finite mean and "
            "standard deviation, so Quadrature cannot place its nodes"
        )
    return [(loc, scale)]


def edges(distribution: Distribution) -> list[Tensor]:
    """The finite ends of the support."""
    support = distribution.support
    ends = [getattr(support, name, None) for name in ("lower_bound", "upper_bound")]
    return [torch.as_tensor(end, dtype=torch.float64) for end in ends if end is not None]


def part(distribution: Distribution, cut: slice) -> Distribution:
    """Some weights of a distribution, over one batch axis: every tensor in it is cut alike."""
    axes, batch = len(distribution.batch_shape), distribution.batch_shape
    return rebatched(distribution, batch, lambda x: x.reshape(-1, *x.shape[axes:])[cut])


def rebatched(
    distribution: Distribution, batch: torch.Size, change: Callable[[Tensor], Tensor]
) -> Distribution:
    """The distribution with a change to every tensor in it that begins with the axes `batch`."""
    changed = copy.copy(distribution)
    for name, entry in vars(distribution).items():
        if isinstance(entry, Tensor) and entry.shape[: len(batch)] == batch:
            setattr(changed, name, change(entry))
        elif isinstance(entry, Distribution) and entry.batch_shape[: len(batch)] == batch:
            setattr(changed, name, rebatched(entry, batch, change))
    changed._batch_shape = change(torch.empty(distribution.batch_shape, device="meta")).shape
    return changed
