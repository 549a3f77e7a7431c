"""What the divergences with a skew alpha share: its range, and what they are at its ends."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Points, checked_alpha
from bayesdiv.divergence.densities import common_shape, places
from bayesdiv.divergence.kl import KL, ReverseKL


@dataclass(frozen=True)
class Skewed(Divergence):
    """A divergence with alpha in [0, 1]: symmetric at one half, a KL at each end."""

    alpha: float | Tensor = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", checked_alpha(self.alpha))

    @property
    def symmetric(self) -> bool:
        return not isinstance(self.alpha, Tensor) and self.alpha == 0.5

    def reduced(self) -> Divergence:
        """KL at alpha = 0, the reverse KL at alpha = 1."""
        if isinstance(self.alpha, Tensor) or 0 < self.alpha < 1:
            return self
        return KL() if self.alpha == 0 else ReverseKL()


@dataclass(frozen=True)
class Unmodified(Skewed):
    """A divergence with alpha that is 0 at both of its ends, whatever q and p are."""

    @property
    def bound(self) -> float | None:
        """0 at both ends; else that of the class after this one."""
        return 0.0 if isinstance(self.reduced(), Zero) else super().bound

    @property
    def symmetric(self) -> bool:
        return super().symmetric or isinstance(self.reduced(), Zero)

    def reduced(self) -> Divergence:
        return self if super().reduced() is self else Zero()


@dataclass(frozen=True)
class Zero(Divergence):
    """What the unmodified divergences are at alpha = 0 and 1: nothing, for any pair."""

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return torch.zeros_like(at_q.log_q[0])


@closed_form.register(Zero, Distribution, Distribution)
def _(_: Zero, q: Distribution, p: Distribution) -> Tensor:
    shape = common_shape(q.batch_shape, p.batch_shape)
    loc, scale = places(q)[0]
    # Products keep dtype, device and the graph: the gradient is 0, not missing.
    return (loc * 0.0 + scale * 0.0).expand(shape)
