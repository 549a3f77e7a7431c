"""Targets that are one of several classes."""

from collections.abc import Sequence

from torch import Tensor
from torch.distributions import Categorical

from bayesdiv.likelihoods.base import Weighted


class Classes(Weighted):
    """Targets are one of several classes; outputs are logits.

        p(y = k | x, w) = softmax(f_w(x))_k

    Args:
        class_weights: how much an example of each class counts in the loss; see `balanced`.
        ignore: a label that means no label, such as -100 for padding. It is left out of the
            likelihood; an example with no other label is left out of the mean over the batch, too,
            so that `num_data` is the number of examples with a label. Of several processes, each
            takes the mean over its own part. Metrics refuse the label; give them the rest: with
            `keep = y != -100`, of a prediction
            `Predictive(likelihood(predictive.conditional.logits[:, keep]))` and `y[keep]`.

    Examples:
        >>> import torch
        >>> Classes(ignore=-100).counted(torch.tensor([2, -100]))
        tensor([ True, False])
    """

    def __init__(
        self, class_weights: Sequence[float] | Tensor | None = None, ignore: int | None = None
    ) -> None:
        super().__init__(class_weights)
        self.ignore = ignore

    def counted(self, y: Tensor) -> Tensor | None:
        return None if self.ignore is None else y != self.ignore

    def forward(self, outputs: Tensor) -> Categorical:
        if outputs.shape[-1] < 2:
            raise ValueError(f"outputs must be one per class, two or more, got {outputs.shape[-1]}")
        return Categorical(logits=outputs, validate_args=False)
