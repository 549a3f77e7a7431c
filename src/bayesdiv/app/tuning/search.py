"""A search by Optuna: a study in a database, and the trials that this process adds to it."""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.distributions import FloatDistribution
from optuna.exceptions import StorageInternalError
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage
from optuna.trial import Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from bayesdiv.app import training as trainings
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.experiment import Settled, Training, settled
from bayesdiv.app.extra import quiet
from bayesdiv.app.runs import differences
from bayesdiv.app.settings import described
from bayesdiv.divergence import Divergence
from bayesdiv.training.fit import Diverged, Epoch

REPORTS = 20  # how often a trial is looked at, to break it off; each is a write to the database
RANDOM_TRIALS = 20  # before TPE has enough to go by; hyperopt's number
STOPPED = "stopped by the user"  # the reason of such a trial

Ranges = Mapping[str, FloatDistribution]
RANGES: Ranges = {
    "alpha": FloatDistribution(0.0, 1.0),
    "strength": FloatDistribution(1e-3, 1e2, log=True),
    "learning_rate": FloatDistribution(3e-4, 3e-2, log=True),
}
"""What is searched, and between which numbers; a setting without a range stays as it is."""


@dataclass(frozen=True)
class Search:
    """Where a search is kept and how long it runs."""

    storage: Path  # an SQLite file
    name: str = "search"  # of the study there
    trials: int = 30  # to finish in all, those of former calls included
    seed: int = 0  # the same seed tries the same settings


class Tried(NamedTuple):
    """One trial: `value` is the last one seen for a pruned trial, None where there is none."""

    number: int
    settings: dict[str, Any]
    value: float | None
    state: str  # running, complete, pruned, failed, or stopped by the user
    reason: str


Tell = Callable[[Sequence[Tried]], None]


@dataclass(frozen=True)
class Space:
    """Settings around those of a divergence and a training, between the ends of ranges."""

    divergence: Divergence
    training: Settled
    ranges: Ranges

    def __post_init__(self) -> None:
        has_alpha = hasattr(self.divergence, "alpha")
        found = {name: r for name, r in self.ranges.items() if has_alpha or name != "alpha"}
        if not found:
            raise ValueError(f"a range must be given for one setting at least, got {self.ranges}")
        object.__setattr__(self, "ranges", found)
        for name, end in [(name, end) for name, r in found.items() for end in (r.low, r.high)]:
            try:
                self.at({name: end})
            except ValueError as error:
                raise ValueError(f"{name}_range has a wrong end: {error}") from None

    def at(self, settings: Mapping[str, float], **others: Any) -> tuple[Divergence, Settled]:
        """The divergence and the training with some settings replaced."""
        rest, divergence = {**settings, **others}, self.divergence
        if "alpha" in rest:
            divergence = replace(divergence, alpha=rest.pop("alpha"))  # type: ignore[type-var]
        return divergence, replace(self.training, **rest)

    @property
    def given(self) -> dict[str, float]:
        """What the settings have before the search, or the nearest in their ranges."""
        own = {"alpha": self.divergence}
        found = {name: getattr(own.get(name, self.training), name) for name in self.ranges}
        return {name: min(max(found[name], r.low), r.high) for name, r in self.ranges.items()}


def tune(
    objective: Callable[[Trial], float],
    search: Search,
    *,
    start: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    tell: Tell = lambda tried: None,
) -> Tried:
    """The best finished trial of a search by TPE (Bergstra et al. 2011), which the paper uses too.

    A trial that raises `Diverged`, or whose value is not finite, counts as pruned, and to TPE as
    one of the worst. A study that is `about` something else is not continued.
    """
    with opened(search) as study:
        _check_same(study, search, about or {})
        if start is not None and not study.get_trials(deepcopy=False):
            study.enqueue_trial(dict(start))
        for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            # What a killed process was at counts for nothing and waits to be tried again.
            study.enqueue_trial(left.system_attrs.get("fixed_params", left.params))
            study.tell(left.number, state=TrialState.FAIL)

        def run(trial: Trial) -> float:
            # The same in a search that resumes after a stop.
            own = (search.seed * 1_000_003 + trial.number) % 2**32
            study.sampler = TPESampler(n_startup_trials=RANDOM_TRIALS, seed=own)
            tell(tried_in(study))
            return _value(objective, study, trial)

        ended = (TrialState.COMPLETE, TrialState.PRUNED)
        while len(study.get_trials(deepcopy=False, states=ended)) < search.trials:
            study.optimize(run, n_trials=1)
            tell(tried_in(study))
        finished = [tried for tried in tried_in(study) if tried.state == "complete"]
    if not finished:
        told = f"no trial of {search.name!r} came to its end"
        raise ValueError(f"{told}: narrow the ranges or allow more")
    return min(finished, key=lambda tried: tried.value or 0.0)


def _value(objective: Callable[[Trial], float], study: optuna.Study, trial: Trial) -> float:
    """The value of a trial; what went wrong is kept with it."""
    try:
        value = objective(trial)
        if not math.isfinite(value):
            raise Diverged(f"the value is {value}")
        return value
    except optuna.TrialPruned:
        raise
    except Diverged as error:
        trial.set_user_attr("reason", str(error))
        raise optuna.TrialPruned from None
    except Exception as error:
        trial.set_user_attr("reason", f"{type(error).__name__}: {error}")
        raise
    except KeyboardInterrupt:  # the same settings wait for when the search goes on
        trial.set_user_attr("reason", STOPPED)
        study.enqueue_trial(trial.params)
        raise


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
    ranges: Ranges = RANGES,
    about: Mapping[str, Any] | None = None,
    tell: Tell = lambda tried: None,
) -> Tuned:
    """Search alpha, strength and learning rate of an experiment by its validation NLL.

    The first trial has the settings given, moved into their ranges; all that has no range stays as
    it is. The test part is not looked at. `about` says what else the search depends on,
    such as how the data were loaded; `tell` is called with all trials after each change.
    """
    space = Space(divergence, settled(training, splits.num_data, splits.shape), ranges)
    depends = {
        **(about or {}),
        "divergence": described(divergence),
        "training": {**asdict(space.training), "hidden": list(space.training.hidden)},
        "space": {name: [r.low, r.high] for name, r in space.ranges.items()},
        "num_data": splits.num_data,
    }
    blind = replace(splits, test=splits.validation)

    def objective(trial: Trial) -> float:
        own = {k: trial.suggest_float(k, r.low, r.high, log=r.log) for k, r in space.ranges.items()}
        epochs = space.training.epochs

        def look(epoch: Epoch, validation: Mapping[str, float]) -> None:
            # The first quarter would only show how fast a learning rate is.
            due = epoch.number % max(1, epochs // REPORTS) == 0
            if due and epochs // 4 < epoch.number < epochs:
                trial.report(validation["nll"], epoch.number)
                if trial.should_prune():
                    raise optuna.TrialPruned

        _, result = trainings.train(blind, *space.at(own), tell=look)
        return float(result["validation"]["nll"])

    found = tune(objective, search, start=space.given, about=depends, tell=tell)
    return Tuned(*space.at(found.settings), found)


def trials(search: Search) -> list[Tried]:
    """All trials of a search, also while it runs elsewhere."""
    with opened(search) as study:
        return tried_in(study)


def tried_in(study: optuna.Study) -> list[Tried]:
    """All trials of a study that have begun."""
    found = []
    begun = [state for state in TrialState if state != TrialState.WAITING]
    for trial in study.get_trials(deepcopy=False, states=begun):
        reason, state = trial.user_attrs.get("reason", ""), trial.state.name.lower()
        if trial.state == TrialState.FAIL:
            # Whatever fails has a reason, but for a stop before or after the objective.
            state = "stopped" if reason in ("", STOPPED) else "failed"
        found.append(Tried(trial.number, dict(trial.params), trial.value, state, reason))
    return found


@contextlib.contextmanager
def opened(search: Search) -> Iterator[optuna.Study]:
    """The study of a search in its database, both made where there are none."""
    url, named = _url(search), dict[str, Any](study_name=search.name, load_if_exists=True)
    with quiet(logging.getLogger("optuna"), logging.CRITICAL), contextlib.ExitStack() as after:
        try:
            storage = RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 60}})
            after.callback(storage.engine.dispose)
            yield optuna.create_study(storage=storage, pruner=MedianPruner(), **named)
        except Exception as error:
            cause: BaseException | None = error
            told = SQLAlchemyError | StorageInternalError | KeyboardInterrupt
            while cause and not isinstance(cause, told):
                cause = cause.__context__  # Optuna stumbles where it cannot look a trial up
            if cause is None:
                raise
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
            said = str(getattr(cause, "orig", None) or cause.__cause__ or cause).splitlines()[0]
            remedy = "the same call resumes once it is back"
            raise RuntimeError(f"the database {url} stopped answering: {said}; {remedy}") from None


def _url(search: Search) -> str:
    path = Path(search.storage).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path}"


def _check_same(study: optuna.Study, search: Search, about: Mapping[str, Any]) -> None:
    """Refuse to continue with a study that is about something else; note it in a new one."""
    if found := differences(study.user_attrs.get("about", about), about):
        differs = ", ".join(f"{name.rpartition('.')[2]} is {how}" for name, how in found.items())
        told = f"the search {search.name!r} in {_url(search)} was started with other settings"
        raise ValueError(f"{told}: {differs}; choose another place or name for it")
    study.set_user_attr("about", dict(about))
