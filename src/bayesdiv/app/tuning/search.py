"""A search by Optuna: a study in a database, and the trials that this process adds to it."""

import contextlib
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import optuna
import sqlalchemy
from optuna.exceptions import OptunaError, StorageInternalError
from optuna.pruners import MedianPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage
from optuna.trial import Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from bayesdiv.app.extra import quiet
from bayesdiv.app.runs import differences
from bayesdiv.training.fit import Diverged

RANDOM_TRIALS = 20  # before TPE has enough to go by; hyperopt's number
STOPPED = "stopped by the user"  # the reason of such a trial
OPENINGS = 5  # a new database can be met while another process is still making its tables


class DatabaseGone(RuntimeError):
    """The database of a search stopped answering while the search ran."""


@dataclass(frozen=True)
class Search:
    """Where a search is kept, how long it runs and which values are best.

    Args:
        storage: an SQLite file, or the URL of any database that Optuna takes.
        name: of the study there.
        trials: how many to finish in all, those of former calls included.
        seed: one process with the same seed tries the same settings.
        best: `min` or `max`.

    Examples:
        >>> Search("study.db", trials=0)
        Traceback (most recent call last):
        ValueError: trials must be at least 1, got 0
    """

    storage: str | Path
    name: str = "search"
    trials: int = 30
    seed: int = 0
    best: Callable[..., Any] = min

    def __post_init__(self) -> None:
        for name, low in {"trials": 1, "seed": 0}.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if self.best not in (min, max):
            raise ValueError(f"best must be min or max, got {self.best!r}")


class Tried(NamedTuple):
    """One trial: `value` is the last one seen for a pruned trial, None where there is none."""

    number: int
    settings: dict[str, Any]
    value: float | None
    state: str  # waiting, running, complete, pruned, failed, or stopped by the user
    reason: str
    seconds: float | None


Tell = Callable[[Sequence[Tried]], None]


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
        _check_same(study, search, dict(about or {}))
        if start is not None and not study.get_trials(deepcopy=False):
            study.enqueue_trial(dict(start))

        def run(trial: Trial) -> float:
            # The same in a search that resumes after a stop, and another in every process.
            own = (search.seed * 1_000_003 + trial.number) % 2**32
            study.sampler = TPESampler(n_startup_trials=RANDOM_TRIALS, seed=own)
            tell(tried_in(study))
            return _value(objective, study, trial)

        # What a killed process was at is left running and counts for nothing.
        ended = (TrialState.COMPLETE, TrialState.PRUNED)
        while len(study.get_trials(deepcopy=False, states=ended)) < search.trials:
            study.optimize(run, n_trials=1)
            tell(tried_in(study))
        finished = [tried for tried in tried_in(study) if tried.state == "complete"]
    if not finished:
        raise ValueError(
            f"no trial of {search.name!r} came to its end: narrow the ranges or allow more"
        )
    best: Tried = search.best(finished, key=lambda tried: tried.value)
    return best


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
    except BaseException as stop:  # the same settings wait for when the search goes on
        trial.set_user_attr("reason", STOPPED)
        study.enqueue_trial(trial.params)
        if not isinstance(stop, KeyboardInterrupt):  # Optuna would leave the trial running
            study.tell(trial, state=TrialState.FAIL)
        raise


def trials(search: Search) -> list[Tried]:
    """All trials of a search, also while it runs elsewhere."""
    with opened(search) as study:
        return tried_in(study)


def tried_in(study: optuna.Study) -> list[Tried]:
    """All trials of a study."""
    found = []
    for trial in study.get_trials(deepcopy=False):
        reason, state = trial.user_attrs.get("reason", ""), trial.state.name.lower()
        if trial.state == TrialState.FAIL:
            state = "stopped" if reason == STOPPED else "failed"
        seconds = trial.duration.total_seconds() if trial.duration else None
        settings = dict(trial.params)
        found.append(Tried(trial.number, settings, trial.value, state, reason, seconds))
    return found


@contextlib.contextmanager
def opened(search: Search) -> Iterator[optuna.Study]:
    """The study of a search in its database, both made where there are none."""
    url = _url(search.storage)
    with quiet(logging.getLogger("optuna"), logging.CRITICAL):
        storage = _storage(url)
        try:
            yield optuna.create_study(
                storage=storage,
                study_name=search.name,
                direction="minimize" if search.best is min else "maximize",
                pruner=MedianPruner(),
                load_if_exists=True,
            )
        except Exception as error:
            cause: BaseException | None = error
            while cause and not isinstance(cause, SQLAlchemyError | StorageInternalError):
                cause = cause.__context__  # Optuna stumbles where it cannot look a trial up
            if cause is None:
                raise
            raise DatabaseGone(
                f"the database {_shown(url)} stopped answering: {_cause(cause)}; the same call "
                "resumes once it is back"
            ) from None
        finally:
            storage.engine.dispose()


def _storage(url: str) -> RDBStorage:
    embedded = url.startswith("sqlite")
    how = {"connect_args": {"timeout": 60}} if embedded else {"pool_pre_ping": True}
    for left in reversed(range(OPENINGS)):
        try:
            storage = RDBStorage(url, engine_kwargs=how)
            return _one_at_a_time(storage) if embedded else storage
        except (SQLAlchemyError, OptunaError, ImportError, ValueError, RuntimeError) as error:
            said = f"storage must be a database that opens, got {_shown(url)}: {_cause(error)}"
            time.sleep(0.2 * bool(left))
    raise ValueError(said)


def _one_at_a_time(storage: RDBStorage) -> RDBStorage:
    """Lock SQLite as a transaction begins: one that reads and then writes would not wait later."""
    engine = storage.engine

    @sqlalchemy.event.listens_for(engine, "connect")
    def _(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver would begin by itself, and without a lock
        connection.execute("PRAGMA journal_mode = WAL")  # also safe when a process is killed

    @sqlalchemy.event.listens_for(engine, "begin")
    def _(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    engine.dispose()  # connections from before do not know of this
    return storage


def _url(storage: str | Path) -> str:
    if "://" in str(storage):
        return str(storage)
    path = Path(storage).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path}"


def _shown(url: str) -> str:
    """A URL without its password."""
    return re.sub(r"(?<=:)[^:/@]*(?=@)", "***", url)


def _cause(error: BaseException) -> str:
    found = getattr(error, "orig", None) or error.__cause__ or error
    return (str(found).strip() or type(found).__name__).splitlines()[0]


def _check_same(study: optuna.Study, search: Search, about: dict[str, Any]) -> None:
    """Refuse to continue with a study that is about something else; note it in a new one."""
    about = {"best": search.best.__name__, **about}
    if found := differences(study.user_attrs.get("about", about), about):
        differs = ", ".join(f"{name.rpartition('.')[2]} is {how}" for name, how in found.items())
        raise ValueError(
            f"the search {search.name!r} in {_shown(_url(search.storage))} was started with other "
            f"settings: {differs}; choose another place or name for it"
        )
    study.set_user_attr("about", about)
