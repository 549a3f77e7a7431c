"""What a likelihood is."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.distributions import Distribution, Independent


class Likelihood(nn.Module):
    """A module whose call turns outputs (…, batch, outputs) into a distribution of the targets."""

    def example_weight(self, y: Tensor) -> Tensor | None:
        """How much each example counts in the loss; None where all count alike."""
        return None

    def counted(self, y: Tensor) -> Tensor | None:
        """Which targets are part of the loss; None where all are."""
        return None


def joined(family: Callable[..., Distribution], *parts: Tensor) -> Distribution:
    """A distribution per row: of one number, or of several that are independent."""
    if parts[0].shape[-1] == 1:
        return family(*(part.squeeze(-1) for part in parts), validate_args=False)
    return Independent(family(*parts, validate_args=False), 1, validate_args=False)
