"""The study of a search in its database: opened, planned, looked at."""

import contextlib
import logging
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.exceptions import ExperimentalWarning, OptunaError, StorageInternalError
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from bayesdiv.app.extra import quiet
from bayesdiv.app.runs import differences
from bayesdiv.app.tuning.search import Search, Tried

RANDOM_TRIALS = 20  # before TPE has enough to go by; hyperopt's number
STOPPED = "stopped by the user"  # the reason of such a trial
OPENINGS = 5  # a new database can be met while another process is still making its tables


class DatabaseGone(RuntimeError):
    """The database of a search stopped answering while the search ran."""


def trials(search: Search) -> list[Tried]:
    """All trials of a search, also while it runs elsewhere.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     trials(Search(f"{folder}/study.db"))
        []
    """
    with opened(search) as study:
        return tried_in(study)


def tried_in(study: optuna.Study) -> list[Tried]:
    """All trials of a study."""
    return [_as_tried(trial) for trial in _planned(study)]


def _as_tried(trial: FrozenTrial) -> Tried:
    reason = trial.user_attrs.get("reason", "")
    state = {"FAIL": "stopped" if reason == STOPPED else "failed"}.get(trial.state.name)
    seconds = trial.duration.total_seconds() if trial.duration else None
    again = trial.system_attrs.get("failed_trial")
    name, settings = state or trial.state.name.lower(), dict(trial.params)
    return Tried(trial.number, settings, trial.value, name, reason, seconds, again)


def plan(study: optuna.Study, wanted: int, start: Mapping[str, Any] | None) -> None:
    """Let trials wait in the study until there are as many as wanted, first one with `start`."""
    if start is not None and not _planned(study):
        study.enqueue_trial(dict(start))
    for _ in range(wanted - len(counted(study, wanted))):
        study.enqueue_trial({})


def counted(study: optuna.Study, wanted: int) -> list[FrozenTrial]:
    """The trials that make up the search, at most as many as are wanted.

    Those that are tried again come first, the others by number: should two callers have planned
    the same trials at the same moment, the surplus does not count.
    """
    found = [trial for trial in _planned(study) if trial.state != TrialState.FAIL]
    return sorted(found, key=lambda trial: "failed_trial" not in trial.system_attrs)[:wanted]


def _planned(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that waited their turn; Optuna adds another where a worker finds none waiting."""
    return [t for t in study.get_trials(deepcopy=False) if "fixed_params" in t.system_attrs]


class _Sampler(TPESampler):
    """TPE whose randomness comes from the seed and the trial's number alone.

    A search that resumes after a stop would otherwise draw its first random settings again, and
    workers with one seed would all draw the same.
    """

    def __init__(self, seed: int, number: int = 0) -> None:
        self.seed = seed
        own = (seed * 1_000_003 + number) % 2**32
        super().__init__(n_startup_trials=RANDOM_TRIALS, seed=own)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.__init__(self.seed, trial.number)  # type: ignore[misc]


class _Storage(RDBStorage):
    """Optuna's storage; a heartbeat that fails is one missed, not a traceback."""

    def record_heartbeat(self, trial_id: int) -> None:
        with contextlib.suppress(SQLAlchemyError, StorageInternalError):
            super().record_heartbeat(trial_id)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        if state == TrialState.RUNNING:  # whoever dies between the claim and the thread is missed
            self.record_heartbeat(trial_id)
        return super().set_trial_state_values(trial_id, state, values)

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        # A heartbeat from the future, as after a clock was set back, would never grow old.
        now = "UPDATE trial_heartbeats SET heartbeat = CURRENT_TIMESTAMP WHERE heartbeat > "
        with self.engine.begin() as connection:
            connection.exec_driver_sql(now + "CURRENT_TIMESTAMP")
        return super()._get_stale_trial_ids(study_id)


@contextlib.contextmanager
def opened(search: Search) -> Iterator[optuna.Study]:
    """The study of a search in its database, both made where there are none."""
    url = _url(search.storage)
    with quiet(logging.getLogger("optuna"), logging.CRITICAL), warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # what heartbeats are called
        storage = _storage(url, search)
        try:
            yield optuna.create_study(
                storage=storage,
                study_name=search.name,
                direction="minimize" if search.best is min else "maximize",
                sampler=_Sampler(search.seed),
                pruner=search.pruner,
                load_if_exists=True,
            )
        except Exception as error:
            if cause := _of_database(error):
                raise DatabaseGone(
                    f"the database {_shown(url)} stopped answering: {_cause(cause)}; the same "
                    "call resumes once it is back"
                ) from None
            raise
        finally:
            storage.engine.dispose()


def _of_database(error: BaseException | None) -> BaseException | None:
    """The database's error behind another: Optuna stumbles where it cannot look a trial up."""
    while error and not isinstance(error, SQLAlchemyError | StorageInternalError):
        error = error.__context__
    return error


def _storage(url: str, search: Search) -> _Storage:
    embedded = url.startswith("sqlite")
    how = {"connect_args": {"timeout": 60}} if embedded else {"pool_pre_ping": True}
    retry = RetryHeartbeatStaleTrialCallback(search.retries)
    for left in reversed(range(OPENINGS)):
        try:
            storage = _Storage(
                url,
                engine_kwargs=how,
                heartbeat_interval=search.heartbeat,
                grace_period=3 * search.heartbeat,
                heartbeat_stale_trial_callback=retry,
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
    return re.sub(r"(?<=:)[^:/@]*(?=@)", "***", url)


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


def check_same(study: optuna.Study, search: Search, about: dict[str, Any]) -> None:
    """Refuse to continue with a study that is about something else; note it in a new one."""
    about = {"best": search.best.__name__, **about}
    if found := differences(study.user_attrs.get("about", about), about):
        differs = ", ".join(f"{name.rpartition('.')[2]} is {how}" for name, how in found.items())
        raise ValueError(
            f"the search {search.name!r} in {_shown(_url(search.storage))} was started with other "
            f"settings: {differs}; choose another place or name for it"
        )
    study.set_user_attr("about", about)
