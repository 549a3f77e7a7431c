"""CV+: its coverage by simulation, its ends by hand. MAPIE's are compared in tests/clients."""

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from bayesdiv.calibration import FoldIntervals, Quantiles, Saved
from bayesdiv.calibration.conformal import Central
from bayesdiv.predictive import Predictive


def said(mean, scale=1.0):
    return Predictive(Normal(torch.as_tensor(mean, dtype=torch.float64)[None], scale))


def covered(rng, level, rows=24, folds=6):
    """Least squares of as many columns as a fourth of the rows, which overfits."""
    columns = rows // 4
    x, new = rng.normal(size=(rows, columns)), rng.normal(size=(200, columns))
    slope = rng.normal(size=columns)
    y, truth = (each @ slope + rng.standard_t(3, size=len(each)) for each in (x, new))
    held, later = [], []
    for own in np.arange(rows).reshape(folds, -1):
        rest = np.setdiff1d(np.arange(rows), own)
        found = np.linalg.lstsq(x[rest], y[rest], rcond=None)[0]
        held.append((said(x[own] @ found), torch.from_numpy(y[own])))
        later.append(said(new @ found))
    low, high = FoldIntervals.fit(held, level)(later)
    return np.mean((low.numpy() <= truth) & (truth <= high.numpy()))


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_coverage_is_near_the_level_and_never_below_the_promise(level):
    rng = np.random.default_rng(0)
    mean = np.mean([covered(rng, level) for _ in range(300)])
    assert level - 0.02 < mean < level + 0.08


@pytest.mark.parametrize("rows", [(4, 4), (3, 3, 3)])
def test_as_many_folds_as_rows_promise_twice_the_error(rows):
    left_out = [(said(torch.zeros(1)), torch.ones(1).double()) for _ in range(sum(rows))]
    assert FoldIntervals.fit(left_out, 0.8).promised == pytest.approx(0.6)
    folds = [(said(torch.zeros(n)), torch.ones(n).double()) for n in rows]
    assert FoldIntervals.fit(folds, 0.8).promised < 0.6


@pytest.mark.parametrize("score", [None, Quantiles()])
def test_ends_are_infinite_where_rows_are_too_few_and_one_fold_is_refused(score):
    folds = [(said(torch.zeros(3)), torch.arange(3).double()) for _ in range(2)]
    few = FoldIntervals.fit(folds, 0.9, score=score)
    low, high = few([said(torch.zeros(2)) for _ in range(2)])
    assert torch.equal(high, -low)
    assert high.isinf().all()
    enough = FoldIntervals.fit(folds, 0.7, score=score)
    again = Saved.from_state(enough.state())([said(torch.zeros(2)) for _ in range(2)])
    assert torch.equal(again[1], enough([said(torch.zeros(2)) for _ in range(2)])[1])
    with pytest.raises(ValueError, match="two folds"):
        FoldIntervals.fit(folds[:1])


def test_folds_are_given_as_they_were_fitted():
    folds = [(said(torch.zeros(5)), torch.arange(5.0) + k) for k in (0, 1)]
    with pytest.raises(TypeError, match="need Scaled"):
        FoldIntervals.fit(folds, 0.8, score=Central())
    fitted = FoldIntervals.fit(folds, 0.8)
    for count in (1, 3):
        with pytest.raises(ValueError, match=f"2 predictives, one per fold, got {count}"):
            fitted([folds[0][0]] * count)
