"""Gaussian posteriors with correlation: densities, draws, and the exact posterior they reach."""

import pytest
import torch
from scipy import stats
from torch import nn
from torch.distributions import Laplace, Normal

import bayesdiv as bd
from bayesdiv.model.correlated import FullRank, LowRank

FAMILIES = pytest.mark.parametrize("family", [LowRank(rank=2), FullRank()], ids=repr)
LOC, SCALE = torch.tensor([1.0, -2.0, 0.5, 0.0]), torch.tensor([0.5, 2.0, 1.0, 0.1])


def bent(family, dtype=torch.float64):
    """A posterior away from its start, so that all of its parameters matter."""
    torch.manual_seed(1)
    posterior = family(LOC.to(dtype), SCALE.to(dtype))
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return posterior


@FAMILIES
def test_the_joint_density_is_that_of_scipy(family):
    posterior = bent(family)
    drawn = posterior.rsample(5).detach()
    covariance = posterior.distribution().covariance_matrix.detach().numpy()
    wanted = stats.multivariate_normal(posterior.mean.detach().numpy(), covariance).logpdf(drawn)
    assert posterior.log_prob(drawn).shape == (5,)
    assert torch.allclose(posterior.log_prob(drawn), torch.from_numpy(wanted))


@FAMILIES
def test_draws_have_the_mean_and_the_covariance_of_the_posterior(family):
    posterior = bent(family)
    torch.manual_seed(0)
    drawn = posterior.rsample(50_000).detach()
    assert torch.allclose(drawn.mean(0), posterior.mean, atol=0.03)
    covariance = posterior.distribution().covariance_matrix
    assert torch.allclose(drawn.T.cov(), covariance, atol=0.05, rtol=0.03)


@FAMILIES
def test_each_weight_starts_at_the_scale_it_is_given(family):
    posterior = family(LOC, SCALE)
    assert torch.allclose(posterior.distribution().stddev, SCALE, rtol=1e-5)
    assert torch.equal(posterior.mean, LOC)
    assert posterior.marginals() is None


@FAMILIES
def test_the_same_seed_makes_the_same_draws(family):
    posterior, seed = bent(family), torch.tensor(5)
    assert torch.equal(posterior.rsample(3, seed=seed), posterior.rsample(3, seed=seed))
    assert not torch.equal(posterior.rsample(3, seed=seed), posterior.rsample(3, seed=seed + 1))
    assert not torch.equal(posterior.rsample(3), posterior.rsample(3))
    assert posterior.rsample(3, torch.float32).dtype == torch.float32


@FAMILIES
def test_trials_are_independent(family):
    stack = family(torch.stack([LOC, -LOC]), SCALE)
    assert stack.rsample(7).shape == (7, 2, 4)
    assert stack.log_prob(stack.rsample(7)).shape == (7, 2)
    assert stack.mean.shape == (2, 4)


@pytest.mark.parametrize("rank", [0, -1])
def test_a_rank_below_one_is_refused(rank):
    with pytest.raises(ValueError, match=f"rank must be at least 1, got {rank}"):
        LowRank(rank)


@FAMILIES
def test_jsa_is_refused_with_what_to_use_instead(family):
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn(), posterior=family)
    objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=5)
    with pytest.raises(ValueError, match=r"JSA\(alpha=0.3\) is defined per weight .* use KL"):
        objective(net, torch.zeros(5, 3), torch.zeros(5))


@FAMILIES
@pytest.mark.parametrize("prior", [bd.FanIn(), bd.FanIn(family=Laplace)], ids=["normal", "laplace"])
def test_a_network_with_such_a_posterior_trains_predicts_and_stacks(family, prior):
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    y = x.sum(-1)
    nets = [
        bd.bayesianize(
            nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), prior, posterior=family
        )
        for _ in range(2)
    ]
    objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=40, samples=2)
    optimizer = torch.optim.Adam([*nets[0].parameters(), *objective.parameters()], lr=1e-2)
    losses = [
        e.loss.total
        for e in bd.fit(nets[0], objective, bd.Batches(x, y, 20), optimizer, 30, seed=0)
    ]
    assert losses[-1] < losses[0]
    assert bd.predict(nets[0], bd.Gaussian(), x, samples=5).mean.shape == (40,)
    with bd.at_mean(nets[0]):
        assert torch.equal(nets[0](x), nets[0](x))
    stack = bd.stacked(nets)
    assert bd.draw_weights(stack, 3)[0].shape == (3, 2, 21)
    other = bd.bayesianize(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), prior, posterior=family
    )
    other.load_state_dict(nets[0].state_dict())
    assert torch.equal(other.loc, nets[0].loc)


# The exact posterior of Bayesian linear regression ---------------------------------------------

ROWS, WEIGHTS, NOISE = 60, 4, 0.5


def regression():
    """Correlated inputs, targets with known noise, and the posterior by conjugacy."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, WEIGHTS, generator=generator, dtype=torch.float64)
    x = 0.6 * x + 0.8 * x[:, :1]
    noise = torch.randn(ROWS, generator=generator, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -0.5, 0.3, 0.0], dtype=torch.float64) + NOISE * noise
    precision = x.T @ x / NOISE**2 + torch.eye(WEIGHTS, dtype=torch.float64)
    covariance = torch.linalg.inv(precision)
    return x, y, covariance @ x.T @ y / NOISE**2, covariance


def fitted(family):
    torch.manual_seed(0)
    x, y, *_ = regression()
    module = nn.Linear(WEIGHTS, 1, bias=False, dtype=torch.float64)
    net = bd.bayesianize(module, bd.Prior(Normal, loc=0.0, scale=1.0), posterior=family)
    likelihood = bd.Gaussian(NOISE).double().requires_grad_(False)
    objective = bd.Objective(likelihood, bd.KL(), num_data=ROWS, samples=64)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
    for _ in bd.fit(net, objective, bd.Batches(x, y, ROWS), optimizer, 1000, seed=0):
        schedule.step()
    return net


@pytest.mark.parametrize("family", [FullRank(), LowRank(rank=WEIGHTS)], ids=repr)
def test_kl_at_strength_one_recovers_the_exact_posterior(family):
    *_, mean, covariance = regression()
    found = fitted(family).q()
    scale = covariance.diagonal().sqrt()
    assert (((found.mean - mean) / scale).abs() < 0.05).all()
    ratio = (found.covariance_matrix - covariance) / scale.outer(scale)
    assert (ratio.abs() < 0.05).all()


def test_independent_weights_cannot_recover_it():
    *_, covariance = regression()
    found = fitted(bd.MeanField).q()
    # The best product has the variances of each weight given all others.
    wanted = torch.linalg.inv(covariance).diagonal().reciprocal()
    assert torch.allclose(found.variance, wanted, rtol=0.05)
    assert (found.variance < 0.8 * covariance.diagonal()).any()
