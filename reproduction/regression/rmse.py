"""Average root mean squared error over 20 random splits of each data set."""

from functools import partial

from reproduction import published
from reproduction.regression import judging
from reproduction.regression import table as regression_table
from reproduction.regression.table import compute, missing

draw = partial(regression_table.draw, name="regression_rmse", key="rmse", published=published.RMSE)
verdict = partial(judging.verdict, key="rmse", published=published.RMSE)

__all__ = ["compute", "draw", "missing", "verdict"]
