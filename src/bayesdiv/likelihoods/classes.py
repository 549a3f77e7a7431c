"""Targets that are classes."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical

from bayesdiv.likelihoods.base import Likelihood


class Weighted(Likelihood):
    """Classes, each of which may count differently."""

    class_weights: Tensor | None

    def __init__(self, class_weights: Sequence[float] | Tensor | None = None) -> None:
        super().__init__()
        given = None
        if class_weights is not None:
            given = torch.as_tensor(class_weights, dtype=torch.get_default_dtype())
            if not bool((given.isfinite() & (given > 0)).all()):
                raise ValueError(f"class_weights must be positive, got {given.tolist()}")
        self.register_buffer("class_weights", given)

    def example_weight(self, y: Tensor) -> Tensor | None:
        return None if self.class_weights is None else self.class_weights[y.long()]


class Binary(Weighted):
    """Targets are 0 or 1; the single output is the logit of 1."""

    def forward(self, outputs: Tensor) -> Bernoulli:
        if outputs.shape[-1] != 1:
            raise ValueError(f"outputs must be one, the logit of class 1, got {outputs.shape[-1]}")
        return Bernoulli(logits=outputs.squeeze(-1), validate_args=False)


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


def balanced(y: Tensor, classes: int) -> Tensor:
    """Weights with which every class counts alike, whatever its share: N / (classes · count)."""
    counts = torch.bincount(y.long(), minlength=classes).to(torch.get_default_dtype())
    if not bool((counts > 0).all()):
        missing = (counts == 0).nonzero().flatten().tolist()
        raise ValueError(f"every class needs an example to be weighted, got none of {missing}")
    return counts.sum() / (classes * counts)
