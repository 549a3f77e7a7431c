"""Trials run by this process or by several."""

import contextlib
import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any

import optuna
import torch
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import Trial, TrialState

from bayesdiv.app.tuning import study as studies
from bayesdiv.app.tuning.search import Search, Tell, Tried
from bayesdiv.training.fit import Diverged

PAUSE = 0.5  # seconds between two looks at the database while there is nothing to do
PATIENCE = 20.0  # seconds that a worker has to leave its trial to others when it is ended

Objective = Callable[[Trial], float]


class WorkerFailed(RuntimeError):
    """Raised when the objective failed in a worker, or when no worker is left."""


class _Surplus(Exception):
    """A trial beyond those that are wanted."""


def tune(
    objective: Objective,
    search: Search,
    *,
    start: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    tell: Tell | None = None,
) -> Tried:
    """Search the settings of your own function by TPE (Bergstra et al. 2011), as the paper did.

    A trial that raises `Diverged`, or returns NaN or infinity, counts as pruned, and to TPE as one
    of the worst; another error ends the search. Returned is the best trial that came to its end.

    Args:
        objective: takes an `optuna.Trial`, asks it for settings, and returns the value; a function
            at the top of a module if there are several workers.
        search: where and how long.
        start: settings to try first.
        about: what the search depends on, as JSON; a study with another is not continued.
        tell: called with all trials after each change.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     search = Search(f"{folder}/study.db", trials=5)
        ...     best = tune(lambda trial: trial.suggest_float("x", -1, 1) ** 2, search)
        >>> list(best.settings)
        ['x']
    """
    with studies.opened(search) as study:
        studies.check_same(study, search, dict(about or {}))
        studies.plan(study, search.trials, start)
    (_work if search.workers == 1 else _supervise)(objective, search, tell)
    finished = [tried for tried in studies.trials(search) if tried.state == "complete"]
    if not finished:
        raise ValueError(
            f"no trial of {search.name!r} came to its end: narrow the ranges or allow more"
        )
    best: Tried = search.best(finished, key=lambda tried: tried.value)
    return best


def _work(objective: Objective, search: Search, tell: Tell | None) -> None:
    """Run trials until all that were planned are finished, by whichever worker."""
    with studies.opened(search) as study:

        def run(trial: Trial) -> float:
            if trial.number not in {t.number for t in studies.counted(study, search.trials)}:
                raise _Surplus
            _told(study, tell)
            return _value(objective, study, trial)

        while True:
            optuna.storages.fail_stale_trials(study)
            states = {trial.state for trial in studies.counted(study, search.trials)}
            if TrialState.WAITING in states:
                try:
                    study.optimize(run, n_trials=1, catch=_Surplus)
                except ValueError as error:
                    # This process slept for so long that another has taken its trial over.
                    if "Cannot tell a FAIL trial" not in str(error):
                        raise
                _told(study, tell)
            elif all(state.is_finished() for state in states):
                return
            else:
                time.sleep(PAUSE)


def _told(study: optuna.Study, tell: Tell | None) -> None:
    if tell is not None:
        tell(studies.tried_in(study))


def _value(objective: Objective, study: optuna.Study, trial: Trial) -> float:
    """The value of a trial; what went wrong is kept with it."""
    try:
        return _number(objective(trial))
    except (optuna.TrialPruned, UpdateFinishedTrialError):
        raise
    except Diverged as error:
        trial.set_user_attr("reason", str(error))
        raise optuna.TrialPruned from None
    except Exception as error:
        trial.set_user_attr("reason", f"{type(error).__name__}: {error}")
        raise
    except BaseException as stop:  # the same settings wait for when the search goes on
        RetryHeartbeatStaleTrialCallback()(study, study.get_trials()[trial.number])
        trial.set_user_attr("reason", studies.STOPPED)
        if not isinstance(stop, KeyboardInterrupt):  # Optuna would leave the trial running
            study.tell(trial, state=TrialState.FAIL)
        raise


def _number(value: object) -> float:
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"an objective must return a number, got {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise Diverged(f"the value is {number}")
    return number


def _supervise(objective: Objective, search: Search, tell: Tell | None) -> None:
    """Start the workers and wait; one that is killed leaves its trial to the others."""
    context = multiprocessing.get_context("spawn")
    processes, open_ends = [], []
    with _deaf():
        for _ in range(search.workers):
            ours, theirs = context.Pipe(duplex=False)
            given = (objective, search, theirs)
            processes.append(context.Process(target=_worker, args=given, daemon=True))
            processes[-1].start()
            theirs.close()
            open_ends.append(ours)
    try:
        with studies.opened(search) as study:
            while open_ends:
                for end in wait(open_ends, PAUSE):
                    _check(end)  # type: ignore[arg-type]
                    open_ends.remove(end)  # type: ignore[arg-type]
                _told(study, tell)
            done = [t.state.is_finished() for t in studies.counted(study, search.trials)]
        if sum(done) < search.trials:
            raise WorkerFailed(
                f"no worker is left after {sum(done)} of {search.trials} trials: the same call "
                "resumes"
            )
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(PATIENCE)
            process.kill()


def _check(end: Connection) -> None:
    """Raise what a worker says before it ends; one that ended well, or was killed, says nothing."""
    with contextlib.suppress(EOFError, OSError):
        sentence, where = end.recv()
        error = WorkerFailed(sentence)
        error.add_note(where)
        raise error


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


def _worker(objective: Objective, search: Search, end: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises KeyboardInterrupt
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # workers side by side are faster than threads
    with contextlib.suppress(KeyboardInterrupt):
        try:
            _work(objective, search, None)
        except studies.DatabaseGone as error:
            end.send((str(error), ""))
        except Exception as error:
            sentence = f"a worker failed with {type(error).__name__}: {error}"
            end.send((sentence, traceback.format_exc()))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with_parent() -> None:
    """Wait for the parent's end, however it ends, and then end this process as it would have."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(1)
