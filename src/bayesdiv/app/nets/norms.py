"""Normalisation between convolutions: layers, and batch statistics that suit the weights."""

from collections.abc import Iterable
from enum import StrEnum

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn


class FilterResponseNorm(nn.Module):
    """Divide each channel of each image by its root mean square (Singh and Krishnan 2020).

        y = γ x / √(mean over pixels of x² + ε) + β

    It needs no statistics of the batch, so a draw of the weights sees the same network in training
    and in prediction.

    Args:
        channels: of the images.
        epsilon: keeps the root away from 0.

    Examples:
        >>> FilterResponseNorm(2)(torch.full((1, 2, 4, 4), 3.0))[0, 0, 0, 0]
        tensor(1.0000, grad_fn=<SelectBackward0>)
    """

    def __init__(self, channels: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """The normalised images, (…, channels, height, width)."""
        # In single precision: the squares of a bfloat16 image lose what the mean is to keep.
        square = x.float().square().mean((-2, -1), keepdim=True)
        factor = self.weight[:, None, None] * (square + self.epsilon).rsqrt()
        return torch.addcmul(self.bias[:, None, None], x, factor).to(x.dtype)


class Norm(StrEnum):
    """What follows each convolution, and the activation that goes with it."""

    NONE = "none"
    BATCH = "batch"
    FILTER_RESPONSE = "filter_response"

    def layer(self, channels: int) -> nn.Module:
        """The layer after a convolution of so many channels."""
        layers: dict[Norm, type[nn.Module]] = {
            Norm.NONE: nn.Identity,
            Norm.BATCH: nn.BatchNorm2d,
            Norm.FILTER_RESPONSE: FilterResponseNorm,
        }
        return layers[self](channels)

    def activation(self) -> nn.Module:
        """Swish after filter response norm, ReLU elsewhere."""
        return nn.SiLU() if self is Norm.FILTER_RESPONSE else nn.ReLU()


@torch.no_grad()
def estimate_statistics(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Estimate the running statistics of every batch norm again, as plain means over batches.

    A Bayesian model draws its weights in each call, so the statistics are those of the average
    over draws. Inside `at_mean` they are those of the mean network: with noisy weights the two
    differ, and a network that is averaged over draws loses accuracy with the wrong ones.

    Args:
        model: in any mode, to which it returns; nothing happens where it has no batch norm.
        batches: of inputs.

    Examples:
        >>> norm = nn.BatchNorm1d(1)
        >>> estimate_statistics(norm, [torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]])])
        >>> norm.running_mean, norm.running_var
        (tensor([4.]), tensor([2.]))
    """
    modes = [(module, module.training) for module in model.modules()]
    update_bn(batches, model)
    for module, training in modes:  # torch leaves all in the mode of the whole
        module.training = training
