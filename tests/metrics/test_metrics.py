"""Every metric against scikit-learn, SciPy or NumPy, and what each of them refuses."""

import math
import subprocess
import sys

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Independent, Normal, StudentT

from bayesdiv import metrics
from bayesdiv.predictive import Predictive

SAMPLES, BATCH = 6, 400
OF_NUMBERS = [
    metrics.rmse,
    metrics.coverage,
    metrics.crps,
    metrics.pinball,
    metrics.sharpness,
]
OF_CLASSES = [
    metrics.accuracy,
    metrics.brier,
    metrics.ece,
    metrics.reliability,
    metrics.auroc,
    metrics.confusion,
    metrics.aurc,
]
OF_TWO_CLASSES = [metrics.false_negative_rate]
ALL = [metrics.nll, *OF_NUMBERS, *OF_CLASSES, *OF_TWO_CLASSES]
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
class_counts = pytest.mark.parametrize("classes", [1, 2, 3, 10])


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


def numbers(dtype: torch.dtype = torch.float64) -> tuple[Predictive, Tensor]:
    loc = normal(SAMPLES, BATCH, dtype=dtype)
    return Predictive(Normal(loc, 0.8)), normal(BATCH, seed=1, dtype=dtype)


def labelled(
    classes: int, dtype: torch.dtype = torch.float64, batch: int = BATCH, seed: int = 0
) -> tuple[Predictive, Tensor]:
    """Classes of about the probabilities predicted; one output means a binary likelihood."""
    each = 0.7 * normal(SAMPLES, batch, classes, seed=seed, dtype=dtype)
    logits = each + 2 * normal(batch, classes, seed=seed + 1, dtype=dtype)
    one = classes == 1
    mixture = Bernoulli(logits=logits[..., 0]) if one else Categorical(logits=logits)
    predictive = Predictive(mixture)
    generator = torch.Generator().manual_seed(seed)
    return predictive, predictive.probabilities.multinomial(1, generator=generator).squeeze(-1)


def as_numpy(predictive: Predictive) -> np.ndarray:
    """Probabilities that add up to 1 in float64, as scikit-learn demands."""
    probabilities = predictive.probabilities.double()
    return (probabilities / probabilities.sum(-1, keepdim=True)).numpy()


@dtypes
def test_errors_of_numbers_agree_with_scikit_learn(dtype):
    predictive, y = numbers(dtype)
    mean = predictive.conditional.loc.double().mean(0)
    rmse = sklearn.metrics.root_mean_squared_error(y, mean)
    assert metrics.rmse(predictive, y).item() == pytest.approx(rmse, rel=1e-5)
    assert metrics.rmse(predictive, y).dtype == dtype


@dtypes
def test_nll_of_numbers_agrees_with_scipy(dtype):
    predictive, y = numbers(dtype)
    density = stats.norm.pdf(y, predictive.conditional.loc, 0.8).mean(0)
    assert metrics.nll(predictive, y).item() == pytest.approx(-np.log(density).mean(), rel=1e-5)


@dtypes
@class_counts
def test_nll_of_classes_agrees_with_scikit_learn(classes, dtype):
    predictive, y = labelled(classes, dtype)
    expected = sklearn.metrics.log_loss(y, as_numpy(predictive), labels=range(max(classes, 2)))
    assert metrics.nll(predictive, y).item() == pytest.approx(expected, rel=1e-4)


def test_nll_of_several_outputs_is_their_sum_an_example():
    loc, y = normal(SAMPLES, 8, 3), normal(8, 3, seed=1)
    density = np.exp(stats.norm.logpdf(y, loc, 0.8).sum(-1)).mean(0)
    found = metrics.nll(Predictive(Independent(Normal(loc, 0.8), 1)), y)
    assert found.item() == pytest.approx(-np.log(density).mean())


def test_several_outputs_count_one_by_one():
    loc, y = normal(SAMPLES, 8, 3), normal(8, 3, seed=1)
    several = Predictive(Independent(Normal(loc, 0.8), 1))
    flat = Predictive(Normal(loc.flatten(1), 0.8))
    for metric in OF_NUMBERS:
        torch.testing.assert_close(metric(several, y), metric(flat, y.flatten()))


@dtypes
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_coverage_agrees_with_the_mixture_in_scipy(level, dtype):
    """A target lies in the central interval where the distribution function says so."""
    predictive, y = numbers(dtype)
    below = stats.norm.cdf(y, predictive.conditional.loc, 0.8).mean(0)
    inside = (below >= (1 - level) / 2) & (below <= (1 + level) / 2)
    assert metrics.coverage(predictive, y, level).item() == pytest.approx(inside.mean())


@pytest.mark.parametrize("family", [Normal, lambda loc, scale: StudentT(3.0, loc, scale)])
def test_coverage_of_targets_drawn_from_the_predictive_is_the_level(family):
    torch.manual_seed(7)
    predictive = Predictive(family(normal(SAMPLES, 2000), 1.0))
    y = predictive.sample(1)[0]
    found = metrics.coverage(predictive, y, 0.8).item()
    assert abs(found - 0.8) < 5 * math.sqrt(0.16 / 2000)


@dtypes
@class_counts
def test_accuracy_and_confusion_agree_with_scikit_learn(classes, dtype):
    predictive, y = labelled(classes, dtype)
    called = as_numpy(predictive).argmax(-1)
    accuracy = sklearn.metrics.accuracy_score(y, called)
    assert metrics.accuracy(predictive, y).item() == pytest.approx(accuracy)
    expected = sklearn.metrics.confusion_matrix(y, called, labels=range(max(classes, 2)))
    np.testing.assert_array_equal(metrics.confusion(predictive, y), expected)


@dtypes
@class_counts
def test_brier_agrees_with_scikit_learn(classes, dtype):
    predictive, y = labelled(classes, dtype)
    expected = sklearn.metrics.brier_score_loss(
        y, as_numpy(predictive), labels=range(max(classes, 2)), scale_by_half=False
    )
    assert metrics.brier(predictive, y).item() == pytest.approx(expected, rel=1e-5)


@dtypes
@class_counts
def test_auroc_agrees_with_scikit_learn(classes, dtype):
    predictive, y = labelled(classes, dtype)
    scores = as_numpy(predictive) if classes > 2 else predictive.probabilities[:, 1]
    expected = sklearn.metrics.roc_auc_score(y, scores, multi_class="ovr", average="macro")
    assert metrics.auroc(predictive, y).item() == pytest.approx(expected, abs=1e-6)


def test_auroc_counts_ties_half():
    predictive = Predictive(Bernoulli(torch.tensor([[0.5, 0.5, 0.5, 0.9]])))
    y = torch.tensor([0, 1, 0, 1])
    expected = sklearn.metrics.roc_auc_score(y, predictive.probabilities[:, 1])
    assert metrics.auroc(predictive, y).item() == pytest.approx(expected) == 0.75


@dtypes
@pytest.mark.parametrize("classes", [1, 2])
def test_false_negative_rate_is_what_recall_leaves(classes, dtype):
    predictive, y = labelled(classes, dtype)
    recall = sklearn.metrics.recall_score(y, as_numpy(predictive).argmax(-1))
    assert metrics.false_negative_rate(predictive, y).item() == pytest.approx(1 - recall, abs=1e-6)


def binned(scores: np.ndarray, y: np.ndarray, bins: int) -> list[tuple[float, float, int]]:
    """Confidence, accuracy and count of the bins ((k-1)/K, k/K], bin by bin."""
    confidence, correct = scores.max(-1), scores.argmax(-1) == y
    rows = []
    for k in range(1, bins + 1):
        inside = ((k - 1) / bins < confidence) & (confidence <= k / bins)
        count = int(inside.sum())
        rows.append(
            (confidence[inside].mean(), correct[inside].mean(), count)
            if count
            else (math.nan, math.nan, 0)
        )
    return rows


@dtypes
@class_counts
@pytest.mark.parametrize("bins", [1, 2, 15])
def test_ece_and_reliability_agree_with_numpy(bins, classes, dtype):
    predictive, y = labelled(classes, dtype)
    confidence, accuracy, count = np.array(binned(as_numpy(predictive), y.numpy(), bins)).T
    expected = np.nansum(count / BATCH * np.abs(accuracy - confidence))
    assert metrics.ece(predictive, y, bins).item() == pytest.approx(expected, abs=1e-6)
    found = metrics.reliability(predictive, y, bins)
    np.testing.assert_allclose(found.confidence, confidence, rtol=1e-5)
    np.testing.assert_allclose(found.accuracy, accuracy, rtol=1e-5)
    np.testing.assert_array_equal(found.count, count)


@dtypes
@pytest.mark.parametrize("bins", [5, 10, 15])
def test_a_confidence_on_an_edge_belongs_to_the_bin_that_ends_there(bins, dtype):
    edges = torch.arange(bins // 2 + 1, bins + 1).to(dtype) / bins
    predictive = Predictive(Bernoulli(edges.unsqueeze(0)))
    count = metrics.reliability(predictive, torch.ones(len(edges)), bins).count
    assert count.tolist() == [0] * (bins - len(edges)) + [1] * len(edges)


def test_ece_of_a_binary_target_uses_the_larger_of_both_probabilities():
    """Low probabilities of class 1 are high confidences in class 0."""
    predictive = Predictive(Bernoulli(torch.tensor([[0.1, 0.1, 0.1, 0.1, 0.1]])))
    assert metrics.ece(predictive, torch.tensor([0, 0, 0, 0, 1])).item() == pytest.approx(0.1)


def test_ece_of_calibrated_classes_is_near_zero():
    predictive, y = labelled(3, batch=200_000)
    assert metrics.ece(predictive, y) < 5e-3


@settings(max_examples=30)
@given(st.integers(2, 6), st.integers(1, 40), st.integers(0, 10_000))
def test_scores_stay_in_their_range(classes, batch, seed):
    predictive, y = labelled(classes, torch.float32, batch, seed)
    for metric, largest in [(metrics.accuracy, 1), (metrics.ece, 1), (metrics.brier, 2)]:
        assert 0 <= metric(predictive, y).item() <= largest + 1e-6
    matrix = metrics.confusion(predictive, y)
    assert matrix.sum() == batch
    assert metrics.nll(predictive, y) >= 0
    counts = metrics.reliability(predictive, y).count
    assert counts.sum() == batch


def test_certain_predictions_give_the_extreme_scores():
    predictive = Predictive(Bernoulli(logits=torch.tensor([[100.0, -100.0]])))
    right, wrong = torch.tensor([1, 0]), torch.tensor([0, 1])
    names = ("accuracy", "brier", "ece", "auroc", "false_negative_rate", "nll")
    for y, expected in [(right, (1, 0, 0, 1, 0, 0)), (wrong, (0, 2, 1, 0, 1, 100))]:
        found = [getattr(metrics, name)(predictive, y).item() for name in names]
        assert found == pytest.approx(expected, abs=1e-30)


@pytest.mark.parametrize("metric", [m for m in ALL if m is not metrics.reliability])
def test_a_metric_is_one_tensor_without_axes(metric):
    predictive, y = numbers() if metric in OF_NUMBERS else labelled(2)
    found = metric(predictive, y)
    assert isinstance(found, Tensor)
    assert found.shape == ((2, 2) if metric is metrics.confusion else ())
    assert found.isfinite().all()


@pytest.mark.parametrize("metric", ALL)
def test_a_predictive_with_a_graph_is_measured_too(metric):
    y = torch.tensor([0, 1, 1])
    loc = torch.zeros(2, 3, requires_grad=True)
    mixture = Normal(loc, 1.0) if metric in OF_NUMBERS else Bernoulli(logits=loc)
    metric(Predictive(mixture), y)


@pytest.mark.parametrize("metric", OF_NUMBERS)
def test_metrics_of_numbers_refuse_classes(metric):
    with pytest.raises(ValueError, match="needs targets that are numbers, got classes"):
        metric(*labelled(3))


@pytest.mark.parametrize("metric", OF_CLASSES + OF_TWO_CLASSES)
def test_metrics_of_classes_refuse_numbers(metric):
    with pytest.raises(ValueError, match="needs targets that are classes, got numbers"):
        metric(*numbers())


@pytest.mark.parametrize("metric", OF_TWO_CLASSES)
def test_binary_metrics_refuse_more_classes(metric):
    with pytest.raises(ValueError, match="needs two classes, got 3"):
        metric(*labelled(3))


@pytest.mark.parametrize("metric", ALL)
def test_targets_of_another_shape_are_refused(metric):
    predictive, y = numbers() if metric in OF_NUMBERS else labelled(2)
    with pytest.raises(ValueError, match=r"must have shape \(400,\), got \(400, 1\)"):
        metric(predictive, y.unsqueeze(-1))


@pytest.mark.parametrize("metric", ALL)
def test_no_targets_are_refused(metric):
    empty = Normal if metric in OF_NUMBERS else lambda x, _: Bernoulli(logits=x)
    with pytest.raises(ValueError, match=r"at least one target, got shape \(0,\)"):
        metric(Predictive(empty(torch.zeros(2, 0), 1.0)), torch.zeros(0))


@pytest.mark.parametrize("metric", [metrics.nll, *OF_CLASSES])
@pytest.mark.parametrize("label", [-1, 3, 100])
def test_labels_out_of_range_are_refused(metric, label):
    predictive, y = labelled(3)
    y[7] = label
    with pytest.raises(ValueError, match=f"labels must be integers from 0 to 2, got {label}"):
        metric(predictive, y)


@pytest.mark.parametrize("metric", [metrics.nll, *OF_NUMBERS])
def test_nan_targets_are_refused(metric):
    predictive, y = numbers()
    y[:2] = math.nan
    with pytest.raises(ValueError, match="targets must be numbers, got 2 NaN"):
        metric(predictive, y)


def test_auroc_refuses_targets_of_one_class():
    predictive, y = labelled(1)
    with pytest.raises(ValueError, match=r"needs targets of every class, got none of \[0\]"):
        metrics.auroc(predictive, torch.ones_like(y))


def test_auroc_names_the_classes_that_are_missing():
    predictive, y = labelled(4)
    with pytest.raises(ValueError, match=r"got none of \[1, 3\]"):
        metrics.auroc(predictive, 2 * (y // 2))


def test_false_negative_rate_needs_a_positive():
    predictive, y = labelled(1)
    with pytest.raises(ValueError, match="needs targets of class 1, got none"):
        metrics.false_negative_rate(predictive, torch.zeros_like(y))


@pytest.mark.parametrize("metric", [metrics.ece, metrics.reliability])
def test_bins_must_be_at_least_one(metric):
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        metric(*labelled(2), bins=0)


def test_importing_metrics_leaves_torchmetrics_out():
    code = "import sys, bayesdiv.metrics; print('torchmetrics' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


# What a table says about them ------------------------------------------------------------------


def test_every_metric_that_is_a_number_is_in_the_table():
    of_arrays = {metrics.reliability, metrics.confusion}
    wanted = {metric.__name__ for metric in ALL if metric not in of_arrays}
    assert set(metrics.TABLE) >= wanted
    for name, entry in metrics.TABLE.items():
        assert entry.function is getattr(metrics, name)
        assert entry.explained.startswith(f"{entry.title}: ")
        assert entry.unit in (metrics.TARGET, metrics.NATS, metrics.SHARE)


@pytest.mark.parametrize(
    ("name", "values", "best"),
    [("nll", [2.0, 1.0], 1.0), ("accuracy", [0.9, 0.8], 0.9), ("coverage", [0.8, 0.93], 0.93)],
)
def test_the_best_value_of_a_metric_has_the_least_loss(name, values, best):
    assert min(values, key=metrics.TABLE[name].loss) == best
