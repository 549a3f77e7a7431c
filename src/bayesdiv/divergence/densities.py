"""What an estimator must know of a distribution: its density, support, quantiles and parts."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch import distributions as families
from torch.distributions import Distribution, Independent, MixtureSameFamily, VonMises, constraints

# torch offers no public way to tell an inverse from what it inverts.
from torch.distributions.transforms import Transform, _InverseTransform

_DRAWS = 1023


def common_shape(*shapes: torch.Size) -> torch.Size:
    """The shape these broadcast to."""
    return torch.Size(torch.broadcast_shapes(*shapes))


def check_pair(q: Distribution, p: Distribution) -> None:
    """The checks that every estimator needs."""
    for name, distribution in (("q", q), ("p", p)):
        if not isinstance(distribution, Distribution):
            raise TypeError(f"{name} must be a torch distribution, got {distribution!r}")
        if type(distribution).log_prob is Distribution.log_prob:
            raise TypeError(f"{name} must have log_prob, which {type(distribution).__name__} lacks")
        if getattr(distribution.support, "is_discrete", False):
            raise ValueError(f"{name} must be continuous, got {type(distribution).__name__}")
        if distribution.event_shape:
            inner = " (its base_dist will do)" if isinstance(distribution, Independent) else ""
            kind, shape = type(distribution).__name__, tuple(distribution.event_shape)
            told = f"one-dimensional for each weight{inner}, got {kind} with event shape {shape}"
            raise ValueError(f"{name} must be {told}")
    try:
        common_shape(q.batch_shape, p.batch_shape)
    except RuntimeError:
        told = f"{tuple(q.batch_shape)} and {tuple(p.batch_shape)}"
        raise ValueError(f"the shapes of q and p must broadcast, got {told}") from None


def mixed(distribution: Distribution) -> Distribution:
    """The components of a mixture as one distribution, or the distribution itself."""
    if isinstance(distribution, MixtureSameFamily):
        return mixed(distribution.component_distribution)
    return distribution


def whole_line(distribution: Distribution) -> bool:
    """Whether the support is all real numbers."""
    one = mixed(distribution)
    return one.support is constraints.real and not isinstance(one, VonMises)


def edges(distribution: Distribution) -> tuple[Tensor | None, Tensor | None]:
    """The ends of the support, None where it has none; one pair per component of a mixture."""
    one = mixed(distribution)
    ends = [getattr(one.support, name, math.inf) for name in ("lower_bound", "upper_bound")]
    if isinstance(one, VonMises):  # torch calls its support the line, and draws from this
        ends = [-math.pi, math.pi]
    like = parameter(one)
    low, high = (torch.as_tensor(end, dtype=like.dtype, device=like.device) for end in ends)
    return low if low.isfinite().all() else None, high if high.isfinite().all() else None


def inside(distribution: Distribution, points: Tensor) -> Tensor:
    """Whether points lie in the support, in that of any component for a mixture."""
    if isinstance(distribution, MixtureSameFamily):
        return inside(distribution.component_distribution, points.unsqueeze(-1)).any(-1)
    low, high = edges(distribution)
    found = torch.ones_like(points, dtype=torch.bool)
    found = found if low is None else found & (points >= low)
    return found if high is None else found & (points <= high)


def log_density(distribution: Distribution, points: Tensor) -> Tensor:
    """log_prob, and -inf outside the support, where torch raises or extrapolates."""
    # A mixture is taken apart, since its components may have supports of their own.
    if isinstance(distribution, MixtureSameFamily):
        shares = distribution.mixture_distribution.logits.log_softmax(-1)
        parts = log_density(distribution.component_distribution, points.unsqueeze(-1)) + shares
        none = (parts == -math.inf).all(-1)
        total = torch.where(none.unsqueeze(-1), 0.0, parts).logsumexp(-1)
        return torch.where(none, -math.inf, total)
    if whole_line(distribution):
        return distribution.log_prob(points)
    within, (low, high) = inside(distribution, points), edges(distribution)
    inner = _spread(points.new_zeros(()), low, high)
    kept = torch.where(within, points, inner.to(points))
    return torch.where(within, _log_prob(distribution, kept), -math.inf)


def _log_prob(distribution: Distribution, points: Tensor) -> Tensor:
    """That of torch, corrected where torch 2.13 is wrong in double precision or next to an edge."""
    if isinstance(distribution, families.GeneralizedPareto):  # float32 alone
        # -(1 + 1/c) log(1 + c y) - log scale, y = (x - loc) / scale; -y - log scale at c = 0.
        y, c = (points - distribution.loc) / distribution.scale, distribution.concentration
        some = c.abs() > 1e-9
        shape = torch.where(some, c, 1.0)
        log = torch.where(some, -(1 + 1 / shape) * (shape * y).log1p(), -y)
        return log - distribution.scale.log()
    if isinstance(distribution, families.Kumaraswamy):  # 0 where 1 - x^a rounds to 1
        a, b = distribution.concentration1, distribution.concentration0
        rest = -(a * points.log()).expm1()
        return (a * b).log() + (a - 1) * points.log() + (b - 1) * rest.log()
    if isinstance(distribution, families.Weibull):  # NaN where (x / scale)^k overflows
        k, y = distribution.concentration, points / distribution.scale
        return (k / distribution.scale).log() + torch.xlogy(k - 1, y) - y**k
    return distribution.log_prob(points)


def parameter(distribution: Distribution) -> Tensor:
    """A parameter, for its dtype and device; a scale that is computed on demand is computed."""
    one = mixed(distribution)
    found = [getattr(one, name, None) for name in (*one.arg_constraints, "scale")]
    tensors = [x for x in found if isinstance(x, Tensor) and x.is_floating_point()]
    if not tensors and isinstance(one, families.TransformedDistribution):
        return parameter(one.base_dist)
    return tensors[-1] if tensors else one.mean


def part(distribution: Distribution, cut: slice) -> Distribution:
    """Some weights of a distribution, over one batch axis and in double precision."""
    axes = len(distribution.batch_shape)

    def change(tensor: Tensor) -> Tensor:
        flat = tensor.reshape(-1, *tensor.shape[axes:])[cut]
        return flat.double() if flat.is_floating_point() else flat

    return rebatched(distribution, distribution.batch_shape, change)


def at_least_single(distribution: Distribution) -> Distribution:
    """The distribution in single precision where it is in less: a rule would round every step."""
    if parameter(distribution).dtype not in (torch.bfloat16, torch.float16):
        return distribution
    batch = distribution.batch_shape
    return rebatched(distribution, batch, lambda x: x.float() if x.is_floating_point() else x)


def rebatched(
    distribution: Distribution, batch: torch.Size, change: Callable[[Tensor], Tensor]
) -> Distribution:
    """The distribution with a change to every tensor in it that begins with the axes `batch`."""

    def changed(entry: Any, own: torch.Size) -> Any:
        # `own` is the shape of the distribution which the entry belongs to: a transformation may
        # hold tensors of fewer axes.
        if isinstance(entry, list):
            return [changed(each, own) for each in entry]
        if isinstance(entry, Tensor):
            if entry.shape[: len(batch)] == batch:
                return change(entry)
            return change(entry.expand(own)) if entry.dim() <= len(own) else entry
        if isinstance(entry, _InverseTransform):  # which holds nothing but the other
            return changed(entry.inv, own).inv
        inner = isinstance(entry, Distribution) and entry.batch_shape[: len(batch)] == batch
        if not inner and not isinstance(entry, Transform):
            return entry
        made, own = copy.copy(entry), entry.batch_shape if inner else own
        for name, each in vars(entry).items():
            if inner or name != "_inv":  # a transformation is copied without its inverse
                setattr(made, name, changed(each, own))
        if inner:
            made._batch_shape = change(torch.empty(own, device="meta")).shape
            made._validate_args = False
        return made

    return changed(distribution, batch)  # type: ignore[no-any-return]


def quantiles(distribution: Distribution, levels: Sequence[float]) -> Tensor:
    """The points below which these shares of the mass lie, (levels, *batch), to find features."""
    # By `icdf`, else by bisection of `cdf`, else from draws with a fixed seed, which are close
    # enough to place panels. A quantile that overflows is given as the median.
    like, batch = parameter(distribution), distribution.batch_shape
    shares = like.new_tensor(levels, dtype=torch.float64)
    wanted = shares.reshape(-1, *[1] * len(batch)).expand(-1, *batch)
    if offers(distribution, "icdf"):
        found = distribution.icdf(wanted)
    elif offers(distribution, "cdf"):
        bottom, top = edges(distribution)
        low, high = torch.full_like(wanted, -690.0), torch.full_like(wanted, 690.0)
        for _ in range(64):
            middle = (low + high) / 2
            below = distribution.cdf(_spread(middle, bottom, top)) < wanted
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        found = _spread((low + high) / 2, bottom, top)
    else:
        with torch.random.fork_rng(devices=[like.device] if like.is_cuda else []):
            torch.manual_seed(0)
            draws = distribution.sample(torch.Size([_DRAWS])).sort(0).values
        found = draws[[math.floor(level * (_DRAWS - 1)) for level in levels]]
    middle = found[len(found) // 2]
    return torch.where(found.isfinite(), found, torch.where(middle.isfinite(), middle, 0.0))


def offers(distribution: Distribution, name: str) -> bool:
    """Whether a distribution has a `cdf` or `icdf` of its own, or one of what it transforms."""
    own, transformed = getattr(type(distribution), name), families.TransformedDistribution
    if isinstance(distribution, transformed) and own is getattr(transformed, name):
        return offers(distribution.base_dist, name)
    return own is not getattr(Distribution, name)


def _spread(u: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """The support as a function of the line, so that all orders of magnitude are searched."""
    if low is None and high is None:
        return u.sinh()
    if high is None:
        return low + u.exp()  # type: ignore[operator]
    return high - (-u).exp() if low is None else low + (high - low) * u.sigmoid()
