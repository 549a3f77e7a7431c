"""What a likelihood is, and what several of them share."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from bayesdiv.model.posteriors.base import inverse_softplus


class Likelihood(nn.Module):
    """A module whose call turns outputs (…, batch, outputs) into a distribution of the targets."""

    def example_weight(self, y: Tensor) -> Tensor | None:
        """How much each example counts in the loss; None where all count alike."""
        return None

    def counted(self, y: Tensor) -> Tensor | None:
        """Which targets are part of the loss; None where all are."""
        return None


class Noisy(Likelihood):
    """One learned noise level, or one per trial: the leading axes of `scale`."""

    def __init__(self, scale: float | Tensor = 1.0) -> None:
        super().__init__()
        start = torch.as_tensor(scale, dtype=torch.get_default_dtype())
        if not bool((start > 0).all()):
            raise ValueError(f"scale must be positive, got {start.min().item()}")
        self.rho = nn.Parameter(inverse_softplus(start))

    @property
    def scale(self) -> Tensor:
        """The noise's standard deviation."""
        return softplus(self.rho)

    def scale_for(self, axes: int) -> Tensor:
        """The scale, its trials in line with those of outputs of which `axes` follow the trials."""
        return self.scale.reshape(*self.scale.shape, *(1,) * axes) if self.rho.dim() else self.scale


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
        """The weight of each example's class."""
        return None if self.class_weights is None else self.class_weights[y.long()]


def balanced(y: Tensor, classes: int) -> Tensor:
    """Weights with which every class counts alike, whatever its share: N / (classes · count).

    Examples:
        >>> balanced(torch.tensor([0, 0, 0, 1]), classes=2)
        tensor([0.6667, 2.0000])
    """
    counts = torch.bincount(y.long(), minlength=classes).to(torch.get_default_dtype())
    if not bool((counts > 0).all()):
        missing = (counts == 0).nonzero().flatten().tolist()
        raise ValueError(f"every class needs an example to be weighted, got none of {missing}")
    return counts.sum() / (classes * counts)
