"""Quantiles where torch knows them, only the distribution function, or nothing but samples."""

import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch.distributions import (
    Binomial,
    Distribution,
    Exponential,
    Gamma,
    NegativeBinomial,
    Normal,
    Poisson,
    TransformedDistribution,
    VonMises,
    constraints,
)
from torch.distributions.transforms import ExpTransform

from bayesdiv import quantiles
from bayesdiv.predictive import Predictive


def quantile(distribution, probability):
    return quantiles.quantiles(distribution, probability)[0]


PROBABILITIES = pytest.mark.parametrize("probability", [0.001, 0.05, 0.5, 0.95, 0.999])
RATES = torch.tensor([[0.02, 0.8, 7.0, 1e3], [0.3, 4.0, 30.0, 1e5]], dtype=torch.float64)


@PROBABILITIES
def test_gamma_has_quantiles_by_its_distribution_function(probability):
    found = quantile(Gamma(torch.full((3, 1), 0.5).double(), 2.0), probability)
    assert found.item() == pytest.approx(stats.gamma.ppf(probability, 0.5, scale=0.5), rel=1e-6)


@PROBABILITIES
def test_a_mixture_of_gammas_reaches_the_probability(probability):
    shapes = RATES.clamp(min=0.3)
    found = quantile(Gamma(shapes, shapes.flip(0)), probability).numpy()
    below = stats.gamma.cdf(found, shapes.numpy(), scale=1 / shapes.flip(0).numpy()).mean(0)
    np.testing.assert_allclose(below, probability, rtol=1e-6)


def least_count(mixture, probability, most=2_000_000):
    """The least count that a mixture of SciPy's distributions reaches a probability at."""
    low, high = -1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if mixture(middle) >= probability else (middle, high)
    return high


@PROBABILITIES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counts_are_the_least_that_reach_the_probability(probability, dtype):
    found = quantile(Poisson(RATES.to(dtype)), probability)
    assert found.dtype == dtype
    wanted = [
        least_count(lambda k, r=rates: stats.poisson.cdf(k, r).mean(), probability)
        for rates in RATES.T.numpy()
    ]
    assert found.tolist() == wanted


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_the_distribution_function_of_counts_takes_integers_too(dtype):
    counts = torch.tensor([[0, 3, 12]])
    overdispersed = NegativeBinomial(
        torch.full((1, 3), 2.5).double(), torch.tensor(0.6, dtype=torch.float64)
    )
    for found, wanted in (
        (overdispersed, stats.nbinom(2.5, 0.4)),
        (Poisson(torch.full((1, 3), 4.0).double()), stats.poisson(4.0)),
    ):
        below = quantiles.cdf(found, counts.to(dtype)).numpy()
        np.testing.assert_allclose(below, wanted.cdf(counts.numpy()), rtol=1e-9)


@PROBABILITIES
def test_counts_without_a_distribution_function_are_added_up(probability):
    total, share = torch.tensor([[3.0], [90.0]]).double(), torch.tensor([[0.3], [0.6]]).double()
    found = quantile(NegativeBinomial(total, share), probability).item()
    wanted = least_count(
        lambda k: stats.nbinom.cdf(k, total.numpy(), 1 - share.numpy()).mean(), probability
    )
    assert found == wanted
    bounded = quantile(Binomial(total, share), probability).item()
    wanted = least_count(
        lambda k: stats.binom.cdf(k, total.numpy(), share.numpy()).mean(), probability
    )
    assert bounded == wanted


@PROBABILITIES
def test_a_distribution_torch_can_only_sample_has_quantiles_too(probability):
    loc = torch.tensor([[0.3], [0.5]]).double()
    found = quantile(VonMises(loc, 4.0), probability).item()
    below = stats.vonmises.cdf(found, 4.0, loc.numpy()).mean()
    assert below == pytest.approx(probability, abs=0.012)


def test_quantiles_by_samples_repeat_and_leave_the_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = quantile(VonMises(torch.zeros(2, 1), 4.0), 0.9)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(quantile(VonMises(torch.zeros(2, 1), 4.0), 0.9), first)


def test_mean_and_variance_come_from_samples_where_torch_has_none():
    twice = TransformedDistribution(Normal(torch.zeros(4, 2), 0.3), [ExpTransform()])
    wanted = stats.lognorm(0.3)
    assert torch.allclose(quantiles.mean(twice), torch.tensor(wanted.mean()).float(), rtol=0.02)
    assert torch.allclose(quantiles.variance(twice), torch.tensor(wanted.var()).float(), rtol=0.1)
    predictive = Predictive(twice)
    assert predictive.mean[0].item() == pytest.approx(wanted.mean(), rel=0.02)
    assert predictive.quantile(0.9)[0].item() == pytest.approx(wanted.ppf(0.9), rel=1e-5)


def test_an_exponential_has_a_quantile_by_its_inverse():
    found = quantile(Exponential(torch.tensor([[1.0], [5.0]]).double()), 0.7).item()
    mixture = lambda x: np.mean([stats.expon.cdf(x), stats.expon.cdf(5 * x)]) - 0.7  # noqa: E731
    assert found == pytest.approx(optimize.brentq(mixture, 0, 10), rel=1e-8)


class Bare(Distribution):
    """Neither a distribution function nor anything else."""

    support = constraints.real
    arg_constraints = {}  # noqa: RUF012


def test_a_distribution_function_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="Bare has no distribution function"):
        quantiles.cdf(Bare(torch.Size([2, 1]), validate_args=False), torch.zeros(1))


class Heavy(Distribution):
    """A Cauchy distribution that knows neither its quantiles nor, as there are none, moments."""

    arg_constraints: ClassVar = {}
    support = constraints.real

    def __init__(self, loc):
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)

    @property
    def mean(self):
        return torch.full_like(self.loc, math.nan)

    variance = mean

    def cdf(self, value):
        return (value - self.loc).atan() / math.pi + 0.5

    def log_prob(self, value):
        return -((value - self.loc).square().log1p()) - math.log(math.pi)


@pytest.mark.parametrize("probability", [1e-6, 0.05, 0.5, 0.999])
def test_a_distribution_without_moments_has_quantiles_too(probability):
    found = quantile(Heavy(torch.full((2, 1), 3.0).double()), probability)
    expected = stats.cauchy(3.0).ppf(probability)
    assert found.item() == pytest.approx(expected, rel=1e-7, abs=1e-7)
