"""Parts of the Brier score, and what is gained by leaving unsure rows unanswered."""

import itertools

import numpy as np
import pytest
import sklearn.metrics
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical

from bayesdiv import metrics
from bayesdiv.predictive import Predictive

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def labelled(
    classes: int, rows: int = 300, dtype: torch.dtype = torch.float64
) -> tuple[Predictive, Tensor]:
    generator = torch.Generator().manual_seed(classes)
    logits = 2 * torch.randn(3, rows, classes, generator=generator, dtype=dtype)
    predictive = Predictive(Categorical(logits=logits))
    return predictive, predictive.probabilities.multinomial(1, generator=generator).squeeze(-1)


def by_loops(probabilities: np.ndarray, y: np.ndarray, bins: int) -> tuple[float, float, float]:
    """Murphy's reliability, resolution and uncertainty, summed over classes."""
    reliability = resolution = uncertainty = 0.0
    for c in range(probabilities.shape[1]):
        p, o = probabilities[:, c], (y == c).astype(float)
        uncertainty += o.mean() * (1 - o.mean())
        for k in range(bins):
            inside = (k / bins < p) & (p <= (k + 1) / bins)
            if inside.any():
                weight = inside.mean()
                reliability += weight * (p[inside].mean() - o[inside].mean()) ** 2
                resolution += weight * (o[inside].mean() - o.mean()) ** 2
    return reliability, resolution, uncertainty


@dtypes
@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("bins", [1, 4, 15])
def test_brier_parts_agree_with_loops_and_add_up_to_the_score(bins, classes, dtype):
    predictive, y = labelled(classes, dtype=dtype)
    found = metrics.brier_parts(predictive, y, bins)
    probabilities = predictive.probabilities.double().numpy()
    np.testing.assert_allclose(found[:3], by_loops(probabilities, y.numpy(), bins), rtol=1e-4)
    whole = found.reliability - found.resolution + found.uncertainty + found.within
    truth = np.eye(classes)[y]
    score = ((probabilities - truth) ** 2).sum(-1).mean()
    assert whole.item() == pytest.approx(score, rel=1e-5)


def test_where_all_rows_of_a_bin_are_alike_nothing_is_lost_within():
    predictive = Predictive(Bernoulli(torch.tensor([[0.9, 0.9, 0.1, 0.1, 0.5]])))
    found = metrics.brier_parts(predictive, torch.tensor([1, 0, 0, 0, 1]))
    assert found.within.item() == pytest.approx(0, abs=1e-7)


def test_brier_parts_refuse_no_bins():
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        metrics.brier_parts(*labelled(2), bins=0)


def test_risk_and_coverage_agree_with_scikit_learn_at_every_step():
    predictive, y = labelled(4, rows=40)
    probabilities = predictive.probabilities.numpy()
    order = np.argsort(-probabilities.max(-1))
    found = metrics.risk_coverage(predictive, y)
    for k in range(1, 41):
        kept = order[:k]
        risk = 1 - sklearn.metrics.accuracy_score(y[kept], probabilities[kept].argmax(-1))
        assert found.risk[k - 1].item() == pytest.approx(risk)
        assert found.coverage[k - 1].item() == pytest.approx(k / 40)
    assert metrics.aurc(predictive, y).item() == pytest.approx(found.risk.mean().item())


def test_rows_that_are_equally_sure_count_as_in_the_mean_of_all_orders():
    p = torch.tensor([0.9, 0.7, 0.7, 0.7, 0.6])
    y = torch.tensor([1, 0, 1, 0, 1])
    wrong = (y == 0).double().tolist()
    areas = []
    for middle in itertools.permutations([1, 2, 3]):
        taken = np.cumsum([wrong[i] for i in (0, *middle, 4)]) / np.arange(1, 6)
        areas.append(taken.mean())
    found = metrics.aurc(Predictive(Bernoulli(p.unsqueeze(0))), y)
    assert found.item() == pytest.approx(np.mean(areas))


def test_the_area_is_least_where_wrong_rows_are_the_least_sure():
    p = torch.tensor([[0.99, 0.95, 0.9, 0.6]])
    good, bad = torch.tensor([1, 1, 1, 0]), torch.tensor([0, 1, 1, 1])
    predictive = Predictive(Bernoulli(p))
    assert metrics.aurc(predictive, good) < metrics.aurc(predictive, bad)
    assert metrics.aurc(predictive, good).item() == pytest.approx(0.25 / 4)
