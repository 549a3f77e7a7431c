"""A model with its objective for some data: built, and evaluated."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from bayesdiv.app.data.images import CEILING
from bayesdiv.app.data.splits import DataError, Part, Splits
from bayesdiv.app.image_recipe import FineTuning, ImageRecipe
from bayesdiv.app.nets.images import Conv, Pictured, begin_with, estimate_statistics
from bayesdiv.app.nets.tables import MLP, Away
from bayesdiv.app.recipe import TABLES, halved, scheduled
from bayesdiv.app.task import Task
from bayesdiv.calibration import Levels, Saved, Spread, Temperature
from bayesdiv.compute.noise import drawing, seeded
from bayesdiv.divergence import Divergence
from bayesdiv.draws import Inputs, Looped, Weights, draw_weights
from bayesdiv.likelihoods import Likelihood
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.model.bayesianize import bayesianize
from bayesdiv.model.posteriors import Ensemble, MeanField, PosteriorFor
from bayesdiv.model.priors import FanIn
from bayesdiv.objective.objective import Objective
from bayesdiv.prediction import predict, predict_at
from bayesdiv.predictive import Predictive
from bayesdiv.training.batches import Batches
from bayesdiv.training.fit import Epoch, default_device, fit
from bayesdiv.training.steps import Recorded

Recipe = MLP | Conv | Pictured
RECIPES: dict[str, type[Recipe]] = {"MLP": MLP, "Conv": Conv, "Pictured": Pictured}
RESIDUAL_EPOCHS, RESIDUAL_UPDATES = 60, 2000  # both at least
PIXELS = 1 << 21  # of the pictures that a residual network is shown at once in a prediction


@dataclass(frozen=True)
class Training:
    """How to train, the same for every divergence.

    What is None is settled for the data by `settled`: tables are learned as `bayesdiv.app.recipe`
    says, like those of the estimators.

    Args:
        epochs: passes over the training data (default: until tables converge; 100 for images).
        learning_rate: learning rate of Adam (default: 0.005), constant for half of the epochs, then
            falling to 0.
        batch_size: examples per step (default: 64).
        samples: weight draws per step and member (default: 4 for tables, 1 for images).
        members: networks in the ensemble (default: 4 for tables, 1 for images).
        strength: λ, how much the divergence counts (default: 1).
        start: initial posterior scale as a fraction of the prior's (default: by divergence).
        prior_gain: the prior scale of each layer is this over √fan-in.
        hidden: units of each hidden layer, for tables.
        test_samples: weight draws for predictions (default: 100).
        seed: seed of weights, order of rows and noise.
        net: network for pictures: conv, resnet18, resnet20 or resnet20_frn (filter response norm).
            For a resnet the defaults are at least 60 epochs, SGD with learning rate 0.1, 32 to 256
            examples per step by the images, a strength by its prior, and 32 test samples.
        pretrained: weights that a resnet starts from, a .safetensors file or the folder of a run;
            the prior is centred on them.
    """

    epochs: int | None = None
    learning_rate: float | None = None
    batch_size: int | None = None
    samples: int | None = None
    members: int | None = None
    strength: float | None = None
    start: float | None = None
    prior_gain: float = 1.0
    hidden: tuple[int, ...] = TABLES.hidden
    test_samples: int | None = None
    seed: int = 0
    net: str = "conv"
    pretrained: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        given = {name: value for name, value in vars(self).items() if value is not None}
        for name in given.keys() & {"epochs", "batch_size", "samples", "members", "test_samples"}:
            if given[name] < 1:
                raise ValueError(f"{name} must be at least 1, got {given[name]}")
        for name in given.keys() & {"learning_rate", "start", "prior_gain"}:
            if not 0 < given[name] < math.inf:
                raise ValueError(f"{name} must be positive, got {given[name]}")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed must lie between 0 and 2147483647, got {self.seed}")


@dataclass(frozen=True)
class Settled(Training):
    """How to train some data; what is still None depends on the divergence."""

    epochs: int = 100  # of images
    batch_size: int = 64
    samples: int = 1
    members: int = 1
    test_samples: int = 100


def settled(training: Training, rows: int, shape: tuple[int, ...]) -> Settled:
    """The same with what is None chosen for so many rows of this shape."""
    residual = len(shape) == 3 and training.net != "conv"
    size = training.batch_size or (min(256, max(32, rows // 40)) if residual else 64)
    steps = math.ceil(rows / size)
    usual: dict[str, Any] = {"learning_rate": TABLES.learning_rate, "strength": TABLES.strength}
    if residual:  # the rest depends on the divergence, see `build`
        epochs = max(RESIDUAL_EPOCHS, math.ceil(RESIDUAL_UPDATES / steps))
        usual = {"epochs": epochs, "test_samples": 32}
    elif len(shape) < 3:
        usual["epochs"] = math.ceil(TABLES.updates(rows, math.prod(shape))[1] / steps)
        usual |= {"samples": TABLES.samples, "members": TABLES.members}
    usual["batch_size"] = size
    return Settled(**usual | {k: v for k, v in vars(training).items() if v is not None})


@dataclass
class Experiment:
    """A model with its objective, made for some data by `build`."""

    model: nn.Module
    objective: Objective
    recipe: Recipe
    training: Settled
    divergence: Divergence | None  # None for a deterministic network
    history: list[dict[str, Any]] = field(default_factory=list)
    calibration: tuple[Saved, ...] = ()  # in the order in which it applies
    images: ImageRecipe | None = None  # of residual networks

    @property
    def likelihood(self) -> Likelihood:
        """From outputs to a distribution of the targets."""
        assert isinstance(self.objective.likelihood, Likelihood)
        return self.objective.likelihood

    @property
    def parts(self) -> dict[str, nn.Module]:
        """What is saved."""
        return {"model": self.model, "objective": self.objective}

    def optimizer(self) -> torch.optim.Optimizer:
        """Adam over all that is learned, or what `ImageRecipe` takes."""
        if self.images is not None:
            for part in self.parts.values():
                part.to(self.device)
            return self.images.optimizer(self.model, self.objective, self.training.batch_size)
        parameters = [*self.model.parameters(), *self.objective.parameters()]
        assert self.training.learning_rate is not None
        return torch.optim.Adam(parameters, lr=self.training.learning_rate)

    def epochs(
        self, part: Part, optimizer: torch.optim.Optimizer, first: int = 0
    ) -> Iterator[Epoch]:
        """Train on a part of the data; recorded and in bfloat16 for residual networks on a GPU."""
        batches, length = self.batches(part), self.training.epochs
        updates = length * len(batches)
        rate = halved(updates) if self.images is None else self.images.schedule(updates)
        how: Any = {"step": Recorded(), "autocast": torch.bfloat16} if self._in_bfloat16 else {}
        how |= {"schedule": scheduled(optimizer, rate, first * len(batches)), "first": first}
        how |= {"seed": self.training.seed}
        return fit(self.model, self.objective, batches, optimizer, length, **how)

    def batches(self, part: Part) -> Batches:
        """The examples to learn from; pictures lie where they are used, unless they are many."""
        on_device = isinstance(self.recipe, Pictured) and part.x.nbytes <= CEILING
        x, y = (each.to(self.device) for each in part) if on_device else part
        return Batches(x, y, self.training.batch_size, self.training.seed)

    @property
    def device(self) -> torch.device:
        """Where pictures are learned: the GPU if there is one."""
        return default_device() if isinstance(self.recipe, Pictured) else torch.device("cpu")

    @property
    def watch(self) -> int:
        """Weight draws for the validation after each epoch, which only picks the best."""
        return 8 if self.images is None else 2

    @property
    def _in_bfloat16(self) -> bool:
        return self.images is not None and self.device.type == "cuda"

    def predict(self, x: Tensor, samples: int | None = None) -> Predictive:
        """Predictions with the run's number of draws, the same in every call, and calibrated."""
        samples = max(samples or self.training.test_samples, self.training.members)
        how: Any = {"batch_size": 512}
        if isinstance(self.recipe, Pictured):
            how = {"over": Looped(), "batch_size": max(1, PIXELS // x[0].numel())}
            x = x.to(self.device)
            for module in self.parts.values():
                module.to(self.device)
        parts = (self.model, self.likelihood, self.inputs(x))
        with torch.autocast("cuda", torch.bfloat16, enabled=self._in_bfloat16):
            if any(isinstance(saved, Spread) for saved in self.calibration):
                found = predict_at(*parts, self.drawn(samples), **how)
            else:
                found = predict(*parts, samples, seed=self.training.seed, **how)
        given = found.conditional
        if isinstance(given, Categorical) and given.logits.is_cuda:  # to where the labels are
            found = Predictive(Categorical(logits=given.logits.float().cpu()))
        return self.calibrated(found)

    def calibrated(self, found: Predictive) -> Predictive:
        """A prediction with what was fitted to predictions, and not to weights."""
        for saved in self.calibration:
            found = saved(found) if isinstance(saved, Temperature | Levels) else found
        return found

    def inputs(self, x: Tensor) -> Inputs:
        """What the network takes for rows."""
        return self.model.inputs(x) if isinstance(self.model, Away) else x

    @torch.no_grad()
    def drawn(self, samples: int) -> Weights:
        """The weights of a prediction with so many draws, calibrated."""
        spreads = [saved for saved in self.calibration if isinstance(saved, Spread)]
        turn = self.training.members if spreads else 1  # of all members, which a spread takes whole
        with drawing(torch.Generator().manual_seed(self.training.seed)):
            drawn = draw_weights(self.model, math.ceil(samples / turn) * turn)
        for spread in spreads:
            drawn = spread(self.model, drawn)
        return tuple(weights[:samples] for weights in drawn)

    def estimate_statistics(self, part: Part) -> None:
        """Estimate the statistics of batch norms again, for the current draws of the weights."""
        with torch.autocast("cuda", torch.bfloat16, enabled=self._in_bfloat16):
            some = (x for x, _ in itertools.islice(self.batches(part), 40))
            estimate_statistics(self.model, some)

    @property
    def num_weights(self) -> int:
        """How many weights the network learns, random or not."""
        random = bayesian_modules(self.model)
        learned = [m for m in random if any(p.requires_grad for p in m.posterior.parameters())]
        every = sum(parameter.numel() for parameter in self.model.parameters())
        return sum(module.layout.size for module in learned) or every


def built(
    splits: Splits,
    divergence: Divergence | None,
    training: Training,
    weights: Mapping[str, Tensor] | None = None,
) -> Experiment:
    """A fresh experiment on these data, begun with `weights`; None is a deterministic network."""
    whole = settled(training, splits.num_data, splits.shape)
    if (weights is None) != (training.pretrained is None):
        raise ValueError("a pretrained network must be given with its weights, got one of the two")
    shape, outputs = splits.shape, splits.task.outputs
    if splits.encoder is not None and training.net != "conv":
        told = f"{splits.name} is read as a table, which takes no --net, got {training.net}"
        raise DataError(f"{told}: leave it out")
    if len(shape) == 3 and training.hidden != TABLES.hidden:
        raise DataError(f"{splits.name} holds pictures, which take no --hidden: leave it out")
    residual = splits.encoder is None and training.net != "conv"
    if residual and (whole.members > 1 or training.prior_gain != 1):
        told = f"{training.net} is one network that has its own prior"
        raise DataError(f"{told}, which takes no --members and no --prior_gain: leave them out")
    if training.pretrained is not None and not residual:
        told = f"pretrained is for pictures and a resnet, got --net {training.net}"
        raise DataError(f"{told}: choose a resnet, or leave it out")
    if len(shape) != 3:
        recipe: Recipe = MLP(shape[0], outputs, training.hidden)
    elif splits.encoder is None:
        recipe = Pictured.of(training.net, splits.train.x, outputs)
    else:
        recipe = Conv((shape[0], shape[1], shape[2]), outputs)
    return build(recipe, splits.task, divergence, whole, splits.num_data, weights)


def build(
    recipe: Recipe,
    task: Task,
    divergence: Divergence | None,
    training: Settled,
    num_data: int,
    weights: Mapping[str, Tensor] | None = None,
) -> Experiment:
    """A fresh model and objective; the same seed gives every divergence the same start."""
    images = None
    if isinstance(recipe, Pictured) and recipe.residual:
        images = ImageRecipe() if training.pretrained is None else FineTuning()
        rate = training.learning_rate or images.lr
        start = training.start or images.start
        images = replace(images, lr=rate, start=start, divergence=divergence or images.divergence)
        if training.strength is not None:
            images = images.with_strength(training.strength, num_data)
        strength = images.strength(num_data)
        training = replace(training, learning_rate=rate, start=start, strength=strength)
    with seeded(training.seed):
        network: nn.Module = recipe.build()
        if weights is not None:
            begin_with(network, weights)
        if images is not None and divergence is not None:
            network = images.bayesian(network, num_data)
        elif divergence is not None:
            members, start = training.members, training.start or TABLES.start_for(divergence)
            kind: PosteriorFor = MeanField if members == 1 else Ensemble(members)
            random = bayesianize(network, FanIn(training.prior_gain), posterior=kind, start=start)
            network = random
            if isinstance(recipe, MLP):  # tables: it knows how far a row lies from those trained on
                network = Away(random, recipe.inputs, num_data, **task.shifted)
        if isinstance(recipe, Pictured):
            network = nn.Sequential(recipe.prepare(), network)
    draws: Any = {"num_data": num_data, "samples": training.samples * training.members}
    strength = 1.0 if training.strength is None else training.strength
    objective = Objective(task.likelihood(), divergence, strength=strength, **draws)
    return Experiment(network, objective, recipe, training, divergence, images=images)


def evaluate(
    experiment: Experiment, splits: Splits, part: Part, samples: int | None = None
) -> dict[str, float]:
    """The metrics of a part of the data, in the units of the target."""
    return splits.task.measured(experiment.predict(part.x, samples), part.y)
