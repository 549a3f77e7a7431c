"""How a residual network learns images: the settings of command line, how-to and benchmark."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from bayesdiv.divergence import JSG, Divergence
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.model.bayesianize import bayesianize
from bayesdiv.model.layout import Where
from bayesdiv.model.posteriors import MeanField
from bayesdiv.model.priors import AroundStart, PriorFor, WeightDecayPrior, matrices, pull
from bayesdiv.objective.objective import Objective
from bayesdiv.training.optimizers.natural import Cosine, Natural

WARM_UP = 0.05  # share of the updates


@dataclass(frozen=True)
class ImageRecipe:
    """Natural gradients under the prior that equals weight decay; crops and flips beside it.

    `benchmarks/field` compares it with other methods on CIFAR-10, where it was chosen on validation
    images.

    Examples:
        >>> round(IMAGES.strength(50_000), 4)
        0.0098
    """

    divergence: Divergence = field(default_factory=lambda: JSG(0.5))
    scale: float = 0.007  # of the prior; the strength follows from it, N and the decay
    start: float = 0.5  # first scale of the posterior over that of the prior
    ratio: float = 1.0  # scale of posterior over prior at which the pull is that of weight decay
    lr: float = 0.1  # of SGD for the same network
    decay: float = 1e-3  # of weights, to which the prior is made equal
    damping: float = 0.1  # of the means' steps
    where: Where = matrices  # which weights are random

    def strength(self, num_data: int) -> float:
        """The λ for which this prior pulls like weight decay: noise of this size for any N."""
        return self.scale**2 * num_data * self.decay / pull(self.divergence, self.ratio)

    def with_strength(self, strength: float, num_data: int) -> "ImageRecipe":
        """The same with the scale that belongs to another λ."""
        if not 0 < strength < math.inf:
            rule = "strength must be positive and finite, since the scale of this prior follows it"
            raise ValueError(f"{rule}, got {strength}")
        factor = pull(self.divergence, self.ratio) / (num_data * self.decay)
        return replace(self, scale=math.sqrt(strength * factor))

    def prior(self, num_data: int) -> PriorFor:
        """The prior whose pull is that of weight decay."""
        strength = self.strength(num_data)
        return WeightDecayPrior(self.decay, num_data, strength, self.divergence, self.ratio)

    def bayesian(self, network: nn.Module, num_data: int) -> Bayesian:
        """The network with random weights."""
        return bayesianize(network, self.prior(num_data), where=self.where, start=self.start)

    def optimizer(self, model: nn.Module, objective: Objective, batch: int) -> Optimizer:
        """Natural gradients on the device of the model; Nesterov's SGD for a plain network.

        Momentum is an average in Natural, so that ten times SGD's rate is as fast.
        """
        device = next(model.parameters()).device
        lr = torch.tensor(self.lr, device=device)  # which a recorded step follows
        on_gpu = device.type == "cuda"
        if not any(isinstance(module, MeanField) for module in model.modules()):
            how: Any = {"weight_decay": self.decay, "nesterov": True, "fused": on_gpu or None}
            return SGD(model.parameters(), lr, 0.9, **how)
        num_data = objective.num_data
        strength = self.strength(num_data)
        return Natural(
            model,
            objective,
            num_data=num_data,
            strength=strength,
            lr=10 * lr * self.damping,
            damping=self.damping,
            rate=0.0,
            memory=num_data / (strength * batch),
            widest=self.scale,
            others_lr=lr,
            others_decay=self.decay,
            transform=torch.compile if on_gpu else None,
        )

    @staticmethod
    def schedule(updates: int) -> Cosine:
        """A short rise, then half a cosine to 0."""
        return Cosine(updates, round(WARM_UP * updates))


@dataclass(frozen=True)
class FineTuning(ImageRecipe):
    """The same around the weights that a network brings, at a tenth of the rate."""

    lr: float = 0.01

    def prior(self, num_data: int) -> PriorFor:
        """A Gaussian around the start."""
        return AroundStart(self.scale)


IMAGES = ImageRecipe()
