"""A model with its objective for some data: built, and evaluated."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.app.nets.conv import Conv
from bayesdiv.app.nets.mlp import MLP
from bayesdiv.app.task import Task
from bayesdiv.divergence import Divergence
from bayesdiv.likelihoods.base import Likelihood
from bayesdiv.model.bayesian import bayesian_modules, bayesianize
from bayesdiv.model.priors import FanIn
from bayesdiv.objective.objective import Objective
from bayesdiv.prediction import predict
from bayesdiv.predictive import Predictive

Recipe = MLP | Conv
RECIPES: dict[str, type[Recipe]] = {"MLP": MLP, "Conv": Conv}
WATCH_SAMPLES = 8  # weight draws for the validation after each epoch, which only picks the best


@dataclass(frozen=True)
class Training:
    """How a model is trained; the same for every divergence that is compared.

    Args:
        epochs: passes over the training data.
        learning_rate: of Adam.
        batch_size: examples per step.
        samples: weight draws per step for the likelihood.
        strength: λ in front of the divergence.
        start: posterior scale to begin with, as a fraction of the prior's.
        prior_gain: the prior's scale is this over √fan-in, layer by layer.
        hidden: units of each hidden layer, for tables.
        test_samples: weight draws for predictions.
        balance: whether rare classes count for more in the loss.
        seed: of weights, order and noise.
    """

    epochs: int = 100
    learning_rate: float = 3e-3
    batch_size: int = 32
    samples: int = 1
    strength: float = 1.0
    start: float = 0.1
    prior_gain: float = 2**0.5
    hidden: tuple[int, ...] = (50,)
    test_samples: int = 100
    balance: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for name in ("epochs", "batch_size", "samples", "test_samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed must lie between 0 and 2147483647, got {self.seed}")
        for name in ("learning_rate", "start", "prior_gain"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


@dataclass
class Experiment:
    """A model with its objective, made for some data by `build`."""

    model: nn.Module
    objective: Objective
    recipe: Recipe
    training: Training
    divergence: Divergence | None  # None for a deterministic network
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def likelihood(self) -> Likelihood:
        """From outputs to a distribution of the targets."""
        assert isinstance(self.objective.likelihood, Likelihood)
        return self.objective.likelihood

    @property
    def parts(self) -> dict[str, nn.Module]:
        """What is saved."""
        return {"model": self.model, "objective": self.objective}

    def optimizer(self) -> torch.optim.Adam:
        """Adam over all that is learned."""
        parameters = [*self.model.parameters(), *self.objective.parameters()]
        return torch.optim.Adam(parameters, lr=self.training.learning_rate)

    def predict(self, x: Tensor, samples: int | None = None) -> Predictive:
        """Predictions with the run's number of draws, the same in every call."""
        samples = samples or self.training.test_samples
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.training.seed)
            return predict(self.model, self.likelihood, x, samples, batch_size=512)

    @property
    def num_weights(self) -> int:
        """How many weights the network has, random or not."""
        random = sum(module.layout.size for module in bayesian_modules(self.model))
        return random or sum(parameter.numel() for parameter in self.model.parameters())


def built(splits: Splits, divergence: Divergence | None, training: Training) -> Experiment:
    """A fresh experiment on these data; None is a deterministic network."""
    recipe = recipe_for(splits.task, splits.shape, training.hidden)
    balanced_by = splits.train.y if training.balance else None
    return build(recipe, splits.task, divergence, training, splits.num_data, balanced_by)


def recipe_for(task: Task, shape: tuple[int, ...], hidden: tuple[int, ...]) -> Recipe:
    """The network that suits data of this shape: convolutions for images, else an MLP."""
    if len(shape) == 3:
        return Conv((shape[0], shape[1], shape[2]), task.outputs)
    return MLP(shape[0], task.outputs, hidden)


def build(
    recipe: Recipe,
    task: Task,
    divergence: Divergence | None,
    training: Training,
    num_data: int,
    balanced_by: Tensor | None = None,
) -> Experiment:
    """A fresh model and objective; the same seed gives every divergence the same start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        network: nn.Module = recipe.build()
    if divergence is not None:
        network = bayesianize(network, FanIn(training.prior_gain), start=training.start)
    objective = Objective(
        task.likelihood(balanced_by),
        divergence,
        num_data=num_data,
        strength=training.strength,
        samples=training.samples,
    )
    return Experiment(network, objective, recipe, training, divergence)


def evaluate(
    experiment: Experiment, splits: Splits, part: Part, samples: int | None = None
) -> dict[str, float]:
    """The metrics of a part of the data, in the units of the target."""
    return splits.task.measured(experiment.predict(part.x, samples), part.y)
