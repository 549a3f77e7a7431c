"""A population of settings: trials of one program, the best of which are averaged."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from optuna.distributions import FloatDistribution
from torch import Tensor
from torch.quasirandom import SobolEngine

from bayesdiv.app.data.splits import Splits
from bayesdiv.app.experiment import Experiment, Training, built, evaluate, settled
from bayesdiv.app.nets.tables import Away
from bayesdiv.app.recipe import halved, scheduled
from bayesdiv.app.settings import describe
from bayesdiv.app.training import Keeper
from bayesdiv.app.tuning.search import Ranges, Space, Tried
from bayesdiv.divergence import Divergence
from bayesdiv.model.bayesian import Bayesian, stacked
from bayesdiv.objective.objective import Objective
from bayesdiv.training.batches import Batches
from bayesdiv.training.fit import Diverged, Epoch, EpochLoss, fit

NEAR: Ranges = {
    "alpha": FloatDistribution(0.1, 0.6),
    "strength": FloatDistribution(0.1, 10.0, log=True),
    "learning_rate": FloatDistribution(2e-3, 2e-2, log=True),
    "prior_gain": FloatDistribution(0.5, 2.0, log=True),
}
"""Around the settings that tables begin with: what is averaged must be good."""
LAST = 8  # settings that are trained to the end
SLOTS = 16  # members of the mixture, dealt out to these
LOOKS = 20  # at the validation rows
Tell = Callable[[int, int, int], None]
Before = tuple["Paced", list[int]] | None  # an optimizer, and which of its trials are left


class _Trial:
    """One setting, trained as a trial of a stack."""

    def __init__(self, number: int, settings: dict[str, float], experiment: Experiment) -> None:
        self.number, self.settings, self.experiment = number, settings, experiment
        self.keeper = Keeper(experiment)
        self.state = "pruned"

    @property
    def network(self) -> Bayesian:
        assert isinstance(self.experiment.model, Away)
        return self.experiment.model.network

    @property
    def value(self) -> float:
        return self.keeper.best.kept.score

    def look(self, epoch: Epoch, place: int, splits: Splits) -> None:
        """Note an epoch, measured on the validation rows; the best weights are kept."""
        assert epoch.trials is not None
        found = evaluate(self.experiment, splits, splits.validation, self.experiment.watch)
        nll, held = (part[place].item() for part in epoch.trials)
        nll, strength = nll + splits.task.log_scale, self.experiment.training.strength or 0.0
        loss = EpochLoss(nll + strength * held / splits.num_data, nll, held)
        self.keeper.after(epoch._replace(loss=loss, strength=strength), found)

    def tried(self) -> Tried:
        value = self.value if math.isfinite(self.value) else None
        return Tried(self.number, self.settings, value, self.state, "")


class Grown(NamedTuple):
    """What a population ends as."""

    experiment: Experiment  # the mixture, with the settings of its best trial
    tried: list[Tried]
    best: Tried
    shares: dict[int, float]  # of the trials in the mixture


def population(
    splits: Splits,
    divergence: Divergence,
    training: Training,
    *,
    ranges: Ranges = NEAR,
    trials: int = 16,
    tell: Tell = lambda alive, epoch, epochs: None,
) -> Grown:
    """Train settings side by side, keep eight of them by validation NLL, average these.

    All settings are trials of one program. After a quarter of the epochs the best eight are kept.
    They are averaged in the end with shares by how likely the validation rows are, see `shares_of`.
    The test part is not looked at.

    The first of so many `trials` has the settings given; `ranges` without alpha take a fourth of
    the time under JSA. `tell` is called with the number of trials, the epoch and that of epochs.
    """
    whole = settled(training, splits.num_data, splits.shape)
    space, everyone = Space(divergence, whole, ranges), []
    for number, settings in enumerate(_settings(space, trials)):
        alone: Any = {"members": 1, "seed": (whole.seed + number) % 2**31}
        everyone.append(_Trial(number, settings, built(splits, *space.at(settings, **alone))))
    alive, before, done = everyone, None, 0
    for end in sorted({max(1, whole.epochs // 4), whole.epochs}):
        optimizer = _trained(alive, splits, space, range(done, end), before, tell)
        kept = sorted(range(len(alive)), key=lambda place: alive[place].value)[:LAST]
        alive, before, done = [alive[place] for place in kept], (optimizer, kept), end
    alive = [trial for trial in alive if math.isfinite(trial.value)]
    if not alive:
        raise Diverged("no trial has a finite validation NLL: narrow the ranges")
    for trial in alive:
        trial.state = "complete"
        trial.keeper.restore_best()
    x, y = splits.validation
    each = torch.stack([trial.experiment.predict(x).log_prob(y).double() for trial in alive])
    shares = shares_of(each)
    mixed = built(splits, *space.at(alive[0].settings, members=SLOTS))
    _mix(mixed, [alive[k] for k in _slots(shares)], splits)
    named = {t.number: share for t, share in zip(alive, shares.tolist(), strict=True)}
    return Grown(mixed, [trial.tried() for trial in everyone], alive[0].tried(), named)


def _settings(space: Space, count: int) -> list[dict[str, float]]:
    """The settings given, then points that fill the ranges evenly."""
    engine = SobolEngine(len(space.ranges), scramble=True, seed=space.training.seed)

    def between(r: FloatDistribution, at: float) -> float:
        return r.low * (r.high / r.low) ** at if r.log else r.low + at * (r.high - r.low)

    return [space.given] + [
        {name: between(r, at) for (name, r), at in zip(space.ranges.items(), point, strict=True)}
        for point in engine.draw(count).double().tolist()[: count - 1]
    ]


def _trained(
    alive: Sequence[_Trial], splits: Splits, space: Space, epochs: range, before: Before, tell: Tell
) -> "Paced":
    """Train a stack of the trials for some epochs, and look at each now and then."""
    model, count = stacked([trial.network for trial in alive]), len(alive)
    divergence, training = space.divergence, space.training
    if "alpha" in alive[0].settings:
        alphas = torch.tensor([[trial.settings["alpha"]] for trial in alive])
        divergence = replace(divergence, alpha=alphas)  # type: ignore[type-var]
    own = [trial.experiment.training for trial in alive]
    likelihood, strength = alive[0].experiment.likelihood, [each.strength for each in own]
    draws: Any = {"num_data": splits.num_data, "samples": training.samples}
    objective = Objective(likelihood, divergence, strength=torch.tensor(strength), **draws)
    parameters = [*model.parameters(), *objective.parameters()]
    rates = torch.tensor([each.learning_rate for each in own])
    optimizer = Paced(parameters, training.learning_rate or rates[0].item(), rates, before)
    x, y = (part.expand(count, *part.shape) for part in splits.train)
    batches = Batches(x, y, training.batch_size, [each.seed for each in own])
    rate, done = halved(training.epochs * len(batches)), epochs.start * len(batches)
    schedule = scheduled(optimizer, rate, done)
    how: dict[str, Any] = {"first": epochs.start, "schedule": schedule, "seed": training.seed}
    for epoch in fit(model, objective, batches, optimizer, epochs.stop, **how):
        tell(count, epoch.number, training.epochs)
        if epoch.number % max(1, training.epochs // LOOKS) == 0 or epoch.number == epochs.stop:
            for place, trial in enumerate(alive):
                for name, value in model.posterior.named_parameters():
                    trial.network.posterior.get_parameter(name).data.copy_(value.detach()[place])
                trial.experiment.likelihood.load_state_dict(objective.likelihood.state_dict())
                trial.look(epoch, place, splits)
    return optimizer


class Paced(torch.optim.Adam):
    """Adam with a learning rate per trial of a stack; what trials share has the usual one.

    The moments of the optimizer `before` are taken over, of its trials that are left.
    """

    def __init__(
        self, parameters: Sequence[Tensor], usual: float, rates: Tensor, before: Before = None
    ) -> None:
        super().__init__(parameters, lr=usual, fused=True)
        self.factors, self.every = (rates / usual)[:, None], list(parameters)
        self.stacks = [p for p in parameters if p.dim() == 2 and len(p) == len(rates)]
        if before is None:
            return
        for old, new in zip(before[0].every, self.every, strict=True):
            left = before[1] if any(old is stack for stack in before[0].stacks) else slice(None)
            moments = before[0].state[old].items()
            self.state[new] = {k: v[left] if v.dim() == 2 else v for k, v in moments}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take Adam's step, longer or shorter in each trial."""
        before = [stack.detach().clone() for stack in self.stacks]
        super().step(closure)
        for stack, old in zip(self.stacks, before, strict=True):
            stack.data.copy_(torch.lerp(old, stack.detach(), self.factors))


def shares_of(log_densities: Tensor) -> Tensor:
    """The shares of a mixture that some rows are likeliest under, by expectation maximisation.

    Half of each share is kept equal: few rows choose too sharply, and networks that differ are
    worth averaging. Densities are those of each row under each part, (parts, rows).

    Examples:
        >>> shares_of(torch.tensor([[0.0, -9.0, 0.0], [-9.0, 0.0, -9.0]])).round(decimals=2)
        tensor([0.5800, 0.4200])
    """
    shares = torch.full_like(log_densities[:, 0], 1 / len(log_densities))
    for _ in range(200):
        shares = (log_densities + shares.log()[:, None]).softmax(0).mean(1)
    return (shares + 1 / len(shares)) / 2


def _slots(shares: Tensor) -> list[int]:
    """Which part each member of the mixture is: as often as the shares say, rounded."""
    counts = (SLOTS * shares).floor().long()
    left = SLOTS - int(counts.sum())
    counts[(SLOTS * shares - counts).argsort(descending=True)[:left]] += 1
    return torch.arange(len(shares)).repeat_interleave(counts).tolist()


def _mix(mixed: Experiment, members: Sequence[_Trial], splits: Splits) -> None:
    """Make these trials the members of one experiment."""
    mixed.history[:] = members[0].experiment.history
    assert isinstance(mixed.model, Away)
    own = stacked([trial.network for trial in members]).posterior.state_dict()
    each = {f"each.{name}": value for name, value in own.items()}
    mixed.model.network.posterior.load_state_dict(each)
    mixed.likelihood.load_state_dict(members[0].experiment.likelihood.state_dict())
    mixed.model.settle(splits.train.x)


def write_run(
    grown: Grown, splits: Splits, source: Mapping[str, Any], folder: Path, seconds: float
) -> dict[str, float]:
    """Write the mixture as a run like any other; its test metrics."""
    mixed = grown.experiment
    keeper = Keeper(mixed, folder)
    keeper.begin(describe(mixed, splits, source))
    best = min(mixed.history, key=lambda line: line["validation_nll"])["epoch"]
    test: dict[str, float] = keeper.finish(splits, best_epoch=best, seconds=seconds)["test"]
    return test
