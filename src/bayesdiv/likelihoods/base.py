"""What a likelihood is, and what several of them share."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent
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
        self.trials = start.shape
        # One axis at least: `fully_shard` takes no single numbers.
        self.rho = nn.Parameter(inverse_softplus(start.reshape(self.trials or (1,))))

    @property
    def scale(self) -> Tensor:
        return softplus(self.rho).reshape(self.trials)

    def scale_for(self, axes: int) -> Tensor:
        """The scale, its trials in line with those of outputs of which `axes` follow the trials."""
        scale = softplus(self.rho)
        return scale.reshape(*self.trials, *(1,) * axes) if self.trials else scale


class Spread(Likelihood):
    """Two outputs per target: a location, and the raw value of a positive spread.

    Several targets have all locations first, then all raw spreads.

    Args:
        smallest: a floor for the spread, without which a single row can be fitted exactly.
        shift: what is added to the raw spread; `shift_to` finds the one for a given spread.
    """

    def __init__(self, smallest: float = 1e-4, shift: float = 0.0) -> None:
        super().__init__()
        if not smallest > 0:
            raise ValueError(f"smallest must be positive, got {smallest}")
        self.smallest, self.shift = smallest, shift

    def parts(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Locations and spreads, (…, targets) each."""
        if outputs.shape[-1] % 2:
            raise ValueError(
                f"outputs must be two per target, mean and rho, got {outputs.shape[-1]}"
            )
        loc, rho = outputs.chunk(2, -1)
        return loc, softplus(rho + self.shift) + self.smallest


class Logarithmic(Spread):
    """Two outputs per target, for what is positive: a logarithm, and a relative spread.

        log-location  centre + width · f_1,   spread  width · (smallest + softplus(f_2 + shift))

    Args:
        smallest: a floor for the spread, in units of the width.
        shift: what is added to the raw spread.
        centre: the log-location at the output 0, one for all targets or one each.
        width: the unit of both outputs, such as the standard deviation of the targets' logarithms.
    """

    centre: Tensor
    width: Tensor

    def __init__(
        self,
        smallest: float = 1e-2,
        shift: float = 0.0,
        centre: float | Tensor = 0.0,
        width: float | Tensor = 1.0,
    ) -> None:
        super().__init__(smallest, shift)
        for name, value in (("centre", centre), ("width", width)):
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.get_default_dtype()))
        if not bool((self.width > 0).all()):
            raise ValueError(f"width must be positive, got {self.width.min().item()}")

    def parts(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        loc, spread = super().parts(outputs)
        return self.centre + self.width * loc, self.width * spread


def joined(family: Callable[..., Distribution], *parts: Tensor) -> Distribution:
    """A distribution per row: of one number, or of several that are independent."""
    if parts[0].shape[-1] == 1:
        return family(*(part.squeeze(-1) for part in parts), validate_args=False)
    return Independent(family(*parts, validate_args=False), 1, validate_args=False)


def shift_to(scale: float, smallest: float) -> float:
    """The shift with which a `Spread` is `scale` where its output is 0."""
    return float(inverse_softplus(torch.tensor(scale - smallest, dtype=torch.float64)))


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
