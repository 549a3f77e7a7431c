"""Search for settings: a population trained as one program, or trial by trial with Optuna."""

from bayesdiv.app.extra import require

require("optuna", "sqlalchemy")
