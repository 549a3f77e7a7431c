"""Search for settings by TPE: of a function of your own, or of an experiment.

A search is a study of Optuna in a database, by default an SQLite file. It is planned before it
begins: as many trials as are wanted wait there, and every worker claims one after another, so
that none is run twice and none too many, however many processes and machines take part. A worker
at work leaves a heartbeat; where the heartbeat stops, the trial is marked as failed and the same
settings wait to be tried again. The same call goes on where a search was stopped.
"""

from bayesdiv.app.extra import require

require("optuna", "sqlalchemy")
