"""An alpha that an optimizer may move, and that stays where every divergence has a value."""

import torch
from torch import Tensor, nn

_END = 1e-6  # of alpha: derivatives are right to here


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
