"""Likelihoods of positive targets, of overdispersed counts and of several modes, against SciPy."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import NegativeBinomial as Counted

from bayesdiv import quantiles
from bayesdiv.likelihoods import Gamma, GaussianMixture, LogNormal, NegativeBinomial
from bayesdiv.predictive import Predictive
from bayesdiv.testing import check_likelihood

OUTPUTS = torch.tensor([[0.3, -1.0], [-1.2, 0.4], [2.0, 1.0]], dtype=torch.float64)
SPREAD = 0.5 * (0.01 + np.logaddexp(0, OUTPUTS[:, 1].numpy() + 0.2))
CENTRE = 1.0 + 0.5 * OUTPUTS[:, 0].numpy()
SETTINGS = {"shift": 0.2, "centre": 1.0, "width": 0.5}


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [
        (LogNormal(width=0.3), 2),
        (Gamma(), 2),
        (Gamma(width=torch.tensor([0.3, 2.0])), 4),
        (NegativeBinomial(centre=1.0), 2),
        (GaussianMixture(), 9),
        (GaussianMixture(components=2), 12),
    ],
    ids=repr,
)
def test_they_keep_what_likelihoods_promise(likelihood, outputs):
    check_likelihood(likelihood, outputs)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (LogNormal, stats.lognorm(SPREAD, scale=np.exp(CENTRE))),
        (Gamma, stats.gamma(SPREAD**-2, scale=np.exp(CENTRE) * SPREAD**2)),
    ],
)
def test_positive_targets_have_the_density_of_scipy_and_intervals_above_zero(kind, wanted):
    found = kind(**SETTINGS).double()(OUTPUTS)
    y = torch.tensor([0.5, 3.0, 20.0], dtype=torch.float64)
    assert np.allclose(found.log_prob(y), wanted.logpdf(y))
    low, high = Predictive(kind(**SETTINGS).double()(OUTPUTS.unsqueeze(0))).interval(0.9)
    assert np.allclose(low, wanted.ppf(0.05))
    assert np.allclose(high, wanted.ppf(0.95))
    assert (low > 0).all()


def test_counts_have_the_mass_of_scipy():
    found = NegativeBinomial(**SETTINGS).double()(OUTPUTS)
    size, mean = SPREAD**-2, np.exp(CENTRE)
    wanted = stats.nbinom(size, size / (size + mean))
    y = torch.tensor([0.0, 3.0, 20.0], dtype=torch.float64)
    assert np.allclose(found.log_prob(y), wanted.logpmf(y))
    assert np.allclose(found.variance, mean + (SPREAD * mean) ** 2)
    low, high = Predictive(NegativeBinomial(**SETTINGS).double()(OUTPUTS.unsqueeze(0))).interval()
    assert np.array_equal(low, wanted.ppf(0.05))
    assert np.array_equal(high, wanted.ppf(0.95))


@pytest.mark.parametrize(
    ("size", "share", "counts"),
    [
        (0.5, 0.3, [-1, 0, 1, 5, 50]),
        (1e4, 0.01, [50, 80, 101, 130]),
        (3.0, 0.999, [100, 2000, 3000, 9000]),
        (100.0, 0.99, [8000, 9900, 12000]),
    ],
)
def test_the_distribution_function_of_counts_is_that_of_scipy(size, share, counts):
    at = torch.tensor(counts, dtype=torch.float64)
    counted = Counted(torch.full_like(at, size), probs=torch.full_like(at, share))
    wanted = stats.nbinom.cdf(counts, size, 1 - share)
    assert np.allclose(quantiles.cdf(counted, at), wanted, rtol=0, atol=1e-10)


def test_a_mixture_is_the_sum_of_its_normals():
    outputs = torch.tensor([[0.2, -0.1, 0.5, -0.3, 1.0, -1.0]], dtype=torch.float64)
    found = GaussianMixture(components=2, smallest=0.1).double()(outputs)
    shares = np.exp([0.5, -0.3]) / np.exp([0.5, -0.3]).sum()
    each = stats.norm([0.2 - 1, -0.1 + 1], 0.1 + np.logaddexp(0, [1.0, -1.0]))
    assert found.log_prob(torch.tensor([0.4]))[0].item() == pytest.approx(
        np.log(shares @ each.pdf(0.4))
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Gamma()(torch.zeros(2, 3)), "two per target"),
        (lambda: GaussianMixture()(torch.zeros(2, 8)), "outputs must be 9 per target"),
        (lambda: GaussianMixture(components=1), "components must be at least 2, got 1"),
        (lambda: LogNormal(width=0.0), "width must be positive and finite, got 0.0"),
    ],
)
def test_what_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
