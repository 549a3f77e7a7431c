"""Targets that are 0 or 1."""

from torch import Tensor
from torch.distributions import Bernoulli

from bayesdiv.likelihoods.base import Weighted


class Binary(Weighted):
    """Targets are 0 or 1; the single output is the logit of 1."""

    def forward(self, outputs: Tensor) -> Bernoulli:
        if outputs.shape[-1] != 1:
            raise ValueError(f"outputs must be one, the logit of class 1, got {outputs.shape[-1]}")
        return Bernoulli(logits=outputs.squeeze(-1), validate_args=False)
