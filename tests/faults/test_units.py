"""Targets far from 0, tiny or huge: what leaves a model is in raw units and double precision."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from torch.distributions import Normal

from bayesdiv import BayesianRegressor
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.tasks.regression import Regression
from bayesdiv.predictive import Predictive
from command import call

OFFSETS = [
    (1e-50, 1e-50),
    (1e-50, 1e-58),
    (0.0, 1e-39),
    (1e8, 1.0),
    (1.7e9, 3600.0),
    (-1e12, 1.0),
    (1e15, 10.0),
    (1e39, 1e39),
    (1e39, 1e27),
]
NOISE = np.random.default_rng(0).normal(size=2000)


@pytest.mark.parametrize(("offset", "spread"), OFFSETS)
def test_columns_are_right_however_far_targets_are_from_zero(offset, spread):
    target = pd.Series(offset + spread * NOISE, name="y")
    task = Regression.fit(target)
    y = task.encode(target)
    assert y.std().item() == pytest.approx(1.0, abs=0.01)
    predictive = Predictive(Normal(torch.zeros(1, len(y)), 1.0))
    found = {name: values.numpy() for name, values in task.columns(predictive, 0.9).items()}
    assert all(values.dtype == np.float64 for values in found.values())
    reach = norm.ppf(0.95) * target.std(ddof=0)
    low, high = found["predicted_low"] - target.mean(), found["predicted_high"] - target.mean()
    rounding = 4 * np.finfo(np.float64).eps * abs(offset) / spread
    assert low / spread == pytest.approx(-reach / spread, abs=1e-5 + rounding)
    assert high / spread == pytest.approx(reach / spread, abs=1e-5 + rounding)
    scale = found["predicted_scale"] / spread
    assert scale == pytest.approx(target.std(ddof=0) / spread, rel=1e-5)
    inside = (found["predicted_low"] <= target) & (target <= found["predicted_high"])
    assert inside.mean() == pytest.approx(task.measured(predictive, y)["coverage"], abs=0.02)
    assert inside.mean() == pytest.approx(0.9, abs=0.03)


def test_a_target_that_varies_by_rounding_alone_is_refused():
    for offset, spread in [(1e39, 1.0), (1e16, 1.0), (0.3, 1e-17)]:
        with pytest.raises(DataError, match="must vary in the training rows"):
            Regression.fit(pd.Series(offset + spread * NOISE, name="y"))


def test_predict_covers_unix_seconds_as_often_as_evaluate_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    a = random.normal(size=100)
    seconds = 1_700_000_000 + 600 * a + 60 * random.normal(size=100)
    pd.DataFrame({"a": a, "seconds": seconds}).to_csv("rows.csv", index=False)
    quick = ["--epochs", "20", "--test_samples", "20", "--members", "1"]
    assert call("train", "rows.csv", "--out", "run", *quick) == 0
    assert call("predict", "run", "rows.csv", "-o", "out.csv") == 0
    found = pd.read_csv("out.csv")
    inside = (found.predicted_low <= found.seconds) & (found.seconds <= found.predicted_high)
    assert inside.mean() > 0.7
    assert (found.predicted_high - found.predicted_low).nunique() > 50
    assert (found.predicted_mean - found.seconds).abs().mean() < 600


@pytest.mark.parametrize("likelihood", [None, "gaussian", "student_t"])
@pytest.mark.parametrize(
    ("offset", "spread"), [(1e-50, 1e-51), (1.7e9, 3600.0), (1e12, 1.0), (1e39, 1e33)]
)
def test_an_estimator_is_as_sure_wherever_its_targets_begin(likelihood, offset, spread):
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    z = x[:, 0] + 0.1 * random.normal(size=60)

    def fitted(y):
        model = BayesianRegressor(epochs=2, members=1, random_state=0, likelihood=likelihood)
        return model.fit(x, y)

    near, far = fitted(z), fitted(offset + spread * z)
    rounding = 1e-4 + 8 * np.finfo(np.float64).eps * offset / spread
    for one, two in zip(near.predict_interval(x), far.predict_interval(x), strict=True):
        assert (two - offset) / spread == pytest.approx(one, abs=rounding)
    (mean, scale), (mean_far, scale_far) = (m.predict(x, return_std=True) for m in (near, far))
    assert (mean_far - offset) / spread == pytest.approx(mean, abs=rounding)
    assert scale_far / spread == pytest.approx(scale, abs=rounding)
