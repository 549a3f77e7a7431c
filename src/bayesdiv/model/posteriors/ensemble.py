"""Several posteriors that learn side by side; their mixture predicts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.distributions import Independent

from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.compute.streams import own
from bayesdiv.divergence.joint import Members
from bayesdiv.model.layout import Layout
from bayesdiv.model.posteriors.base import Posterior, PosteriorFor
from bayesdiv.model.posteriors.mean_field import MeanField, Point


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

    The first member starts at the module's weights, the others at redrawn ones. `at_mean` runs the
    first member: the mean over members lies between networks and is not a network itself.

    Args:
        members: K, how many.
        of: the posterior of each member, such as `MeanField`, `Point` or `LowRank(rank=3)`.
        redraw: from the initial values of one weight tensor, flat, to those of another member. Give
            a function that returns its argument to start all members at pretrained weights.

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

        def redrawn(loc: Tensor) -> Tensor:
            return torch.cat([self.redraw(piece) for piece in loc.split(layout.sizes)])

        return replace(self, redraw=redrawn)

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
