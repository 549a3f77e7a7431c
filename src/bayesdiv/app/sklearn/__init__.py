"""Scikit-learn estimators: numbers in a table, one quantity or class out, with uncertainty."""

from bayesdiv.app.extra import require

require("sklearn")
