"""Average negative log-likelihood over 20 random splits of each data set."""

from functools import partial

from reproduction import published
from reproduction.regression import judging
from reproduction.regression import table as regression_table
from reproduction.regression.table import compute, missing

draw = partial(regression_table.draw, name="regression_nll", key="nll", published=published.NLL)
verdict = partial(judging.verdict, key="nll", published=published.NLL)

__all__ = ["compute", "draw", "missing", "verdict"]
