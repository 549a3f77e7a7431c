"""Scores of whole distributions against integration, SciPy and scikit-learn."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import Categorical, Independent, LogNormal, Normal, Poisson, StudentT

from bayesdiv import metrics
from bayesdiv.predictive import Predictive

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def mixture(dtype: torch.dtype = torch.float64, rows: int = 12) -> tuple[Predictive, Tensor]:
    generator = torch.Generator().manual_seed(0)
    loc = 2 * torch.randn(5, rows, generator=generator, dtype=dtype)
    scale = torch.rand(5, rows, generator=generator, dtype=dtype) + 0.2
    y = 3 * torch.randn(rows, generator=generator, dtype=dtype)
    return Predictive(Normal(loc, scale)), y


def integrated(cdf: object, y: float) -> float:
    """∫ (F(z) - [y ≤ z])² dz, on both sides of y."""
    below = integrate.quad(lambda z: cdf(z) ** 2, -math.inf, y, limit=200)[0]
    return below + integrate.quad(lambda z: (1 - cdf(z)) ** 2, y, math.inf, limit=200)[0]


@dtypes
def test_crps_of_mixtures_of_gaussians_agrees_with_integration(dtype):
    predictive, y = mixture(dtype)
    loc, scale = (
        t.double().numpy() for t in (predictive.marginals.loc, predictive.marginals.scale)
    )
    wanted = [
        integrated(lambda z, i=i: stats.norm.cdf(z, loc[:, i], scale[:, i]).mean(), y[i].item())
        for i in range(len(y))
    ]
    found = metrics.crps(predictive, y)
    assert found.item() == pytest.approx(np.mean(wanted), rel=1e-5)
    assert found.dtype == dtype


def test_crps_of_a_certain_prediction_is_the_absolute_error():
    predictive = Predictive(Normal(torch.zeros(3, 2, dtype=torch.float64), 1e-9))
    y = torch.tensor([2.0, -4.0], dtype=torch.float64)
    assert metrics.crps(predictive, y).item() == pytest.approx(3)


@pytest.mark.parametrize(
    ("family", "cdf"),
    [
        (lambda loc: StudentT(5.0, loc, 1.0), lambda z, m: stats.t.cdf(z, 5, m)),
        (lambda loc: LogNormal(loc, 0.5), lambda z, m: stats.lognorm.cdf(z, 0.5, scale=np.exp(m))),
    ],
)
def test_crps_by_samples_agrees_with_integration(family, cdf):
    torch.manual_seed(0)
    loc = torch.tensor([[0.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    y = torch.tensor([0.5, 3.0], dtype=torch.float64)
    each = loc.mT.numpy()
    wanted = [integrated(lambda z, i=i: cdf(z, each[i]).mean(), y[i].item()) for i in (0, 1)]
    found = metrics.crps(Predictive(family(loc)), y, count=200_000).item()
    assert found == pytest.approx(np.mean(wanted), rel=0.02)


def test_crps_by_samples_has_no_bias_with_few_of_them():
    torch.manual_seed(0)
    exact = metrics.crps(
        Predictive(Normal(torch.zeros(1, 1).double(), 1.0)), torch.ones(1).double()
    )
    rows = 20_000
    heavy = Predictive(StudentT(1e6, torch.zeros(1, rows).double(), 1.0))
    found = metrics.crps(heavy, torch.ones(rows).double(), count=4)
    assert found.item() == pytest.approx(exact.item(), abs=5 * 0.6 / math.sqrt(rows))


def test_crps_needs_two_samples():
    with pytest.raises(ValueError, match="count must be at least 2, got 1"):
        metrics.crps(Predictive(StudentT(3.0, torch.zeros(1, 2), 1.0)), torch.zeros(2), count=1)


@dtypes
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_pinball_agrees_with_scikit_learn(probability, dtype):
    predictive, y = mixture(dtype, rows=80)
    quantile = predictive.quantile(probability)
    wanted = sklearn.metrics.mean_pinball_loss(y, quantile, alpha=probability)
    assert metrics.pinball(predictive, y, probability).item() == pytest.approx(wanted, rel=1e-5)


def test_crps_is_twice_the_pinball_loss_averaged_over_all_quantiles():
    predictive, y = mixture()
    points, weights = np.polynomial.legendre.leggauss(60)
    each = [metrics.pinball(predictive, y, (1 + p) / 2).item() for p in points]
    assert metrics.crps(predictive, y).item() == pytest.approx(np.dot(weights, each), rel=2e-3)


def test_pit_agrees_with_scipy_and_several_outputs_keep_their_shape():
    predictive, y = mixture()
    marginals = predictive.marginals
    wanted = stats.norm.cdf(y, marginals.loc, marginals.scale).mean(0)
    np.testing.assert_allclose(metrics.pit(predictive, y), wanted, rtol=1e-6)
    several = Predictive(Independent(Normal(torch.zeros(1, 4, 3), 1.0), 1))
    assert metrics.pit(several, torch.zeros(4, 3)).shape == (4, 3)


@pytest.mark.parametrize(
    "conditional",
    [
        Normal(torch.randn(4, 3000), 1.0),
        StudentT(4.0, torch.randn(4, 3000)),
        Poisson(torch.rand(4, 3000) * 5),
    ],
    ids=lambda d: type(d).__name__,
)
def test_pit_of_targets_from_the_predictive_is_even(conditional):
    torch.manual_seed(1)
    predictive = Predictive(conditional)
    which = torch.randint(4, (1, 3000))
    y = conditional.sample().gather(0, which).squeeze(0)  # of each row, another draw
    assert stats.kstest(metrics.pit(predictive, y).numpy(), "uniform").pvalue > 1e-3


def test_pit_shows_noise_that_is_too_small():
    torch.manual_seed(0)
    found = metrics.pit(Predictive(Normal(torch.zeros(1, 2000), 0.5)), torch.randn(2000))
    assert stats.kstest(found.numpy(), "uniform").pvalue < 1e-10


def test_sharpness_is_the_mean_standard_deviation():
    predictive, y = mixture()
    marginals = predictive.marginals
    variance = (marginals.scale**2).numpy().mean(0) + marginals.loc.numpy().var(0)
    assert metrics.sharpness(predictive, y).item() == pytest.approx(np.sqrt(variance).mean())


@pytest.mark.parametrize("metric", [metrics.pit, metrics.crps])
def test_distributions_of_classes_are_refused(metric):
    with pytest.raises(ValueError, match="needs targets that are numbers, got classes"):
        metric(Predictive(Categorical(torch.ones(1, 2, 3))), torch.zeros(2))
