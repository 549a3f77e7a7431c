"""Search for settings with Optuna: of your own function, or of an experiment.

A search is a study in a database, by default an SQLite file. All trials wait there from the start;
workers, in as many processes and on as many machines as you like, run them one by one. Optuna's
heartbeat notices a worker that was killed, and its settings wait to be tried again.
"""

from bayesdiv.app.extra import require

require("optuna", "sqlalchemy")
