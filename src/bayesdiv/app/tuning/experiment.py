"""The search over the settings of an experiment: alpha, strength, learning rate."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

import optuna
import torch
from optuna.distributions import FloatDistribution
from optuna.trial import Trial

from bayesdiv.app import task as tasks
from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.app.experiment import Settled, Training, built, evaluate, settled
from bayesdiv.app.settings import described
from bayesdiv.app.tuning.search import Search, Tell, Tried, tune
from bayesdiv.divergence import Divergence
from bayesdiv.metrics import TABLE as METRICS
from bayesdiv.training.best import Best

REPORTS = 20  # how often a trial is looked at, to break it off; each is a write to the database
Ranges = Mapping[str, FloatDistribution]
RANGES: Ranges = {
    "alpha": FloatDistribution(0.0, 1.0),
    "strength": FloatDistribution(1e-3, 1e2, log=True),
    "learning_rate": FloatDistribution(3e-4, 3e-2, log=True),
}
"""What is searched, and between which numbers; a setting without a range stays as it is."""


@dataclass(frozen=True)
class Space:
    """Settings around those of a divergence and a training, between the ends of ranges."""

    divergence: Divergence
    training: Settled
    ranges: Ranges

    def __post_init__(self) -> None:
        has_alpha = "alpha" in {f.name for f in fields(self.divergence)}  # type: ignore[arg-type]
        found = {name: r for name, r in self.ranges.items() if has_alpha or name != "alpha"}
        if not found:
            raise ValueError(f"a range must be given for one setting at least, got {self.ranges}")
        object.__setattr__(self, "ranges", found)
        for end in ("low", "high"):  # none that the divergence or the training refuses
            self.at({name: getattr(r, end) for name, r in found.items()})

    def at(self, settings: Mapping[str, float], **others: Any) -> tuple[Divergence, Settled]:
        """The divergence and the training with some settings replaced."""
        rest, divergence = {**settings, **others}, self.divergence
        if "alpha" in rest:
            divergence = replace(divergence, alpha=rest.pop("alpha"))  # type: ignore[type-var]
        return divergence, replace(self.training, **rest)

    @property
    def given(self) -> dict[str, float]:
        """The values that the settings have before the search."""
        own = {"alpha": self.divergence}
        return {name: getattr(own.get(name, self.training), name) for name in self.ranges}

    @property
    def outside(self) -> dict[str, float]:
        """The settings given that lie outside their ranges: a search does not start with these."""
        ranges = self.ranges
        return {k: v for k, v in self.given.items() if not ranges[k].low <= v <= ranges[k].high}


class Tuned(NamedTuple):
    """What `tune_experiment` returns: hand the first two to `training.train`."""

    divergence: Divergence
    training: Training
    best: Tried


def tune_experiment(
    splits: Splits,
    divergence: Divergence,
    training: Training,
    search: Search,
    *,
    aim: str = "nll",
    ranges: Ranges = RANGES,
    folds: int = 3,
    about: Mapping[str, Any] | None = None,
    tell: Tell = lambda tried: None,
) -> Tuned:
    """Search alpha, strength and learning rate of an experiment on its validation data.

    The test part is never looked at. The settings given are the first trial, unless one lies
    outside its range.

    Args:
        splits: the data.
        divergence: with the alpha to start with.
        training: with the strength and learning rate to start with; the rest stays as it is.
        search: where and how long.
        aim: the metric that decides which trial is best.
        ranges: what is searched, and between which numbers.
        folds: a value is the mean over this many trainings, see `dealt`.
        about: what else the search depends on, such as how the data were loaded.
        tell: called with all trials after each change.
    """
    space = Space(divergence, settled(training, splits.num_data, splits.shape), ranges)
    whole, keys = space.training, splits.task.searched
    if aim not in keys:
        kind = tasks.name_of(splits.task)
        raise ValueError(f"the aim of a {kind} must be one of {', '.join(keys)}, got {aim}")
    depends = {
        **(about or {}),
        "divergence": described(divergence),
        "training": {**asdict(whole), "hidden": list(whole.hidden)},
        "space": {name: [r.low, r.high] for name, r in space.ranges.items()},
        "aim": aim,
        "folds": folds,
        "num_data": splits.num_data,
    }
    parts = dealt(splits, folds, whole.seed)

    def objective(trial: Trial) -> float:
        own = {k: trial.suggest_float(k, r.low, r.high, log=r.log) for k, r in space.ranges.items()}
        # All folds are trained side by side, epoch by epoch.
        courses = zip(*(_course(part, *space.at(own), aim) for part in parts), strict=True)
        every, value = max(1, whole.epochs // REPORTS), math.nan
        for epoch, values in enumerate(courses, 1):
            value = sum(values) / len(values)
            # The first quarter would only show how fast a learning rate is.
            if whole.epochs // 4 < epoch < whole.epochs and epoch % every == 0:
                trial.report(value, epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned
        return value

    search = replace(search, best=max if METRICS[aim].loss(1.0) < METRICS[aim].loss(0.0) else min)
    begin = None if space.outside else space.given
    found = tune(objective, search, start=begin, about=depends, tell=tell)
    asked = replace(training, **{k: v for k, v in found.settings.items() if k != "alpha"})
    return Tuned(space.at(found.settings)[0], asked, found)


def dealt(splits: Splits, folds: int, seed: int = 0) -> list[Splits]:
    """Training and validation rows dealt again, so that each is validated on in one of the folds.

    One small validation part mostly measures its own luck. Rows are sorted by their target before
    they are dealt: each fold gets its share of every class, or of high and low values.
    """
    x, y = (torch.cat(pair) for pair in zip(splits.train, splits.validation, strict=True))
    if not 1 <= folds <= len(y) // 2:
        raise ValueError(f"folds must lie between 1 and half of the {len(y)} rows, got {folds}")
    if folds == 1:
        return [splits]
    place = _places(y, folds, seed)
    return [
        replace(
            splits,
            train=Part(x[place != fold], y[place != fold]),
            validation=Part(x[place == fold], y[place == fold]),
        )
        for fold in range(folds)
    ]


def _places(y: torch.Tensor, folds: int, seed: int) -> torch.Tensor:
    """The fold of each row."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    order = order[y[order].argsort(stable=True)]
    place = torch.empty_like(order)
    place[order] = torch.arange(len(y)) % folds
    return place


def _course(
    splits: Splits, divergence: Divergence, training: Training, key: str
) -> Iterator[float]:
    """A validation metric after each epoch, of the weights that training would keep so far.

    Training keeps the weights of its best epoch. A metric of the rows that chose the epoch would
    flatter settings whose epochs differ by luck, so one half of the rows chooses and the other is
    measured, and the other way round. After the last epoch the metric is computed again, with as
    many draws as for the test.
    """
    experiment = built(splits, divergence, training)
    place = _places(splits.validation.y, 2, training.seed)
    halves = [Part(*(rows[place == half] for rows in splits.validation)) for half in (0, 1)]
    values = [math.nan, math.nan]
    kept = [Best(**experiment.parts), Best(**experiment.parts)]
    for epoch in experiment.epochs(splits.train, experiment.optimizer()):
        watch = experiment.watch
        found = [evaluate(experiment, splits, half, watch) for half in halves]
        for own, other in ((0, 1), (1, 0)):
            if kept[own].after(epoch.number, found[own]["nll"]):
                values[own] = found[other][key]
        if epoch.number < experiment.training.epochs:
            yield sum(values) / 2
    for own, other in ((0, 1), (1, 0)):
        kept[own].restore()
        values[own] = evaluate(experiment, splits, halves[other])[key]
    yield sum(values) / 2
