"""One experiment from data to a run on disk: build, train with checkpoints, evaluate, restore."""

import copy
import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import bayesdiv
from bayesdiv import divergence as divergences
from bayesdiv import metrics
from bayesdiv.app import runs
from bayesdiv.app.data import (
    Bias,
    Classification,
    DataError,
    Encoder,
    Part,
    Regression,
    Splits,
    load,
)
from bayesdiv.app.nets import MLP, Conv
from bayesdiv.divergence import KL, Divergence
from bayesdiv.likelihoods import Classes, Gaussian, Likelihood, balanced
from bayesdiv.model.bayesian import bayesian_modules, bayesianize
from bayesdiv.model.priors import FanIn
from bayesdiv.objective.objective import Objective
from bayesdiv.prediction import predict
from bayesdiv.predictive import Predictive
from bayesdiv.training.fit import Batches, Epoch, EpochLoss, fit

Recipe = MLP | Conv
RECIPES: dict[str, type[Recipe]] = {"MLP": MLP, "Conv": Conv}
SECONDS_BETWEEN_CHECKPOINTS = 5.0
WATCH_SAMPLES = 8  # weight draws for the validation after each epoch, which only picks the best


@dataclass(frozen=True)
class Training:
    """How a model is trained; the same for every divergence that is compared.

    Args:
        epochs: passes over the training data.
        learning_rate: of Adam.
        batch_size: examples a step.
        samples: weight draws a step for the likelihood.
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


def recipe_for(
    task: Regression | Classification, shape: tuple[int, ...], hidden: tuple[int, ...]
) -> Recipe:
    """The network that suits data of this shape: convolutions for images, else an MLP."""
    outputs = len(task.classes) if isinstance(task, Classification) else 1
    if len(shape) == 3:
        return Conv((shape[0], shape[1], shape[2]), outputs)
    return MLP(shape[0], outputs, hidden)


def build(
    recipe: Recipe,
    task: Regression | Classification,
    divergence: Divergence | None,
    training: Training,
    num_data: int,
    class_weights: Tensor | None = None,
) -> Experiment:
    """A fresh model and objective; the same seed gives every divergence the same start."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        network: nn.Module = recipe.build()
    likelihood = Classes(class_weights) if isinstance(task, Classification) else Gaussian()
    if divergence is not None:
        network = bayesianize(network, FanIn(training.prior_gain), start=training.start)
    objective = Objective(
        likelihood,
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
    x, y = part
    predictive = experiment.predict(x, samples)
    task = splits.task
    if isinstance(task, Regression):
        return {
            "rmse": metrics.rmse(predictive, y).item() * task.scale,
            "nll": metrics.nll(predictive, y).item() + task.log_scale,
            "coverage": metrics.coverage(predictive, y).item(),
        }
    found = {
        "accuracy": metrics.accuracy(predictive, y).item(),
        "nll": metrics.nll(predictive, y).item(),
        "ece": metrics.ece(predictive, y).item(),
    }
    if len(task.classes) == 2 and bool((y == 1).any()):
        found["false_negative_rate"] = metrics.false_negative_rate(predictive, y).item()
    return found


def train(
    splits: Splits,
    divergence: Divergence | None,
    training: Training,
    *,
    folder: Path | None = None,
    source: Mapping[str, Any] | None = None,
    tell: Callable[[Epoch], None] = lambda epoch: None,
) -> tuple[Experiment, dict[str, Any]]:
    """Train, keep the weights of the best validation NLL, evaluate on the test part.

    Args:
        splits: the data.
        divergence: what holds the weights near the prior; None for a deterministic network.
        training: how.
        folder: where the run is written; a run there that was stopped goes on. None writes nothing.
        source: how the data were loaded, kept with the run.
        tell: called after each epoch.
    """
    recipe = recipe_for(splits.task, splits.shape, training.hidden)
    weights = None
    if training.balance and isinstance(splits.task, Classification):
        weights = balanced(splits.train.y, len(splits.task.classes))
    experiment = build(recipe, splits.task, divergence, training, splits.num_data, weights)
    settings = describe(experiment, splits, source or {})
    return experiment, _trained(experiment, splits, settings, folder, tell)


def _trained(
    experiment: Experiment,
    splits: Splits,
    settings: dict[str, Any],
    folder: Path | None,
    tell: Callable[[Epoch], None],
) -> dict[str, Any]:
    training, optimizer = experiment.training, experiment.optimizer()
    keeper = _Keeper(experiment, optimizer, folder)
    done = keeper.begin(settings)
    batches = Batches(splits.train.x, splits.train.y, training.batch_size, training.seed)
    began = time.perf_counter()
    epochs = fit(
        experiment.model,
        experiment.objective,
        batches,
        optimizer,
        training.epochs,
        first=done,
        seed=training.seed,
    )
    shift = splits.task.log_scale if isinstance(splits.task, Regression) else 0.0
    try:
        for epoch in epochs:
            epoch = _in_units(epoch, shift)
            keeper.after(epoch, evaluate(experiment, splits, splits.validation, WATCH_SAMPLES))
            tell(epoch)
    except KeyboardInterrupt:
        keeper.back_to_the_last_epoch()
        keeper.checkpoint()
        raise
    keeper.restore_best()
    result = {
        "test": evaluate(experiment, splits, splits.test),
        "validation": evaluate(experiment, splits, splits.validation),
        "best_epoch": keeper.done.best_epoch,
        "seconds": keeper.seconds_before + time.perf_counter() - began,
    }
    keeper.finish(result)
    return result


def _in_units(epoch: Epoch, shift: float) -> Epoch:
    """An epoch whose likelihood is that of the target in its own units, as all that is shown."""
    total, nll, divergence = epoch.loss
    return epoch._replace(loss=EpochLoss(total + shift, nll + shift, divergence))


State = dict[str, dict[str, Tensor]]


class _Done(NamedTuple):
    """All that is known after an epoch.

    It is replaced as one value, so that Ctrl-C meets the old one whole or the new one whole.
    """

    epoch: int
    last: tuple[State, dict[str, Any]]  # parts and optimizer after that epoch
    best: State
    best_nll: float
    best_epoch: int


class _Keeper:
    """Remembers the best weights and history, and writes them if there is a folder."""

    def __init__(
        self, experiment: Experiment, optimizer: torch.optim.Optimizer, folder: Path | None
    ) -> None:
        self.experiment, self.optimizer, self.folder = experiment, optimizer, folder
        self.done = _Done(0, self._whole_state(), self._state(), float("inf"), 0)
        self.seconds_before, self.began = 0.0, time.perf_counter()
        self.saved_at = time.perf_counter()

    def begin(self, settings: dict[str, Any]) -> int:
        """Write the settings, or take up the run that is there; how many epochs are done."""
        if self.folder is None:
            return 0
        if (self.folder / runs.METRICS).exists():
            raise runs.RunError(f"{self.folder} holds a finished run: choose another folder")
        if not (self.folder / runs.SETTINGS).exists():
            runs.write_json(self.folder / runs.SETTINGS, settings)
            runs.start_history(self.folder, [])
            return 0
        there = runs.read_json(self.folder / runs.SETTINGS)
        _check_same(self.folder, there, settings)
        if there["data"] != settings["data"]:  # the same rows, in a file that has moved
            there["data"] = settings["data"]
            runs.write_json(self.folder / runs.SETTINGS, there)
        if not (self.folder / runs.CHECKPOINT).exists():
            runs.start_history(self.folder, [])
            return 0
        return self._resume(self.folder)

    def _resume(self, folder: Path) -> int:
        best = _Holder(self.done.best)
        parts = {**self.experiment.parts, "best": best}
        told = runs.load_state(folder / runs.CHECKPOINT, parts, self.optimizer)
        self.done = _Done(
            told["epoch"], self._whole_state(), best.state(), told["best_nll"], told["best_epoch"]
        )
        self.seconds_before = told["seconds"]
        self.experiment.history = runs.read_history(folder, self.done.epoch)
        runs.start_history(folder, self.experiment.history)
        return self.done.epoch

    def after(self, epoch: Epoch, validation: dict[str, float]) -> None:
        """Note an epoch."""
        line = {
            "epoch": epoch.number,
            **epoch.loss._asdict(),
            "strength": epoch.strength,
            "seconds": epoch.seconds,
            **{f"validation_{name}": value for name, value in validation.items()},
        }
        self.experiment.history.append(line)
        if self.folder is not None:
            runs.append_history(self.folder, line)
        self.done = self._with(epoch.number, validation["nll"])
        if time.perf_counter() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS:
            self.checkpoint()

    def _with(self, epoch: int, nll: float) -> _Done:
        """What is known after one more epoch."""
        # Without a folder nothing is gone back to, and a copy of all would be for nothing.
        last = self.done.last if self.folder is None else self._whole_state()
        if nll < self.done.best_nll:
            return _Done(epoch, last, self._state(), nll, epoch)
        return self.done._replace(epoch=epoch, last=last)

    def checkpoint(self) -> None:
        """Save all that a resumed run needs."""
        if self.folder is None:
            return
        runs.save_state(
            self.folder / runs.CHECKPOINT,
            {**self.experiment.parts, "best": _Holder(self.done.best)},
            self.optimizer,
            epoch=self.done.epoch,
            best_nll=self.done.best_nll,
            best_epoch=self.done.best_epoch,
            seconds=self.seconds_before + time.perf_counter() - self.began,
        )
        self.saved_at = time.perf_counter()

    def restore_best(self) -> None:
        """Put the best weights back into the experiment."""
        for name, part in self.experiment.parts.items():
            part.load_state_dict(self.done.best[name])

    def finish(self, result: dict[str, Any]) -> None:
        """Write weights and metrics; the metrics last, since they mark a run as finished."""
        if self.folder is not None:
            runs.save_state(self.folder / runs.WEIGHTS, self.experiment.parts)
            runs.write_json(self.folder / runs.METRICS, result)
            (self.folder / runs.CHECKPOINT).unlink(missing_ok=True)

    def back_to_the_last_epoch(self) -> None:
        """Undo the steps of an epoch that was broken off: only whole epochs can be repeated."""
        state, optimizer = self.done.last
        for name, part in self.experiment.parts.items():
            part.load_state_dict(state[name])
        self.optimizer.load_state_dict(optimizer)

    def _whole_state(self) -> tuple[State, dict[str, Any]]:
        return self._state(), copy.deepcopy(self.optimizer.state_dict())

    def _state(self) -> State:
        return {
            name: {key: tensor.detach().clone() for key, tensor in part.state_dict().items()}
            for name, part in self.experiment.parts.items()
        }


class _Holder(nn.Module):
    """State dicts as a module, so that they are saved like one; names are made safe."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.places = [(part, key) for part, tensors in state.items() for key in tensors]
        for index, (part, key) in enumerate(self.places):
            self.register_buffer(f"tensor{index}", state[part][key].clone())

    def state(self) -> State:
        found: State = {}
        for index, (part, key) in enumerate(self.places):
            found.setdefault(part, {})[key] = self.get_buffer(f"tensor{index}")
        return found


def _check_same(folder: Path, there: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to go on with other settings or rows; a file that moved with its rows is the same."""
    same_rows = there.get("fingerprint") == wanted["fingerprint"]
    one, two = _leaves(there), _leaves(wanted)
    for key in sorted(one.keys() | two.keys()):
        if key in ("version", "fingerprint") or (key == "data.data" and same_rows):
            continue
        if one.get(key) != two.get(key):
            raise runs.RunError(
                f"{folder} holds a run with other settings: {key} is {one.get(key)} there and "
                f"{two.get(key)} here; choose another folder"
            )
    if "fingerprint" in there and not same_rows:
        raise runs.RunError(
            f"{folder} holds a run that was begun with other rows of the data: bring these back, "
            "or choose another folder"
        )


def _leaves(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Settings by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        inner = _leaves(value, f"{above}{key}.") if isinstance(value, Mapping) else None
        found |= {f"{above}{key}": value} if inner is None else inner
    return found


def describe(experiment: Experiment, splits: Splits, source: Mapping[str, Any]) -> dict[str, Any]:
    """All that a run is restored from, as JSON."""
    task = splits.task
    settings = {
        "format": runs.FORMAT,
        "version": bayesdiv.__version__,
        "data": dict(source),
        "target": splits.target,
        "num_data": splits.num_data,
        "fingerprint": fingerprint(splits),
        "task": {"kind": type(task).__name__, **dataclasses.asdict(task)},
        "encoder": splits.encoder.to_json(),
        "network": {
            "kind": type(experiment.recipe).__name__,
            **dataclasses.asdict(experiment.recipe),
        },
        "divergence": described(experiment.divergence),
        "training": dataclasses.asdict(experiment.training),
    }
    return dict(_as_json(settings))


def fingerprint(splits: Splits) -> str:
    """SHA-256 of all rows of the three parts as they are encoded, and of the target's units.

    The same wherever the data come from: a file may move, and it may change under its name.

    Examples:
        >>> fingerprint(load("diabetes")) == fingerprint(load("diabetes", seed=1))
        False
    """
    # To nine digits: the last ones of a mean are not the same on every processor.
    units = [
        f"{value:.9g}" if isinstance(value, float) else repr(value)
        for value in dataclasses.astuple(splits.task)
    ]
    found = hashlib.sha256(" ".join([type(splits.task).__name__, *units]).encode())
    for part in (splits.train, splits.validation, splits.test):
        for rows in part:
            found.update(rows.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_json(entry) for key, entry in value.items()}
    return [_as_json(entry) for entry in value] if isinstance(value, list | tuple) else value


def described(divergence: Divergence | None) -> dict[str, Any] | None:
    """A divergence as JSON: its class and its fields."""
    if divergence is None:
        return None
    fields = {f.name: getattr(divergence, f.name) for f in dataclasses.fields(divergence)}  # type: ignore[arg-type]
    kind = type(divergence)
    ours = getattr(divergences, kind.__name__, None) is kind
    return {"kind": kind.__name__ if ours else f"{kind.__module__}.{kind.__qualname__}", **fields}


def restore(folder: Path, data: str | None = None) -> tuple[Experiment, dict[str, Any]]:
    """The trained experiment of a run, and its settings.

    Args:
        folder: of the run.
        data: where its data are now, which `reloaded` checks; None where they were.
    """
    folder = Path(folder)
    experiment, settings = outline(folder)
    if not (folder / runs.WEIGHTS).exists():
        raise runs.RunError(f"{folder} holds a run that is not finished: train it to its end first")
    runs.load_state(folder / runs.WEIGHTS, experiment.parts)
    if data is not None:
        settings["data"]["data"] = data
    return experiment, settings


def outline(folder: Path) -> tuple[Experiment, dict[str, Any]]:
    """A run without its weights, finished or not: its network as it began, history, settings."""
    folder = Path(folder)
    if not folder.is_dir():
        raise runs.RunError(f"there is no run {folder}")
    settings = runs.read_json(folder / runs.SETTINGS)
    runs.check_format(folder / runs.SETTINGS, settings)
    try:
        experiment = _from_settings(settings)
    except (KeyError, TypeError, ValueError) as error:
        raise runs.RunError(f"{folder / runs.SETTINGS} is damaged: {error}") from None
    experiment.history = runs.read_history(folder)
    return experiment, settings


def _from_settings(settings: Mapping[str, Any]) -> Experiment:
    network = dict(settings["network"])
    recipe = RECIPES[network.pop("kind")](**network)
    training = Training(**settings["training"])
    weights = None
    task = task_of(settings)
    if training.balance and isinstance(task, Classification):
        weights = torch.ones(len(task.classes))
    divergence = _divergence_of(settings["divergence"])
    return build(recipe, task, divergence, training, settings["num_data"], weights)


def task_of(settings: Mapping[str, Any]) -> Regression | Classification:
    """What the target of a run is."""
    task = dict(settings["task"])
    if task.pop("kind") == "Regression":
        return Regression(**task)
    return Classification(tuple(task["classes"]))


def reloaded(experiment: Experiment, settings: Mapping[str, Any], name: str) -> Splits:
    """The data of a run, loaded again as its settings say.

    Raises:
        DataError: they cannot be had any more, or are not those the run was trained with.
    """
    source = settings["data"]
    if "data" not in source:
        raise DataError(f"{name} does not say where its data came from")
    try:
        splits = load(
            source["data"],
            target=source["target"],
            seed=source["seed"],
            noise=source["noise"],
            bias=None if source["bias"] is None else Bias.parse(source["bias"]),
            task=asked_task(source["as_classes"]),
        )
    except OSError as error:
        raise DataError(f"{source['data']} cannot be read: {error.strerror or error}") from None
    except KeyError as error:
        raise DataError(f"{name} does not say the {error} of its data") from None
    same = describe(experiment, splits, source)
    # Runs of earlier versions have no fingerprint.
    keys = [key for key in ("encoder", "task", "num_data", "fingerprint") if key in settings]
    for key in keys:
        if not _alike(same[key], settings[key]):
            what = "some of its rows differ" if key == "fingerprint" else f"its {key} differs"
            raise DataError(
                f"{source['data']} has changed since {name} was trained: {what}; train again, or "
                "name a file with the rows of that time by --data"
            )
    return splits


def _alike(one: Any, two: Any) -> bool:
    """Equal but for the last digits of numbers, which another processor may round otherwise."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(_alike(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_alike, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-9)
    return bool(one == two)


def asked_task(as_classes: bool | None) -> type[Regression] | type[Classification] | None:
    """What `--as_classes` says about the target; None leaves it to the data."""
    if as_classes is None:
        return None
    return Classification if as_classes else Regression


def encoder_of(settings: Mapping[str, Any]) -> Encoder:
    """How a run encodes rows."""
    return Encoder.from_json(settings["encoder"])


def _divergence_of(told: Mapping[str, Any] | None) -> Divergence | None:
    if told is None:
        return None
    fields = dict(told)
    name = fields.pop("kind")
    kind = getattr(divergences, name, None)
    if isinstance(kind, type) and issubclass(kind, Divergence):
        return kind(**fields)
    if "." not in name:
        raise ValueError(f"divergence {name} is not one of this library")
    # A class of the user's own is not imported from a file's word; predictions do not need it.
    return KL()


def num_weights(experiment: Experiment) -> int:
    """How many weights the network has, random or not."""
    random = sum(module.layout.size for module in bayesian_modules(experiment.model))
    return random or sum(parameter.numel() for parameter in experiment.model.parameters())
