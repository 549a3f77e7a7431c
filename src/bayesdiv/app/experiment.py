"""A model with its objective for some data: built, and evaluated."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.app.nets.away import Away
from bayesdiv.app.nets.conv import Conv
from bayesdiv.app.nets.mlp import MLP
from bayesdiv.app.recipe import TABLES
from bayesdiv.app.task import Task
from bayesdiv.calibration import Levels, Saved, Spread, Temperature
from bayesdiv.compute.streams import drawing, seeded
from bayesdiv.divergence import Divergence
from bayesdiv.draws import Inputs, Weights, draw_weights
from bayesdiv.likelihoods.base import Likelihood
from bayesdiv.model.bayesian import Bayesian, bayesian_modules
from bayesdiv.model.bayesianize import bayesianize
from bayesdiv.model.posteriors.ensemble import Ensemble
from bayesdiv.model.posteriors.mean_field import MeanField
from bayesdiv.model.priors import FanIn
from bayesdiv.objective.objective import Objective
from bayesdiv.prediction import predict, predict_at
from bayesdiv.predictive import Predictive

Recipe = MLP | Conv
RECIPES: dict[str, type[Recipe]] = {"MLP": MLP, "Conv": Conv}
IMAGE_EPOCHS = 100  # where none are given
WATCH_SAMPLES = 8  # weight draws for the validation after each epoch, which only picks the best


@dataclass(frozen=True)
class Training:
    """How to train, the same for every divergence.

    What is None is settled for the data by `settled`: tables are learned as `bayesdiv.app.recipe`
    says, like those of the estimators.

    Args:
        epochs: passes over the training data (default: until tables converge; 100 for images).
        learning_rate: learning rate of Adam; constant for half of the epochs, then falling to 0.
        batch_size: examples per step.
        samples: weight draws per step and member (default: 4 for tables, 1 for images).
        members: networks in the ensemble (default: 4 for tables, 1 for images).
        strength: λ, how much the divergence counts.
        start: initial posterior scale as a fraction of the prior's (default: by divergence).
        prior_gain: the prior scale of each layer is this over √fan-in.
        hidden: units of each hidden layer, for tables.
        test_samples: weight draws for predictions.
        balance: give rare classes more weight in the loss.
        seed: seed of weights, order of rows and noise.
    """

    epochs: int | None = None
    learning_rate: float = TABLES.learning_rate
    batch_size: int = 64
    samples: int | None = None
    members: int | None = None
    strength: float = TABLES.strength
    start: float | None = None
    prior_gain: float = 1.0
    hidden: tuple[int, ...] = TABLES.hidden
    test_samples: int = 100
    balance: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for name in ("epochs", "batch_size", "samples", "members", "test_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed must lie between 0 and 2147483647, got {self.seed}")
        for name in ("learning_rate", "start", "prior_gain"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive, got {value}")

    @property
    def length(self) -> int:
        """The epochs, once they are settled."""
        assert self.epochs is not None
        return self.epochs


def settled(training: Training, rows: int, shape: tuple[int, ...]) -> Training:
    """The same with what is None chosen for so many rows of this shape.

    Examples:
        >>> settled(Training(), rows=500, shape=(13,)).epochs
        519
    """
    table = len(shape) < 3
    most = TABLES.updates(rows, math.prod(shape))[1]
    epochs = math.ceil(most / math.ceil(rows / training.batch_size)) if table else IMAGE_EPOCHS
    return replace(
        training,
        epochs=training.epochs or epochs,
        samples=training.samples or (TABLES.samples if table else 1),
        members=training.members or (TABLES.members if table else 1),
    )


@dataclass
class Experiment:
    """A model with its objective, made for some data by `build`."""

    model: nn.Module
    objective: Objective
    recipe: Recipe
    training: Training
    divergence: Divergence | None  # None for a deterministic network
    history: list[dict[str, Any]] = field(default_factory=list)
    calibration: tuple[Saved, ...] = ()  # in the order in which it applies

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
        """Predictions with the run's number of draws, the same in every call, and calibrated."""
        samples = samples or self.training.test_samples
        seed, given, parts = self.training.seed, self.inputs(x), (self.model, self.likelihood)
        if any(isinstance(saved, Spread) for saved in self.calibration):
            found = predict_at(*parts, given, self.drawn(samples), batch_size=512)
        else:
            found = predict(*parts, given, samples, batch_size=512, seed=seed)
        return self.calibrated(found)

    def calibrated(self, found: Predictive) -> Predictive:
        """A prediction with what was fitted to predictions, and not to weights."""
        for saved in self.calibration:
            found = saved(found) if isinstance(saved, Temperature | Levels) else found
        return found

    def inputs(self, x: Tensor) -> Inputs:
        """What the network takes for rows."""
        return self.model.inputs(x) if isinstance(self.model, Away) else x

    def rounds(self, samples: int) -> int:
        """So many draws or a few more, every member as often as the others."""
        members = self.training.members or 1
        return -(-samples // members) * members

    @torch.no_grad()
    def drawn(self, samples: int) -> Weights:
        """The weights of a prediction with so many draws, calibrated."""
        spreads = [saved for saved in self.calibration if isinstance(saved, Spread)]
        with drawing(torch.Generator().manual_seed(self.training.seed)):
            drawn = draw_weights(self.model, self.rounds(samples) if spreads else samples)
        for spread in spreads:
            drawn = spread(self.model, drawn)
        return tuple(weights[:samples] for weights in drawn)

    @property
    def learned(self) -> list[Bayesian]:
        """The modules whose random weights are learned."""
        found = bayesian_modules(self.model)
        return [m for m in found if any(p.requires_grad for p in m.posterior.parameters())]

    @property
    def num_weights(self) -> int:
        """How many weights the network has, random or not."""
        random = sum(module.layout.size for module in self.learned)
        return random or sum(parameter.numel() for parameter in self.model.parameters())


def built(splits: Splits, divergence: Divergence | None, training: Training) -> Experiment:
    """A fresh experiment on these data; None is a deterministic network."""
    training = settled(training, splits.num_data, splits.shape)
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
    with seeded(training.seed):
        network: nn.Module = recipe.build()
        members = training.members or 1
        if divergence is not None:
            random = bayesianize(
                network,
                FanIn(training.prior_gain),
                posterior=MeanField if members == 1 else Ensemble(members),
                start=training.start or TABLES.start_for(divergence),
            )
            network = random
            if isinstance(recipe, MLP):  # tables: it knows how far a row lies from those trained on
                network = Away(random, recipe.inputs, num_data, **task.shifted)
    objective = Objective(
        task.likelihood(balanced_by),
        divergence,
        num_data=num_data,
        strength=training.strength,
        samples=(training.samples or 1) * members,
    )
    return Experiment(network, objective, recipe, training, divergence)


def evaluate(
    experiment: Experiment, splits: Splits, part: Part, samples: int | None = None
) -> dict[str, float]:
    """The metrics of a part of the data, in the units of the target."""
    return splits.task.measured(experiment.predict(part.x, samples), part.y)
