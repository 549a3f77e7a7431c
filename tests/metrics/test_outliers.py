"""How well scores find unusual rows, against scikit-learn."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch

from bayesdiv import metrics

BOTH = [metrics.outlier_auroc, metrics.outlier_aupr, metrics.outlier_false_alarms]


def scores(digits: int, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Few digits make ties."""
    generator = torch.Generator().manual_seed(digits)
    usual = torch.randn(300, generator=generator, dtype=torch.float64)
    unusual = 1 + torch.randn(120, generator=generator, dtype=torch.float64)
    return usual.mul(10**digits).round() * scale, unusual.mul(10**digits).round() * scale


@pytest.mark.parametrize("digits", [0, 8])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_areas_and_rates_agree_with_scikit_learn(digits, scale):
    usual, unusual = scores(digits, scale)
    both = np.concatenate([usual, unusual])
    labels = np.repeat([0, 1], [300, 120])
    wanted = sklearn.metrics.roc_auc_score(labels, both)
    assert metrics.outlier_auroc(usual, unusual).item() == pytest.approx(wanted, abs=1e-6)
    wanted = sklearn.metrics.average_precision_score(labels, both)
    assert metrics.outlier_aupr(usual, unusual).item() == pytest.approx(wanted, abs=1e-6)
    false, true, _ = sklearn.metrics.roc_curve(labels, both, drop_intermediate=False)
    for share in (0.5, 0.55, 0.95, 1.0):
        wanted = false[np.argmax(true >= share - 1e-12)]
        found = metrics.outlier_false_alarms(usual, unusual, share).item()
        assert found == pytest.approx(wanted, abs=1e-6)


def test_scores_that_say_nothing_are_half_right():
    same = torch.ones(5), torch.ones(3)
    assert metrics.outlier_auroc(*same).item() == 0.5
    assert metrics.outlier_false_alarms(*same).item() == 1
    assert metrics.outlier_aupr(*same).item() == pytest.approx(3 / 8)


@pytest.mark.parametrize("metric", BOTH)
def test_scores_that_part_the_rows_are_perfect(metric):
    found = metric(torch.tensor([0.0, 1.0]), torch.tensor([2.0, math.inf])).item()
    assert found == (0 if metric is metrics.outlier_false_alarms else 1)


@pytest.mark.parametrize("metric", BOTH)
def test_no_scores_and_scores_that_are_no_numbers_are_refused(metric):
    with pytest.raises(ValueError, match="usual and of unusual rows, got 2 and 0"):
        metric(torch.ones(2), torch.ones(0))
    with pytest.raises(ValueError, match="scores must be numbers, got NaN"):
        metric(torch.ones(2), torch.tensor([math.nan]))


def test_the_share_to_be_found_is_one_at_most():
    with pytest.raises(ValueError, match=r"found must lie in \(0, 1\], got 1.5"):
        metrics.outlier_false_alarms(torch.ones(2), torch.ones(2), 1.5)
