"""The study of coverage: its splits, its band, and one small table from end to end."""

import numpy as np
import pytest
import torch
from scipy import stats

from benchmarks import coverage


def test_parts_of_a_split_share_no_row_and_are_standardised_by_the_training_rows():
    x = np.arange(50.0).reshape(-1, 1)
    parts = coverage.split(x, np.arange(50), 3)
    for split in range(3):
        rows = torch.cat([part[1][split] for part in parts])
        assert sorted(rows.tolist()) == list(range(50))
    assert [part[1].shape for part in parts] == [(3, 30), (3, 10), (3, 10)]
    assert parts.train[0].mean(1).abs().max() < 1e-6
    torch.testing.assert_close(parts.train[0].std(1), torch.ones(3, 1))


def test_the_band_is_that_of_beta_binomial_means():
    line = coverage.Line("any", 100, 80, {}, {})
    low, high = coverage.band(line, 20, 0.9)
    law = stats.betabinom(80, 91, 10)
    reach = stats.norm.ppf(0.975) * law.std() / 80 / np.sqrt(20)
    assert (low, high) == pytest.approx((91 / 101 - reach, 91 / 101 + reach), abs=2e-3)


def test_a_table_of_numbers_is_measured_by_every_score(monkeypatch):
    monkeypatch.setattr(coverage, "EPOCHS", 3)
    random = np.random.default_rng(0)
    x = random.normal(size=(100, 2))
    line = coverage.of_numbers("made", x, x.sum(1) + random.normal(size=100), 4, 0.8)
    assert set(line.coverage) == {"network", "scaled", "quantiles", "central"}
    for way in ("scaled", "quantiles", "central"):
        assert line.coverage[way].shape == (4,)
        assert line.coverage[way].mean() == pytest.approx(17 / 21, abs=0.2)


def test_a_table_of_classes_is_measured(monkeypatch):
    monkeypatch.setattr(coverage, "EPOCHS", 3)
    x = np.random.default_rng(0).normal(size=(100, 2))
    line = coverage.of_classes("made", x, (x[:, 0] > 0).astype(int), 4, 0.8)
    assert line.coverage["share 1"].mean() > 0.6
    assert 0 < line.width["share 1"] <= 2
