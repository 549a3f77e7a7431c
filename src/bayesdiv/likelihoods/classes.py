"""Targets that are one of several classes."""

from torch import Tensor
from torch.distributions import Categorical

from bayesdiv.likelihoods.base import Weighted


class Classes(Weighted):
    """Targets are one of several classes; outputs are logits.

        p(y = k | x, w) = softmax(f_w(x))_k

    Args:
        class_weights: how much an example of each class counts in the loss, for biased data; see
            `balanced`.
    """

    def forward(self, outputs: Tensor) -> Categorical:
        """The distribution of the targets."""
        if outputs.shape[-1] < 2:
            raise ValueError(f"outputs must be one per class, two or more, got {outputs.shape[-1]}")
        return Categorical(logits=outputs, validate_args=False)
