"""Distribution functions by areas, against SciPy."""

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.distributions import NegativeBinomial, StudentT

from bayesdiv import quantiles
from bayesdiv.quantiles import beta, beta_in_graph, upper_gamma_in_graph


def spread(low: float, high: float, count: int) -> torch.Tensor:
    return torch.logspace(low, high, count, dtype=torch.float64)


def test_the_incomplete_gamma_function_is_scipys():
    a, ratio = spread(-2, 6, 60).unsqueeze(-1), spread(-2, 2, 61)
    found = upper_gamma_in_graph(a, a * ratio)
    assert np.abs(found.numpy() - special.gammaincc(a.numpy(), (a * ratio).numpy())).max() < 1e-6


@pytest.mark.parametrize("df", [0.5, 1.0, 2.5, 4.0, 30.0, 1000.0])
def test_students_distribution_function_is_scipys(df):
    t = torch.cat([-spread(-3, 3, 60), spread(-3, 3, 60)])
    found = quantiles.cdf(StudentT(torch.full((1, len(t)), df), 0.0, 1.0), t).squeeze(0)
    assert np.abs(found.numpy() - stats.t(df).cdf(t.numpy())).max() < 1e-6


@pytest.mark.parametrize("mean", [0.01, 1.0, 50.0, 1e4])
@pytest.mark.parametrize("total", [0.3, 1.0, 7.5, 1e5])
def test_the_distribution_function_of_overdispersed_counts_is_scipys(mean, total):
    probability = mean / (mean + total)
    counts = torch.tensor([0.0, 1, 2, 3, 10, 40, 60, 100, 9e3, 1e4, 1.2e4, 1e5]).double()
    given = torch.tensor([total, probability], dtype=torch.float64)
    wanted = stats.nbinom(total, 1 - probability).cdf(counts.numpy())
    for function in (beta, beta_in_graph):
        found = function(given[0], counts + 1, -given[1].logit()).numpy()
        assert np.abs(found - wanted).max() < 1e-6
    one = NegativeBinomial(*given)
    assert quantiles.cdf(one, torch.tensor(-1.0)).item() == 0
