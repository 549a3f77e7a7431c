"""Networks for tables, and what makes them less sure of themselves far from training rows."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn.functional import pad

from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.model.bayesianize import bayesianize
from bayesdiv.model.posteriors import MeanField
from bayesdiv.model.priors import Prior

MOST_PLACES = 500  # training rows that are kept
MOST_RATED = 2000  # rows that find the usual distance
USUAL = 0.99  # share of the rows whose distance to their nearest neighbour is usual
AT_A_TIME = 4096  # rows whose distances are found at once
SLOPE_ROWS, SLOPE_DRAWS = 200, 16  # from which the slopes are found


@dataclass(frozen=True)
class MLP:
    """Fully connected layers with ReLU between them (the paper's regression: 50 hidden units).

    Examples:
        >>> MLP(inputs=8, outputs=1).build()[0]
        Linear(in_features=8, out_features=50, bias=True)
    """

    inputs: int
    outputs: int
    hidden: tuple[int, ...] = (50,)  # units of each hidden layer

    def __post_init__(self) -> None:
        if min(self.inputs, self.outputs, *self.hidden) < 1:
            raise ValueError(f"every layer must have at least one unit, got {self}")

    def build(self) -> nn.Sequential:
        """The network, its weights drawn at random."""
        widths = [self.inputs, *self.hidden, self.outputs]
        layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers[:-1])


class Away(nn.Module):
    """A network plus a term that is 0 at the training rows and grows with the distance from them.

        f_w(x) + a · max(0, min_i ‖r ⊙ (x - x_i)‖ - reach),   a ~ N(0, 1)

    Mean-field networks are too sure between clusters of rows and far away from all. The data say
    nothing about a, since its factor is 0 at every training row x_i: its posterior is its prior. r
    holds the root mean squared slope of the network along each column. So at a distance d the
    answer may differ by as much as it usually changes over d; `reach`, which 99 % of the training
    rows have a neighbour within, keeps rows like these as they are. While it is trained the network
    runs as it is; `settle` then finds x_i, at most 500 of them, r and reach.

    The first `locations` outputs of each target, or class, say where it lies and are shifted;
    `free` targets may move, of classes one less than there are.
    """

    places: Tensor
    slopes: Tensor
    reach: Tensor

    def __init__(
        self,
        network: Bayesian,
        columns: int,
        places: int,
        *,
        targets: int = 1,
        locations: int = 1,
        free: int | None = None,
    ) -> None:
        super().__init__()
        self.network, self.locations, self.free = network, locations, free or targets
        # At its prior from the beginning, where no divergence pulls: there is nothing to learn.
        prior = Prior(Normal, loc=0.0, scale=1.0)
        size = nn.utils.skip_init(nn.Linear, 1, targets, bias=False)
        nn.init.zeros_(size.weight)
        self.size = bayesianize(size, prior, posterior=_Paired, start=1.0)
        self.size.requires_grad_(False)
        self.register_buffer("places", torch.zeros(min(places, MOST_PLACES), columns))
        self.register_buffer("slopes", torch.zeros(columns))
        self.register_buffer("reach", torch.tensor(0.0))

    def forward(self, x: Tensor, excess: Tensor | None = None) -> Tensor:
        """The outputs, shifted by the excess of the rows; `inputs` finds it once for all draws."""
        outputs: Tensor = self.network(x)
        if self.training:
            return outputs
        away = self.excess(x) if excess is None else excess
        shift = self.size(away).repeat_interleave(self.locations, -1)
        return outputs + pad(shift, (0, outputs.shape[-1] - shift.shape[-1]))

    def excess(self, x: Tensor) -> Tensor:
        """How far beyond the usual distance the next training row is, (…, rows, 1)."""
        nearest = _distances(x * self.slopes, self.places).amin(-1, keepdim=True)
        return (nearest - self.reach).clamp(min=0)

    @torch.no_grad()
    def inputs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and their excess, as `predict` takes them: the distances are then found once."""
        return x, torch.cat([self.excess(part) for part in x.split(AT_A_TIME)])

    def settle(self, x: Tensor) -> None:
        """Learn from the training rows which distances are usual, and what they mean."""
        x = x.to(self.places)
        generator = torch.Generator().manual_seed(0)
        x = x[torch.randperm(len(x), generator=generator).to(x.device)]
        slopes = self._slopes(x[:SLOPE_ROWS], generator)
        places = x[: len(self.places)] * slopes
        others = x[len(places) :][:MOST_RATED] * slopes
        distances = _distances(others if len(others) else places, places)
        if not len(others):
            distances.fill_diagonal_(torch.inf)
        reach = distances.amin(-1).quantile(USUAL)
        for name, value in (("slopes", slopes), ("places", places), ("reach", reach)):
            getattr(self, name).copy_(value)

    def _slopes(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Root mean squares of the slopes of what is shifted, (columns,)."""
        shifted = self.size.layout.size * self.locations
        total = torch.zeros_like(x[0])
        for weights in self.network.draw(SLOPE_DRAWS, seed=torch.tensor(0)).detach():
            given = x.clone().requires_grad_()
            outputs = self.network.with_weights(weights, given)[:, :shifted]
            # With random signs, one backward pass has the squares of all slopes as its mean.
            signs = 2 * torch.randint(2, (shifted,), generator=generator).to(outputs) - 1
            (slope,) = torch.autograd.grad((outputs * signs).sum(), given)
            total += slope.square().mean(0) / SLOPE_DRAWS
        return (total / (self.free * self.locations)).sqrt()


class _Paired(MeanField):
    """Around 0, drawn in pairs of opposite signs: an even number of draws moves no mean."""

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        half = super().rsample(-(-samples // 2), dtype, seed)
        return torch.stack([half, -half], 1).flatten(0, 1)[:samples]


def _distances(x: Tensor, places: Tensor) -> Tensor:
    """Between rows, (…, rows, places), by a product of matrices: what it rounds is below reach."""
    return torch.cdist(x, places, compute_mode="use_mm_for_euclid_dist")
