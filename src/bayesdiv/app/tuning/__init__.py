"""Search for settings: a population trained as one program, or trial by trial with Optuna.

A search with Optuna is a study in a database, by default an SQLite file. All trials wait there from
the start; as many processes as you start, on as many machines as you like, run them one by one.
Optuna's heartbeat notices a process that was killed, and its settings wait to be tried again.
"""

from bayesdiv.app.extra import require

require("optuna", "sqlalchemy")
