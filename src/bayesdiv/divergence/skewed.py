"""What the divergences with a skew alpha share: its range, its ends, and how it is learned."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Points, checked_alpha
from bayesdiv.divergence.densities import common_shape
from bayesdiv.divergence.kl import KL, ReverseKL

_END = 1e-6  # of alpha: derivatives are right to here


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
    given = ("loc", "scale") if hasattr(q, "loc") and hasattr(q, "scale") else ("mean", "stddev")
    loc, scale = (cast(Tensor, getattr(q, name)) for name in given)
    # Products keep dtype, device and the graph: the gradient is 0, not missing.
    return (loc * 0.0 + scale * 0.0).expand(shape)


class LearnedAlpha(nn.Module):
    """An alpha inside (0, 1), learned through its logit; call it for the alpha of a divergence.

        alpha = 1e-6 + (1 - 2e-6) sigmoid(logit)

    Minimising a loss over alpha only shrinks the divergence in it, whatever the posterior: learn
    alpha on another objective, such as the likelihood of validation data, or choose it there.

    Args:
        initial: the first alpha, one number or one per trial.

    Examples:
        >>> from torch.distributions import Normal
        >>> from bayesdiv import JSA
        >>> alpha = LearnedAlpha(0.25)
        >>> value = JSA(alpha())(Normal(1.0, 1.0), Normal(0.0, 1.0))
        >>> value.backward()
        >>> round(alpha().item(), 4), alpha.logit.grad is not None
        (0.25, True)
    """

    def __init__(self, initial: float | Tensor = 0.5) -> None:
        super().__init__()
        start = torch.as_tensor(initial, dtype=torch.float64)
        if not bool(((start > _END) & (start < 1 - _END)).all()):
            raise ValueError(f"initial must lie inside (1e-6, 1 - 1e-6), got {start.tolist()}")
        logit = ((start - _END) / (1 - 2 * _END)).logit()
        self.logit = nn.Parameter(logit.to(torch.get_default_dtype()))

    def forward(self) -> Tensor:
        """Alpha, in double precision: next to 1 a single one has no digits left."""
        return _END + (1 - 2 * _END) * self.logit.double().sigmoid()
