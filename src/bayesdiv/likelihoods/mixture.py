"""Targets that lie near one of several values."""

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, MixtureSameFamily, Normal
from torch.nn.functional import softplus

from bayesdiv.likelihoods.base import Spread


class GaussianMixture(Spread):
    """Targets are a mixture of normals, for what is skewed, heavy-tailed or has several modes.

        y | x, w ~ Σ_k softmax(f_logits)_k N(f_loc,k + d_k, (smallest + softplus(f_rho,k + shift))²)

    Three outputs per component and target: all locations first, then all logits, then all rhos.
    The offsets d_k, from -1 to 1, keep components apart before anything is learned.

    Args:
        components: how many normals.
        smallest: a floor for the scales, without which a single row can be fitted exactly.
        shift: what is added to rho; `shift_to` finds the one for a given scale at the output 0.

    Examples:
        >>> GaussianMixture(components=2)(torch.zeros(4, 6)).mean
        tensor([0., 0., 0., 0.])
    """

    offsets: Tensor

    def __init__(self, components: int = 3, smallest: float = 1e-4, shift: float = 0.0) -> None:
        super().__init__(smallest, shift)
        if components < 2:
            raise ValueError(f"components must be at least 2, got {components}")
        self.register_buffer("offsets", torch.linspace(-1, 1, components))

    def forward(self, outputs: Tensor) -> Distribution:
        components = len(self.offsets)
        if outputs.shape[-1] % (3 * components):
            raise ValueError(
                f"outputs must be {3 * components} per target, three for each component, got "
                f"{outputs.shape[-1]}"
            )
        loc, logits, rho = (
            part.unflatten(-1, (-1, components)) for part in outputs.chunk(3, -1)
        )  # (…, targets, components) each
        scale = softplus(rho + self.shift) + self.smallest
        one = loc.shape[-2] == 1
        loc, logits, scale = ((p.squeeze(-2) if one else p) for p in (loc, logits, scale))
        each = MixtureSameFamily(
            Categorical(logits=logits, validate_args=False),
            Normal(loc + self.offsets, scale, validate_args=False),
            validate_args=False,
        )
        return each if one else Independent(each, 1, validate_args=False)
