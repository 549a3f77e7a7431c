"""What is learned about the weights: posteriors over one flat vector, and their contract."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal
from torch.nn.functional import softplus

from bayesdiv.compute.backend import draw
from bayesdiv.compute.noise import Dtype, Seed, own
from bayesdiv.divergence.gaussian import SoftplusNormal
from bayesdiv.divergence.joint import Members
from bayesdiv.model.layout import Layout

# From the mean and the scale of each weight to a posterior.
PosteriorFor = Callable[[Tensor, Tensor], nn.Module]


class Posterior(Protocol):
    """A module over one flat vector of weights; leading axes are independent trials.

    `bayesianize` makes one by any function `(loc, scale) -> nn.Module`, such as `MeanField`. To add
    a family, write these five, or derive from this class and write `rsample`, `mean` and either
    `marginals` or `distribution`; then run `bayesdiv.testing.check_posterior` on it.
    """

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        """Differentiable draws, (samples, …, weights), the same for the same seed."""

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


def inverse_softplus(scale: Tensor) -> Tensor:
    """The rho with softplus(rho) = scale, exact for tiny ones: log(e^s - 1) = s + log(1 - e^-s)."""
    return scale + (-(-scale).expm1()).log()


class Around(nn.Module, Posterior):
    """A posterior with the parameter `loc`, its mean, and `rho` for the scale softplus(rho)."""

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__()
        if not bool((scale > 0).all()):
            raise ValueError(f"scale must be positive, got {scale.min().item()}")
        # In bfloat16 a step of 1e-3 of a weight would be lost in rounding: draws may be that
        # coarse, parameters may not.
        dtype = torch.promote_types(loc.dtype, torch.float32)
        self.loc = nn.Parameter(loc.detach().to(dtype, copy=True))
        self._keep(scale.detach().to(loc.device, dtype).expand_as(loc))

    def _keep(self, scale: Tensor) -> None:
        """What a posterior holds of the scale; one that does not learn it holds the number."""
        self.rho = nn.Parameter(inverse_softplus(scale))

    @property
    def mean(self) -> Tensor:
        return self.loc


class MeanField(Around):
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

    axes = 1  # of the parameters, after those of trials

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


class Point(Around):
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

    def _keep(self, scale: Tensor) -> None:
        self.register_buffer("scale", scale.clone())

    def marginals(self) -> Normal:
        return Normal(self.loc, self.scale, validate_args=False)

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        return self.loc.to(dtype or self.loc.dtype).unsqueeze(0).expand(samples, *self.loc.shape)


def shuffled(weights: Tensor) -> Tensor:
    """The numbers of one weight tensor in a random order."""
    # Their sizes stay what the layer's initialisation chose, and a constant such as a bias of zeros
    # stays that constant.
    order = torch.randperm(weights.numel(), device=weights.device)
    return weights.flatten()[order].view_as(weights)


@dataclass(frozen=True)
class Ensemble:
    """A choice of posterior: a mixture of members in equal shares, each its own posterior.

        q(w) = 1/K Σ_k q_k(w)

    Draws are divided evenly among the members, so predictions are those of the mixture. The loss is
    the mean of the losses that the members would have alone, each with samples/K draws: give
    `Objective` as many samples as there are members, or a multiple. So is the divergence, which for
    KL is an upper bound on the mixture's own

        KL(q ‖ p) ≤ 1/K Σ_k KL(q_k ‖ p) ≤ KL(q ‖ p) + log K

    The first member starts at the module's weights, the others at redrawn ones; `at_mean` runs the
    first, since the mean over members is not a network that was trained.

    Args:
        members: K, how many.
        of: the posterior of each member, such as `MeanField`, `Point` or `LowRank(rank=3)`.
        redraw: from the initial values of one weight tensor to those of another member. Give a
            function that returns its argument to start all members at pretrained weights.

    Examples:
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(8, 1), bd.FanIn(), posterior=Ensemble(members=5))
        >>> bd.predict(net, bd.Gaussian(), torch.zeros(3, 8), samples=20).samples
        20
    """

    members: int = 5
    of: PosteriorFor = MeanField
    redraw: Callable[[Tensor], Tensor] = shuffled

    def __post_init__(self) -> None:
        if self.members < 1:
            raise ValueError(f"members must be at least 1, got {self.members}")

    def laid_out(self, layout: Layout) -> PosteriorFor:
        """The same choice for weights of this layout, whose tensors are redrawn one by one."""
        sizes = layout.sizes
        return replace(self, redraw=lambda loc: torch.cat([*map(self.redraw, loc.split(sizes))]))

    def __call__(self, loc: Tensor, scale: Tensor) -> "Mixture":
        others = [self.redraw(loc) for _ in range(self.members - 1)]
        each = self.of(torch.stack([loc, *others], -2), scale.expand_as(loc).unsqueeze(-2))
        return Mixture(each, self.members)


class Mixture(nn.Module, Posterior):
    """The module that `Ensemble` makes."""

    def __init__(self, each: nn.Module, members: int) -> None:
        super().__init__()
        self.each: Posterior = each  # type: ignore[assignment]
        self.members = members

    @property
    def mean(self) -> Tensor:
        """The mean of the first member, a network that was trained as such."""
        return self.each.mean[..., 0, :]

    def distribution(self) -> Members:
        each = self.each.distribution()
        return Members(each if each.event_shape else Independent(each, 1))

    def log_prob(self, weights: Tensor) -> Tensor:
        """Joint log density of the mixture, (samples, …): log 1/K Σ_k q_k(w)."""
        if isinstance(self.each, Point):
            raise ValueError("an ensemble of points has no density: make it of MeanField members")
        return self.each.log_prob(weights.unsqueeze(-2)).logsumexp(-1) - math.log(self.members)

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        """Draws that cycle through the members, (samples, …, weights); a last round takes some."""
        # Which members an incomplete round takes is random.
        rounds = -(-samples // self.members)
        drawn = self.each.rsample(rounds, dtype, seed).movedim(-2, 1)  # (rounds, members, …)
        left = samples - (rounds - 1) * self.members
        if left == self.members:
            return drawn.flatten(0, 1)
        generator = own() if seed is None else torch.Generator().manual_seed(int(seed))
        last = drawn[-1][torch.randperm(self.members, generator=generator)[:left].to(drawn.device)]
        return torch.cat([drawn[:-1].flatten(0, 1), last])
