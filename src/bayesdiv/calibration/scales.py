"""One number chosen on held-out rows: on the logits, or on the scales of the posterior."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical

from bayesdiv.calibration.conformal import Saved
from bayesdiv.draws import Inputs, Weights, draw_weights
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.model.posteriors import Mixture, Posterior
from bayesdiv.prediction import predict_at
from bayesdiv.predictive import Predictive


@dataclass(frozen=True)
class Temperature(Saved):
    """One number that logits are divided by, of every draw alike: above 1 it makes less sure.

        p(y = c | x) = 1/S Σ_s softmax(f_s(x) / temperature)_c

    Examples:
        >>> sure = Predictive(Bernoulli(logits=torch.full((1, 4), 8.0)))
        >>> temperature = Temperature.fit(sure, torch.tensor([1, 1, 1, 0]))
        >>> temperature(sure).probabilities[0]
        tensor([0.2500, 0.7500])
    """

    value: float

    @classmethod
    def fit(cls, predictive: Predictive, y: Tensor) -> Self:
        """The temperature of least negative log-likelihood on held-out rows, from 0.01 to 100."""
        y = predictive.checked(y)
        return cls(_least(y, lambda value: _nll(cls(value)(predictive), y), 1e2, 1e-5))

    def __call__(self, predictive: Predictive) -> Predictive:
        conditional = predictive.conditional
        if not isinstance(conditional, Categorical | Bernoulli):
            raise ValueError("a temperature needs targets that are classes, got numbers")
        logits = conditional.logits / self.value
        return Predictive(type(conditional)(logits=logits, validate_args=False))


@dataclass(frozen=True)
class Spread(Saved):
    """One factor on all scales of the posterior: the Bayesian counterpart of a temperature.

        w = mean + factor · (w_drawn - mean)

    It works on draws, and so for any posterior and any likelihood; 0 is the network at its mean.

    Examples:
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        >>> halved = Spread(0.5)(net, bd.draw_weights(net, 10))
        >>> bd.predict_at(net, bd.Gaussian(), torch.zeros(5, 3), halved).samples
        10
    """

    factor: float

    @classmethod
    def fit(
        cls,
        model: nn.Module,
        likelihood: nn.Module,
        x: Inputs,
        y: Tensor,
        *,
        samples: int = 50,
        batch_size: int | None = None,
    ) -> Self:
        """The factor of least negative log-likelihood on held-out rows, from 0.01 to 10."""
        with torch.no_grad():
            weights = draw_weights(model, samples)
        if not weights:
            raise ValueError("a spread needs a model with random weights, got none")

        def loss(factor: float) -> float:
            spread = cls(factor)(model, weights)
            return _nll(predict_at(model, likelihood, x, spread, batch_size=batch_size), y)

        return cls(_least(y, loss, 10.0, 1e-2))

    @torch.no_grad()
    def __call__(self, model: nn.Module, weights: Weights) -> Weights:
        """The same draws, nearer to the mean or farther from it: for `predict_at`.

        Give all that one call of `draw_weights` returned; of an ensemble, whose members take turns
        in it, a multiple of their number.
        """
        pairs = zip(bayesian_modules(model), weights, strict=True)
        return tuple(
            torch.lerp(_centre(module.posterior, drawn), drawn, self.factor)
            for module, drawn in pairs
        )


def _centre(posterior: nn.Module, drawn: Tensor) -> Tensor:
    """The mean that each draw was made around."""
    if not isinstance(posterior, Mixture):
        return cast(Posterior, posterior).mean.to(drawn)
    rounds, left = divmod(len(drawn), posterior.members)
    if left:
        raise ValueError(
            f"draws must be a multiple of the {posterior.members} members, got {len(drawn)}"
        )
    means = posterior.each.mean.movedim(-2, 0).to(drawn)  # (members, …, weights)
    return means.repeat(rounds, *(1,) * (means.dim() - 1))


def _nll(predictive: Predictive, y: Tensor) -> float:
    """The loss; one that is not finite counts as the worst of all."""
    found = -predictive.log_prob(y).double().mean().item()
    return found if math.isfinite(found) else math.inf


def _least(y: Tensor, loss: Callable[[float], float], high: float, precision: float) -> float:
    """Where a function of a positive number is least: the best of a grid, then of finer ones."""
    if y.numel() == 0:
        raise ValueError("there must be at least one held-out row to choose a number on, got 0")
    left, right = math.log(1e-2), math.log(high)
    while right - left > precision:
        grid = torch.linspace(left, right, 9, dtype=torch.float64).tolist()
        losses = [loss(math.exp(point)) for point in grid]
        best = losses.index(min(losses))
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, 8)]
    return math.exp((left + right) / 2)
