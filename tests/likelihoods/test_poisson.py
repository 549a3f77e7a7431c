"""Counts: one file, and everything else follows from its distribution."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import bayesdiv as bd
from bayesdiv.predictive import Predictive

OUTPUTS = torch.tensor([[0.3], [-1.2], [2.0]])
COUNTS = torch.tensor([1.0, 0.0, 9.0])


def test_the_output_is_the_logarithm_of_the_rate():
    wanted = stats.poisson(np.exp(OUTPUTS[:, 0].double().numpy())).logpmf(COUNTS.numpy())
    found = bd.Poisson()(OUTPUTS).log_prob(COUNTS)
    assert torch.allclose(found.double(), torch.from_numpy(wanted), atol=1e-5)
    assert torch.equal(bd.Poisson()(OUTPUTS).log_prob(COUNTS.long()), found)


def test_several_outputs_are_independent_counts():
    conditional = bd.Poisson()(torch.zeros(4, 2))
    assert (conditional.batch_shape, conditional.event_shape) == ((4,), (2,))


@pytest.fixture(scope="module")
def predictive():
    """Counts of 300 rows, learned, predicted for the same rows, with the truth."""
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 300).unsqueeze(-1)
    y = torch.poisson((0.5 + x[:, 0]).exp())
    net = bd.bayesianize(nn.Linear(1, 1), bd.FanIn(), start=0.1)
    objective = bd.Objective(bd.Poisson(), num_data=300)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in bd.fit(net, objective, bd.Batches(x, y, 100), optimizer, 60, seed=0):
        pass
    torch.manual_seed(1)
    return bd.predict(net, bd.Poisson(), x, samples=50), y, (0.5 + x[:, 0]).exp()


def test_a_network_learns_counts(predictive):
    found, _, rate = predictive
    assert torch.allclose(found.mean, rate, rtol=0.25)
    assert (found.aleatoric - found.mean).abs().max() < 1e-4  # of a Poisson they are one
    assert (found.epistemic > 0).all()


def test_intervals_and_metrics_follow(predictive):
    found, y, _ = predictive
    low, high = found.interval(0.9)
    assert torch.equal(low, low.round())
    assert (low >= 0).all()
    assert (high >= low).all()
    assert bd.metrics.coverage(found, y).item() >= 0.87
    rates = found.conditional.rate.double().numpy()
    each = stats.poisson(rates).logpmf(y.numpy())
    wanted = -np.log(np.exp(each).mean(0)).mean()
    assert bd.metrics.nll(found, y).item() == pytest.approx(wanted, rel=1e-4)
    assert bd.metrics.rmse(found, y).isfinite()
    drawn = found.sample(2000)
    assert torch.allclose(drawn.mean(0), found.mean, rtol=0.35, atol=0.1)


@pytest.mark.parametrize("bad", [-1.0, 0.5])
def test_targets_that_are_no_counts_are_refused(bad):
    found = Predictive(bd.Poisson()(torch.zeros(2, 1, 1)))
    with pytest.raises(ValueError, match=rf"targets must be counts 0, 1, 2, …, got {bad}"):
        found.log_prob(torch.tensor([bad]))
