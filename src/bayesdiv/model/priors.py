"""What is believed about the weights before any data: any family, one scale or one per tensor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal

from bayesdiv.model.layout import Layout

# A prior made for a module: from the layout of its random weights and their values.
PriorFor = Callable[[Layout, Tensor], nn.Module]


class Prior(nn.Module):
    """A prior of any torch family, the same for all weights, per weight tensor or per weight.

    What is given per tensor is stored so, and repeated for its weights whenever the prior is asked.

    Args:
        family: a class of torch.distributions over one dimension, such as Normal or Laplace.
        layout: of the weights, where a parameter is given per tensor.
        **parameters: the family's parameters: numbers, flat tensors of one entry per weight, or
            with a layout of one entry per weight tensor. They move with the module and are saved
            with it, but they are not trained.

    Examples:
        >>> Prior(Normal, loc=0.0, scale=0.1)()
        Normal(loc: 0.0, scale: 0.1...)
        >>> layout = Layout.of(nn.Linear(3, 2).named_parameters())
        >>> prior = Prior(Normal, layout=layout, loc=0.0, scale=torch.tensor([0.5, 1.0]))
        >>> prior.scale.shape, prior().scale.shape
        (torch.Size([2]), torch.Size([8]))
    """

    def __init__(
        self,
        family: type[Distribution],
        *,
        layout: Layout | None = None,
        **parameters: float | Tensor,
    ) -> None:
        super().__init__()
        self.family = family
        self.layout = layout
        self.names = tuple(parameters)
        for name, value in parameters.items():
            dtype = value.dtype if isinstance(value, Tensor) else torch.get_default_dtype()
            self.register_buffer(name, torch.as_tensor(value, dtype=dtype).clone())
        self._made(validate=True)  # a bad parameter is reported now, not in the training step

    def forward(self) -> Distribution:
        return self._made(validate=False)

    def expanded(self, name: str) -> Tensor:
        """A parameter for each weight, or the one number that serves all."""
        value: Tensor = getattr(self, name)
        if self.layout is None or not value.dim():
            return value
        per_tensor = value.shape[-1] == len(self.layout.entries)
        return self.layout.repeated(value) if per_tensor else value

    def _made(self, validate: bool) -> Distribution:
        parameters: dict[str, Any] = {name: self.expanded(name) for name in self.names}
        return self.family(**parameters, validate_args=validate)

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
        if not 0 < share < 1:
            raise ValueError(f"share must lie inside (0, 1), got {share}")
        if not 0 < narrow < wide:
            raise ValueError(f"0 < narrow < wide must hold, got narrow={narrow} and wide={wide}")
        self.register_buffer("shares", torch.tensor([share, 1 - share]))
        self.register_buffer("scales", torch.tensor([wide, narrow]))

    def forward(self) -> MixtureSameFamily:
        return MixtureSameFamily(
            Categorical(probs=self.shares, validate_args=False),
            Normal(torch.zeros_like(self.scales), self.scales, validate_args=False),
            validate_args=False,
        )


@dataclass(frozen=True)
class FanIn:
    """A prior whose scale suits each layer: gain / √fan-in, so that activations keep their size.

    It stores one number per weight tensor.

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

    def __call__(self, layout: Layout, weights: Tensor) -> Prior:
        return Prior(self.family, loc=weights.detach(), scale=weights.new_tensor(self.scale))


def prior_scale(prior: Distribution) -> Tensor:
    """The scale of a prior: its own `scale`, else its standard deviation."""
    scale: Tensor = prior.scale if hasattr(prior, "scale") else prior.stddev
    if not bool(scale.isfinite().all() & (scale > 0).all()):
        raise ValueError(
            f"the scale of {type(prior).__name__} must be finite and positive to start the "
            f"posterior from, got {scale.max().item()}: give the posterior yourself"
        )
    return scale
