"""Trials claimed and run, by this process or by several."""

import contextlib
import math
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import optuna
import torch
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, Trial, TrialState

from bayesdiv.app.tuning.search import Best, Search, Tell
from bayesdiv.app.tuning.study import STOPPED, best, check_same, opened, sampler, tried_in
from bayesdiv.training.fit import Diverged

PAUSE = 0.5  # seconds between two looks at the database while there is nothing to do

Objective = Callable[[Trial], float]


def tune(
    objective: Objective,
    search: Search,
    *,
    start: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    tell: Tell | None = None,
) -> Best:
    """Search the settings of your own function, by TPE (Bergstra et al. 2011), as the paper did.

    A trial that raises `Diverged`, or returns NaN or infinity, counts as pruned, and to TPE as one
    of the worst; another error ends the search. To break off hopeless trials, report from the body
    of `fit` and raise `optuna.TrialPruned` where `trial.should_prune()`.

    Args:
        objective: takes an `optuna.Trial`, asks it for settings, and returns the value. With
            several workers it must be picklable: a function at the top of a module, say.
        search: where, how long and what for.
        start: settings to try first.
        about: what the search depends on, as JSON; a study with another is not gone on with.
        tell: called with all trials after each change.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     search = Search(f"{folder}/study.db", trials=5)
        ...     best = tune(lambda trial: trial.suggest_float("x", -1, 1) ** 2, search)
        >>> list(best.settings)
        ['x']
    """
    with opened(search) as (study, _):
        check_same(study, search, dict(about or {}))
        if start is not None and not study.get_trials(deepcopy=False):
            study.enqueue_trial(dict(start))
        for _ in range(search.trials - len(_counted(study, search.trials))):
            study.add_trial(optuna.create_trial(state=TrialState.WAITING))
    if search.workers == 1:
        _work(objective, search, tell)
    else:
        _supervise(objective, search, tell)
    return best(search)


def _counted(study: optuna.Study, wanted: int) -> list[FrozenTrial]:
    """The trials that make up the search, at most as many as are wanted.

    Those that are tried again come first, the others by number: should two callers have planned
    the same trials at the same moment, the surplus waits for ever.
    """
    found = [t for t in study.get_trials(deepcopy=False) if t.state != TrialState.FAIL]
    found.sort(key=lambda trial: ("failed_trial" not in trial.system_attrs, trial.number))
    return found[:wanted]


def _claim(study: optuna.Study, storage: RDBStorage, wanted: int) -> FrozenTrial | None:
    """A waiting trial that is now this worker's alone; None where none waits."""
    for trial in _counted(study, wanted):
        if trial.state != TrialState.WAITING:
            continue
        # The sign of life comes before the claim: whoever dies in between is still missed.
        storage.record_heartbeat(trial._trial_id)
        with contextlib.suppress(UpdateFinishedTrialError):
            if storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
                return trial
    return None


def _work(objective: Objective, search: Search, tell: Tell | None) -> None:
    """Claim and run trials until all that were planned are finished, by whichever worker."""
    with opened(search) as (study, storage):
        while True:
            optuna.storages.fail_stale_trials(study)
            claimed = _claim(study, storage, search.trials)
            if claimed is not None:
                _told(study, tell)
                study.sampler = sampler(search, claimed.number)
                _run(objective, study, storage, claimed)
                _told(study, tell)
            elif all(trial.state.is_finished() for trial in _counted(study, search.trials)):
                return
            else:
                time.sleep(PAUSE)


def _told(study: optuna.Study, tell: Tell | None) -> None:
    if tell is not None:
        tell(tried_in(study))


def _run(
    objective: Objective, study: optuna.Study, storage: RDBStorage, claimed: FrozenTrial
) -> None:
    trial = Trial(study, claimed._trial_id)
    state, value = TrialState.PRUNED, None
    try:
        with _beating(storage, claimed._trial_id):
            try:
                value = _number(objective(trial))
                state = TrialState.COMPLETE
            except optuna.TrialPruned:
                pass
            except Diverged as error:
                trial.set_user_attr("reason", str(error))
        study.tell(trial, value, state, skip_if_finished=True)
    except UpdateFinishedTrialError:
        return  # this process slept for so long that another has taken the trial over
    except BaseException as error:
        by_hand = isinstance(error, KeyboardInterrupt)
        with contextlib.suppress(UpdateFinishedTrialError):
            trial.set_user_attr(
                "reason", STOPPED if by_hand else f"{type(error).__name__}: {error}"
            )
        failed = study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        if by_hand and failed.state == TrialState.FAIL:
            failed.user_attrs = {k: v for k, v in failed.user_attrs.items() if k != "reason"}
            RetryHeartbeatStaleTrialCallback()(study, failed)  # for when the search goes on
        raise


def _number(value: object) -> float:
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"an objective must return a number, got {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise Diverged(f"the value is {number}")
    return number


@contextlib.contextmanager
def _beating(storage: RDBStorage, trial_id: int) -> Iterator[None]:
    """Record a sign of life every now and then, from a thread."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(storage.heartbeat_interval):
            storage.record_heartbeat(trial_id)
        storage.remove_session()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class WorkerFailed(RuntimeError):
    """Raised when the objective failed in a worker, or when no worker is left."""


def _supervise(objective: Objective, search: Search, tell: Tell | None) -> None:
    """Start the workers and wait; one that is killed leaves its trials to the others."""
    processes = _started(objective, search)
    try:
        with opened(search) as (study, _):
            while alive := [process for process in processes if process.is_alive()]:
                _told(study, tell)
                wait([process.sentinel for process in alive], timeout=PAUSE)
                _check_workers(study, processes)
            _check_workers(study, processes)
            _told(study, tell)
            counted = _counted(study, search.trials)
            done = sum(trial.state.is_finished() for trial in counted)
        if done < search.trials:
            raise WorkerFailed(
                f"no worker is left after {done} of {search.trials} trials: the same call goes on"
            )
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(30)
            process.kill()


def _started(objective: Objective, search: Search) -> list[BaseProcess]:
    context = multiprocessing.get_context("spawn")
    found: list[BaseProcess] = []
    with _deaf():
        for _ in range(search.workers):
            found.append(context.Process(target=_worker, args=(objective, search), daemon=True))
            found[-1].start()
    return found


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C: their parent does, and ends them in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _worker(objective: Objective, search: Search) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises KeyboardInterrupt
    torch.set_num_threads(1)  # workers side by side are faster than threads
    with contextlib.suppress(KeyboardInterrupt):
        _work(objective, search, None)


def _check_workers(study: optuna.Study, processes: Sequence[BaseProcess]) -> None:
    """Raise what the study says of a worker that failed; its own traceback is on stderr."""
    if any(process.exitcode == 1 for process in processes):
        found = [trial.reason for trial in tried_in(study) if trial.state == "failed"]
        reasons = [reason for reason in found if reason]  # one that was killed has none
        raise WorkerFailed(f"a worker failed with {reasons[-1] if reasons else 'an error'}")
