"""The study of a search in its database: opened, looked at, checked."""

import contextlib
import logging
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.exceptions import ExperimentalWarning, OptunaError
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from bayesdiv.app.extra import quiet
from bayesdiv.app.runs import differences
from bayesdiv.app.tuning.search import Best, Search, Tried

RANDOM_TRIALS = 20  # before TPE has enough to go by; hyperopt's number
STOPPED = "stopped by hand"  # the reason of such a trial
OPENINGS = 5  # a new database can be met while another process is still making its tables


def trials(search: Search) -> list[Tried]:
    """All trials of a search, also while it runs elsewhere.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     trials(Search(f"{folder}/study.db"))
        []
    """
    with opened(search) as (study, _):
        return tried_in(study)


def best(search: Search) -> Best:
    """The best trial so far.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     best(Search(f"{folder}/study.db"))
        Traceback (most recent call last):
        ValueError: no trial of 'search' came to its end: narrow the ranges or allow more
    """
    with opened(search) as (study, _):
        try:
            found = study.best_trial
        except ValueError:
            raise ValueError(
                f"no trial of {search.name!r} came to its end: narrow the ranges or allow more"
            ) from None
        assert found.value is not None
        return Best(found.number, found.value, dict(found.params))


def tried_in(study: optuna.Study) -> list[Tried]:
    """All trials of a study."""
    return [_as_tried(trial) for trial in study.get_trials(deepcopy=False)]


def _as_tried(trial: FrozenTrial) -> Tried:
    reason = trial.user_attrs.get("reason", "")
    state = trial.state.name.lower()
    if trial.state == TrialState.FAIL:
        state = "stopped" if reason == STOPPED else "failed"
    return Tried(
        trial.number,
        dict(trial.params),
        trial.value,
        state,
        reason,
        None if trial.duration is None else trial.duration.total_seconds(),
        trial.system_attrs.get("failed_trial"),
    )


def sampler(search: Search, number: int = 0) -> TPESampler:
    """TPE for one trial, whose randomness comes from the seed and the trial's number alone.

    A search that goes on after a stop would otherwise draw its first random settings again, and
    workers with one seed would all draw the same.
    """
    seed = (search.seed * 1_000_003 + number) % 2**32
    return TPESampler(n_startup_trials=RANDOM_TRIALS, seed=seed)


@contextlib.contextmanager
def opened(search: Search) -> Iterator[tuple[optuna.Study, RDBStorage]]:
    """The study of a search and its database, made where there is none."""
    with quiet(logging.getLogger("optuna"), logging.ERROR), warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # what heartbeats are called
        storage = _storage(search)
        try:
            study = optuna.create_study(
                storage=storage,
                study_name=search.name,
                direction=search.aim.direction,
                sampler=sampler(search),
                pruner=search.pruner,
                load_if_exists=True,
            )
            yield study, storage
        finally:
            storage.remove_session()
            storage.engine.dispose()


def _storage(search: Search) -> RDBStorage:
    url = _url(search.storage)
    embedded = url.startswith("sqlite")
    for left in reversed(range(OPENINGS)):
        try:
            storage = RDBStorage(
                url,
                engine_kwargs=(
                    {"connect_args": {"timeout": 60}} if embedded else {"pool_pre_ping": True}
                ),
                heartbeat_interval=search.heartbeat,
                grace_period=3 * search.heartbeat,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(search.retries),
            )
            break
        except (SQLAlchemyError, OptunaError, ImportError, ValueError, RuntimeError) as error:
            if not left:
                raise ValueError(
                    f"storage must be a database that opens, got {_shown(url)}: {_cause(error)}"
                ) from None
            time.sleep(0.2)
    if embedded:
        _one_at_a_time(storage.engine)
    return storage


def _url(storage: str | Path) -> str:
    if "://" in str(storage):
        return str(storage)
    path = Path(storage).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path}"


def _shown(url: str) -> str:
    """A URL without its password."""
    try:
        return sqlalchemy.engine.make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return url.partition("://")[0] + "://…"


def _cause(error: BaseException) -> str:
    found = getattr(error, "orig", None) or error.__cause__ or error
    return (str(found).strip() or type(found).__name__).splitlines()[0]


def _one_at_a_time(engine: sqlalchemy.Engine) -> None:
    """Lock SQLite at the start of a transaction: it has no locks of rows to claim a trial with."""

    @sqlalchemy.event.listens_for(engine, "connect")
    def _(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver would begin by itself, and without a lock
        # A log beside the file: safe when a process is killed, and no wait for the disk.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")

    @sqlalchemy.event.listens_for(engine, "begin")
    def _(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    engine.dispose()  # connections from before do not know of this


class OtherStudy(ValueError):
    """A study that was begun with other settings; `differs` says which."""

    def __init__(self, name: str, differs: str) -> None:
        super().__init__(
            f"the study {name!r} was begun with other settings: {differs}; choose another name or "
            "storage"
        )
        self.differs = differs


def check_same(study: optuna.Study, search: Search, about: dict[str, Any]) -> None:
    """Refuse to go on with a study that is about something else; note it in a new one."""
    there = study.user_attrs.get("about")
    if there is not None and (found := differences(there, about)):
        told = [f"{name.rpartition('.')[2]} is {how}" for name, how in found.items()]
        raise OtherStudy(search.name, ", ".join(told))
    if study.direction != search.aim.direction:
        goals = (study.direction.name.lower(), search.aim.direction.name.lower())
        raise OtherStudy(search.name, "it is to {} there and to {} here".format(*goals))
    if there is None:
        study.set_user_attr("about", about)
