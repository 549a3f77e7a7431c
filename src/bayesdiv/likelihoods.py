"""From a network's outputs to a distribution of the targets."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Normal,
    StudentT,
)
from torch.nn.functional import softplus


class Likelihood(nn.Module):
    """A module whose call turns outputs (…, batch, outputs) into a distribution of the targets."""

    def example_weight(self, y: Tensor) -> Tensor | None:
        """How much each example counts in the loss; None where all count alike."""
        return None


class _Noisy(Likelihood):
    """One learned noise level, or one a trial: the leading axes of `scale`."""

    def __init__(self, scale: float | Tensor = 1.0) -> None:
        super().__init__()
        start = torch.as_tensor(scale, dtype=torch.get_default_dtype())
        if not bool((start > 0).all()):
            raise ValueError(f"scale must be positive, got {start.min().item()}")
        self.rho = nn.Parameter(start + (-(-start).expm1()).log())

    @property
    def scale(self) -> Tensor:
        """The noise's standard deviation."""
        return softplus(self.rho)

    def _for(self, loc: Tensor, axes: int) -> Tensor:
        """The scale, its trials in line with those of the outputs; `axes` follow the trials."""
        return self.scale.reshape(*self.scale.shape, *(1,) * axes) if self.rho.dim() else self.scale


class Gaussian(_Noisy):
    """Targets are normal around the output, with one learned noise level (mathematics: section 9).

        y | x, w ~ N(f_w(x), scale²)

    One output gives a number a row, several give independent numbers with the same noise.

    Examples:
        >>> Gaussian(scale=0.5)(torch.zeros(4, 1)).scale
        tensor([0.5000, 0.5000, 0.5000, 0.5000], grad_fn=<ExpandBackward0>)
    """

    def forward(self, outputs: Tensor) -> Distribution:
        """The distribution of the targets."""
        if outputs.shape[-1] == 1:
            return Normal(outputs.squeeze(-1), self._for(outputs, 1), validate_args=False)
        each = Normal(outputs, self._for(outputs, 2), validate_args=False)
        return Independent(each, 1, validate_args=False)


class HeteroscedasticGaussian(Likelihood):
    """Targets are normal with a noise level of their own: two outputs, the mean and its rho.

    y | x, w ~ N(f_1, softplus(f_2)²)
    """

    smallest = 1e-4
    """A floor for the scale, without which a single row can be fitted exactly."""

    def forward(self, outputs: Tensor) -> Normal:
        """The distribution of the targets."""
        if outputs.shape[-1] != 2:
            raise ValueError(f"outputs must be two, mean and rho, got {outputs.shape[-1]}")
        loc, rho = outputs.unbind(-1)
        return Normal(loc, softplus(rho) + self.smallest, validate_args=False)


class StudentTNoise(_Noisy):
    """Targets with outliers: Student's t around the output, learned scale, fixed df.

    Args:
        df: degrees of freedom; 4 forgives outliers and has a finite variance.
        scale: where the learned scale starts.
    """

    def __init__(self, df: float = 4.0, scale: float | Tensor = 1.0) -> None:
        super().__init__(scale)
        if not df > 0:
            raise ValueError(f"df must be positive, got {df}")
        self.df = df

    def forward(self, outputs: Tensor) -> StudentT:
        """The distribution of the targets."""
        if outputs.shape[-1] != 1:
            raise ValueError(f"outputs must be one, got {outputs.shape[-1]}")
        loc = outputs.squeeze(-1)
        return StudentT(loc.new_tensor(self.df), loc, self._for(outputs, 1), validate_args=False)


class _Weighted(Likelihood):
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


class Classes(_Weighted):
    """Targets are one of several classes; outputs are logits.

        p(y = k | x, w) = softmax(f_w(x))_k

    Args:
        class_weights: how much an example of each class counts in the loss, for biased data; see
            `balanced`.
    """

    def forward(self, outputs: Tensor) -> Categorical:
        """The distribution of the targets."""
        if outputs.shape[-1] < 2:
            raise ValueError(f"outputs must be one a class, two or more, got {outputs.shape[-1]}")
        return Categorical(logits=outputs, validate_args=False)


class Binary(_Weighted):
    """Targets are 0 or 1; the single output is the logit of 1."""

    def forward(self, outputs: Tensor) -> Bernoulli:
        """The distribution of the targets."""
        if outputs.shape[-1] != 1:
            raise ValueError(f"outputs must be one, the logit of class 1, got {outputs.shape[-1]}")
        return Bernoulli(logits=outputs.squeeze(-1), validate_args=False)


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
