"""Targets that are counts and scatter more than a Poisson distribution would."""

from typing import Any

from torch import Tensor
from torch.distributions import Distribution
from torch.distributions import NegativeBinomial as Counts

from bayesdiv.likelihoods.base import Logarithmic, joined


class NegativeBinomial(Logarithmic):
    """Targets are counts 0, 1, 2, … that scatter more than a Poisson distribution would.

        E[y | x, w] = m = exp(centre + width · f_1),   Var[y | x, w] = m + (c m)²
        c = width · (smallest + softplus(f_2 + shift))

    At c = 0 this is `Poisson`.

    Examples:
        >>> import torch
        >>> NegativeBinomial(centre=1.0)(torch.zeros(2, 2)).mean
        tensor([2.7183, 2.7183])
    """

    def forward(self, outputs: Tensor) -> Distribution:
        log_mean, relative = self.parts(outputs)
        return joined(_counts, relative.pow(-2), log_mean + 2 * relative.log())


def _counts(total_count: Tensor, logits: Tensor, **kept: Any) -> Counts:
    return Counts(total_count, logits=logits, **kept)
