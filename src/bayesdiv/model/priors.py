"""What is believed about the weights before any data: any family, one scale or one per tensor."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal

from bayesdiv.divergence import KL, Divergence
from bayesdiv.divergence.estimators import Exact
from bayesdiv.model.layout import Layout

# A prior made for a module: from the layout of its random weights and their values.
PriorFor = Callable[[Layout, Tensor], nn.Module]


class Prior(nn.Module):
    """A prior of any torch family, the same for all weights, per weight tensor or per weight.

    Args:
        family: a class of torch.distributions over one dimension, such as Normal or Laplace.
        layout: of the weights, where a parameter is given per tensor.
        **parameters: the family's parameters: numbers, flat tensors of one entry per weight, or
            with a layout of one entry per weight tensor. They move with the module and are saved
            with it, but they are not trained.

    Examples:
        >>> Prior(Normal, loc=0.0, scale=0.1)()
        Normal(loc: 0.0, scale: 0.1...)
    """

    def __init__(
        self, family: type[Distribution], layout: Layout | None = None, **parameters: float | Tensor
    ) -> None:
        super().__init__()
        self.family = family
        self.layout = layout
        self.names = tuple(parameters)
        for name, value in parameters.items():
            dtype = value.dtype if isinstance(value, Tensor) else torch.get_default_dtype()
            self.register_buffer(name, torch.as_tensor(value, dtype=dtype).clone())
        self.forward(validate_args=True)  # a bad parameter is reported now, not in the training

    def forward(self, validate_args: bool = False) -> Distribution:
        parameters: dict[str, Any] = {name: self.expanded(name) for name in self.names}
        return self.family(**parameters, validate_args=validate_args)

    def expanded(self, name: str) -> Tensor:
        """A parameter for each weight, or the one number that serves all."""
        value: Tensor = getattr(self, name)
        if self.layout is None or not value.dim():
            return value
        per_tensor = value.shape[-1] == len(self.layout.entries)
        return self.layout.repeated(value) if per_tensor else value

    def extra_repr(self) -> str:
        return self.family.__name__


def side_by_side(priors: Sequence[Prior], weights: int) -> Prior:
    """One prior for several trials, each with its own parameters, stored as they are stored."""
    first, parameters = priors[0], {}
    for name in first.names:
        values = [getattr(prior, name).reshape(-1) for prior in priors]
        if len({value.shape for value in values}) > 1:
            values = [prior.expanded(name).expand(weights) for prior in priors]
        parameters[name] = torch.stack(values)  # (trials, 1 or tensors or weights)
    return Prior(first.family, layout=first.layout, **parameters)


class ScaleMixture(nn.Module):
    """Two Gaussians around 0, a spike and a slab (Blundell et al. 2015).

        share · N(0, wide) + (1-share) · N(0, narrow)

    Examples:
        >>> ScaleMixture(share=0.5, wide=1.0, narrow=0.0025)().stddev
        tensor(0.7071)
    """

    shares: Tensor
    scales: Tensor

    def __init__(self, share: float, wide: float, narrow: float) -> None:
        super().__init__()
        if not 0 < share < 1 or not 0 < narrow < wide:
            told = f"{share}, {narrow} and {wide}"
            raise ValueError(f"0 < share < 1 and 0 < narrow < wide must hold, got {told}")
        self.register_buffer("shares", torch.tensor([share, 1 - share]))
        self.register_buffer("scales", torch.tensor([wide, narrow]))

    def forward(self) -> MixtureSameFamily:
        shares = Categorical(probs=self.shares, validate_args=False)
        each = Normal(torch.zeros_like(self.scales), self.scales, validate_args=False)
        return MixtureSameFamily(shares, each, validate_args=False)


@dataclass(frozen=True)
class FanIn:
    """A prior whose scale suits each layer: gain / √fan-in, so that activations keep their size.

    Args:
        gain: √2 suits layers before a ReLU, 1 others.
        family: a family with loc and scale.

    Examples:
        >>> layout = Layout.of(nn.Linear(4, 2, bias=False).named_parameters())
        >>> FanIn()(layout, torch.zeros(8))().scale[0]
        tensor(0.5000)
    """

    gain: float = 1.0
    family: type[Distribution] = Normal

    def __post_init__(self) -> None:
        if not 0 < self.gain < math.inf:
            raise ValueError(f"gain must be positive and finite, got {self.gain}")

    def __call__(self, layout: Layout, weights: Tensor) -> Prior:
        scales = weights.new_tensor([self.gain / e.fan_in**0.5 for e in layout.entries])
        return Prior(self.family, layout=layout, loc=weights.new_zeros(()), scale=scales)


@dataclass(frozen=True)
class AroundStart:
    """A prior centred on the module's own weights, for instance pretrained ones.

    Args:
        scale: standard deviation around them.
        family: a family with loc and scale.
    """

    scale: float = 0.1
    family: type[Distribution] = Normal

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be positive and finite, got {self.scale}")

    def __call__(self, layout: Layout, weights: Tensor) -> Prior:
        return Prior(self.family, loc=weights.detach(), scale=weights.new_tensor(self.scale))


def prior_scale(prior: Distribution) -> Tensor:
    """The scale of a prior: its own `scale`, else its standard deviation."""
    scale: Tensor = prior.scale if hasattr(prior, "scale") else prior.stddev
    if not bool(scale.isfinite().all() & (scale > 0).all()):
        told = f"{type(prior).__name__} must be finite and positive, got {scale.max().item()}"
        raise ValueError(f"the scale of {told}: give the posterior yourself")
    return scale


def matrices(name: str, parameter: nn.Parameter) -> bool:
    """Picks matrices and filters that are to be trained, for `bayesianize(where=…)`.

    Biases and the parameters of norms stay deterministic: noise on them only slows training.
    """
    return parameter.requires_grad and parameter.dim() > 1


def pull(divergence: Divergence, ratio: float) -> float:
    """How strongly a divergence pulls a mean back, as a multiple of what KL does.

        lim_{m → 0} ∂D/∂m (N(m, r²) ‖ N(0, 1)) / m,   r = σ_q/σ_p

    KL has 1 at every ratio r. JS-G has ((1-α)³r² + α³/r²)/((1-α)r² + α), which grows as q narrows;
    JS-A fades. At r = 1 both have (1-α)³ + α³.

    Examples:
        >>> round(pull(KL(), 0.1), 4)
        1.0
    """
    if not ratio > 0:
        raise ValueError(f"ratio must be positive, got {ratio}")
    small = 0.01 * min(ratio, 1.0)  # the error is of its square over that of the narrower scale
    loc = torch.tensor([small], dtype=torch.float64, requires_grad=True)
    q, p = Normal(loc, torch.full_like(loc, ratio)), Normal(torch.zeros_like(loc), 1.0)
    (slope,) = torch.autograd.grad(Exact(nodes=96)(divergence, q, p).sum(), loc)
    return slope.item() / small


@dataclass(frozen=True)
class WeightDecayPrior:
    """The Gaussian prior whose pull on the means is that of a weight decay.

        σ_p² = strength · pull / (num_data · decay)

    SGD with weight decay w moves a weight by -w m per unit of learning rate; the divergence moves
    it by -(strength/num_data) ∂D/∂m, which for KL is m/σ_p² and for others `pull` times that.

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
        if not min(self.decay, self.strength, self.num_data) > 0:
            raise ValueError(f"decay, strength and num_data must be positive, got {self}")

    @property
    def scale(self) -> float:
        factor = pull(self.divergence or KL(), self.ratio)
        return math.sqrt(self.strength * factor / (self.num_data * self.decay))

    def __call__(self, layout: Layout, weights: Tensor) -> Prior:
        return Prior(Normal, loc=weights.new_zeros(()), scale=weights.new_tensor(self.scale))
