"""Trials run by this process, beside others that share the database."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import Trial, TrialState

from bayesdiv.app.tuning import study as studies
from bayesdiv.app.tuning.search import Search, Tell, Tried
from bayesdiv.training.fit import Diverged

PAUSE = 0.5  # seconds between two looks at the database while there is nothing to do

Objective = Callable[[Trial], float]


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
        objective: takes an `optuna.Trial`, asks it for settings, and returns the value.
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
    _work(objective, search, tell)
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

        def wanted(trial: Trial) -> float:
            if trial.number not in {t.number for t in studies.counted(study, search.trials)}:
                raise _Surplus
            _told(study, tell)
            return objective(trial)

        def run(trial: Trial) -> float:
            return _value(wanted, study, trial)

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
    except (optuna.TrialPruned, UpdateFinishedTrialError, _Surplus):
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
