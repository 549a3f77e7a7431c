"""Methods of others, as far as they need code of their own: SWAG, Laplace, a step for IVON."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesdiv.objective.objective import Loss
from benchmarks.field.data import Part


class Swag:
    """Mean, diagonal and low-rank covariance of weights along a run (Maddox et al. 2019).

    θ = mean + √(diag/2) ε₁ + D ε₂ / √(2 (K-1)),   D: the last K deviations from the mean
    """

    def __init__(self, model: nn.Module, rank: int) -> None:
        self.parameters = [*model.parameters()]
        self.rank = rank
        self.count = 0
        self.mean = torch.zeros_like(self._now())
        self.square = torch.zeros_like(self.mean)
        self.deviations: list[Tensor] = []

    def _now(self) -> Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.parameters])

    def collect(self) -> None:
        """Take the weights as they are."""
        now = self._now()
        self.count += 1
        self.mean.lerp_(now, 1 / self.count)
        self.square.lerp_(now.square(), 1 / self.count)
        self.deviations = [*self.deviations, now - self.mean][-self.rank :]

    @torch.no_grad()
    def draw(self) -> None:
        """Put a draw into the network."""
        diagonal = (self.square - self.mean.square()).clamp(min=1e-30)
        weights = self.mean + (diagonal / 2).sqrt() * torch.randn_like(self.mean)
        if len(self.deviations) > 1:
            scale = (2 * (len(self.deviations) - 1)) ** -0.5
            for deviation in self.deviations:
                weights += scale * torch.randn((), device=weights.device) * deviation
        sizes = [parameter.numel() for parameter in self.parameters]
        for parameter, own in zip(self.parameters, weights.split(sizes), strict=True):
            parameter.copy_(own.reshape(parameter.shape))


class LastLayerLaplace:
    """A Gaussian around the last layer with the curvature of the whole training set.

        Σ⁻¹ = Σ_i (diag(p_i) - p_i p_iᵀ) ⊗ φ_i φ_iᵀ + precision · 1,   φ: features and a 1

    the generalised Gauss-Newton matrix of the cross entropy, in full (Daxberger et al. 2021).

    Args:
        model: preparation and a sequential network whose last part is the output layer.
        part: the training images.
    """

    def __init__(self, model: nn.Sequential, part: Part) -> None:
        self.model, (self.prepare, network) = model, model
        self.trunk, self.last = network[:-1], network[-1]
        self.mean = torch.cat([self.last.weight, self.last.bias[:, None]], 1).detach().double()
        self.curvature = self._curvature(part)

    @torch.no_grad()
    def _curvature(self, part: Part) -> Tensor:
        self.model.eval()
        classes, width = self.mean.shape
        total = self.mean.new_zeros(classes, width, classes, width)
        for images in part.x.split(2000):
            features = self.trunk(self.prepare(images))
            features = torch.cat([features, features.new_ones(len(features), 1)], 1).double()
            p = (features @ self.mean.T).softmax(-1)
            for row in range(classes):
                for column in range(row + 1):
                    own = p[:, row] * (float(row == column) - p[:, column])
                    block = (own[:, None] * features).T @ features
                    total[row, :, column] += block
                    if row != column:
                        total[column, :, row] += block
        return total.reshape(classes * width, classes * width)

    def with_precision(self, precision: float) -> Callable[[], Any]:
        """How draws are made for a prior precision."""
        own = self.curvature + precision * torch.eye(
            len(self.curvature), dtype=self.curvature.dtype, device=self.curvature.device
        )
        root = torch.linalg.cholesky(own)

        @contextmanager
        def drawn() -> Iterator[None]:
            noise = torch.randn(len(root), 1, dtype=root.dtype, device=root.device)
            away = torch.linalg.solve_triangular(root.mT, noise, upper=True)
            self._put(self.mean + away.reshape(self.mean.shape))
            yield
            self._put(self.mean)

        return drawn

    @torch.no_grad()
    def _put(self, weights: Tensor) -> None:
        self.last.weight.copy_(weights[:, :-1])
        self.last.bias.copy_(weights[:, -1])


def ivon_optimizer(parameters: Iterable[nn.Parameter], **settings: float) -> Any:
    """The optimizer of the package `ivon-opt`, which must be installed or on the path."""
    try:
        from ivon import IVON
    except ImportError as error:
        raise SystemExit("the package ivon-opt must be on the path, got none") from error
    return IVON(parameters, **settings)


def ivon_step(
    loss_of: Callable[..., Loss],
    batch: tuple[Any, ...],
    optimizer: Optimizer,
    backward: Callable[[Tensor], None],
) -> Loss:
    """One update as IVON's own guide asks for it: loss and gradients at drawn weights."""
    own: Any = getattr(optimizer, "optimizer", optimizer)  # inside accelerate's
    with own.sampled_params(train=True):
        optimizer.zero_grad()
        loss = loss_of(*batch)
        backward(loss.total)
    optimizer.step()
    return Loss(*(part.detach() for part in loss))
