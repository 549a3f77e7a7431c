"""What makes a Bayesian image network train like a plain one: which weights, and which prior."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from bayesdiv.divergence import KL, Divergence
from bayesdiv.divergence.estimators import Exact
from bayesdiv.model.layout import Layout
from bayesdiv.model.priors import Prior


def matrices(name: str, parameter: nn.Parameter) -> bool:
    """Picks the weights with two axes or more that are to be trained: matrices and filters.

    Biases and the parameters of norms stay deterministic: they are few, and noise on them only
    slows training. Give it as `where` to `bayesianize`.

    Examples:
        >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        >>> [name for name, weight in net.named_parameters() if matrices(name, weight)]
        ['0.weight']
    """
    return parameter.requires_grad and parameter.dim() > 1


def pull(divergence: Divergence, ratio: float) -> float:
    """How strongly a divergence pulls a mean back, as a multiple of what KL does.

        lim_{m → 0} ∂D/∂m (N(m, r²) ‖ N(0, 1)) / m,   r = σ_q/σ_p

    KL has 1 at every ratio r. JS-G has ((1-α)³r² + α³/r²)/((1-α)r² + α), which grows as q narrows;
    JS-A fades. At r = 1 both have (1-α)³ + α³.

    Examples:
        >>> from bayesdiv import JSG
        >>> round(pull(KL(), 0.1), 4), round(pull(JSG(0.5), 0.25), 1)
        (1.0, 3.8)
    """
    if not ratio > 0:
        raise ValueError(f"ratio must be positive, got {ratio}")
    small = 0.01 * min(ratio, 1.0)  # the error is of its square over that of the narrower scale
    loc = torch.tensor([small], dtype=torch.float64, requires_grad=True)
    q, p = Normal(loc, torch.full_like(loc, ratio)), Normal(torch.zeros_like(loc), 1.0)
    value = Exact(nodes=96)(divergence, q, p).sum()
    (slope,) = torch.autograd.grad(value, loc)
    return slope.item() / small


@dataclass(frozen=True)
class WeightDecayPrior:
    """The Gaussian prior whose pull on the means is that of a weight decay.

        σ_p² = strength · pull / (num_data · decay)

    SGD with weight decay w moves a weight by -w m per unit of learning rate; the divergence moves
    it by -(strength/num_data) ∂D/∂m. For KL the two are equal when σ_p² = strength/(num_data · w).
    Along this curve the pull stays that of SGD while the noise shrinks with the strength, which is
    the trade of accuracy against calibration. Other divergences pull by the factor `pull`, which
    depends on how narrow the posterior is: state where the two are to agree.

    Args:
        decay: of an SGD that trains this network well, such as 5e-4.
        num_data: how many training examples there are.
        strength: the λ of the objective.
        divergence: that of the objective; None is KL.
        ratio: the σ_q/σ_p at which the pulls agree; KL does not depend on it.

    Examples:
        >>> prior = WeightDecayPrior(5e-4, num_data=50_000, strength=0.01)
        >>> prior(Layout.of(nn.Linear(2, 1).named_parameters()), torch.zeros(3))()
        Normal(loc: 0.0, scale: 0.0199...)
    """

    decay: float
    num_data: int
    strength: float = 1.0
    divergence: Divergence | None = None
    ratio: float = 1.0

    def __post_init__(self) -> None:
        if not self.decay > 0 or not self.strength > 0 or self.num_data < 1:
            raise ValueError(
                "decay and strength must be positive and num_data at least 1, got "
                f"{self.decay}, {self.strength} and {self.num_data}"
            )

    @property
    def scale(self) -> float:
        factor = pull(self.divergence or KL(), self.ratio)
        return math.sqrt(self.strength * factor / (self.num_data * self.decay))

    def __call__(self, layout: Layout, weights: Tensor) -> Prior:
        return Prior(Normal, loc=weights.new_zeros(()), scale=weights.new_tensor(self.scale))
