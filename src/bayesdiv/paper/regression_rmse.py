"""Table Tab:rmse: average root mean squared error over 20 random splits of each data set."""

from functools import partial

from bayesdiv.paper import published, regression_table
from bayesdiv.paper.regression_table import compute, missing

draw = partial(regression_table.draw, name="regression_rmse", key="rmse", published=published.RMSE)
verdict = partial(regression_table.verdict, key="rmse", published=published.RMSE)

__all__ = ["compute", "draw", "missing", "verdict"]
