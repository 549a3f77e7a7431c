"""Search for settings by TPE: of a function of your own, or of an experiment.

A search is a study of Optuna in a database, by default an SQLite file. It is planned before it
begins: as many trials as are wanted wait there, and every worker claims one after another, so
that none is run twice and none too many, however many processes and machines take part. A worker
at work leaves a heartbeat; where the heartbeat stops, the trial is marked as failed and the same
settings wait to be tried again. The same call goes on where a search was stopped.
"""

from bayesdiv.app.tuning.experiment import (
    LogUniform,
    Space,
    Tuned,
    Uniform,
    dealt,
    outside,
    tune_experiment,
    with_settings,
)
from bayesdiv.app.tuning.search import ACCURACY, NLL, RMSE, Aim, Best, Search, Tell, Tried
from bayesdiv.app.tuning.study import OtherStudy, best, trials
from bayesdiv.app.tuning.workers import WorkerFailed, tune

__all__ = [
    "ACCURACY",
    "NLL",
    "RMSE",
    "Aim",
    "Best",
    "LogUniform",
    "OtherStudy",
    "Search",
    "Space",
    "Tell",
    "Tried",
    "Tuned",
    "Uniform",
    "WorkerFailed",
    "best",
    "dealt",
    "outside",
    "trials",
    "tune",
    "tune_experiment",
    "with_settings",
]
