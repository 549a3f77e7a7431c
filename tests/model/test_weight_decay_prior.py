"""Recipes: the prior that equals weight decay, for any divergence."""

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.model.priors import WeightDecayPrior, matrices, pull


def jsa_by_quadrature(m: float, r: float, alpha: float) -> float:
    def mixed(x: float) -> float:
        return alpha * norm.pdf(x, m, r) + (1 - alpha) * norm.pdf(x)

    def part(density, x: float) -> float:
        value = density(x)
        return value * math.log(value / mixed(x)) if value > 0 else 0.0

    wide = {"limit": 400, "epsabs": 1e-13, "points": [m - 4 * r, m, m + 4 * r]}
    first = quad(lambda x: part(lambda t: norm.pdf(t, m, r), x), m - 12 * r, m + 12 * r, **wide)
    second = quad(lambda x: part(norm.pdf, x), -12, 12, **wide)
    return (1 - alpha) * first[0] + alpha * second[0]


@pytest.mark.parametrize("ratio", [0.02, 0.3, 1.0, 3.0])
def test_kl_pulls_alike_at_every_ratio(ratio):
    assert pull(bd.KL(), ratio) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("ratio", [0.1, 0.25, 1.0, 2.0])
def test_jsg_pulls_as_its_formula_says(alpha, ratio):
    square = ratio**2
    wanted = ((1 - alpha) ** 3 * square + alpha**3 / square) / ((1 - alpha) * square + alpha)
    assert pull(bd.JSG(alpha), ratio) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(("alpha", "ratio"), [(0.5, 1.0), (0.3, 0.4), (0.5, 0.1)])
def test_jsa_pulls_as_dense_integration_says(alpha, ratio):
    m = 0.05 * ratio
    low, middle, high = (jsa_by_quadrature(shift, ratio, alpha) for shift in (-m, 0.0, m))
    curvature = (low - 2 * middle + high) / m**2
    assert pull(bd.JSA(alpha), ratio) == pytest.approx(curvature, rel=5e-3)


def test_the_prior_moves_a_mean_like_weight_decay():
    weight = torch.tensor([[0.7, -0.2, 0.01]])
    layer = nn.Linear(3, 1, bias=False)
    layer.weight.data = weight
    prior = WeightDecayPrior(5e-3, num_data=200, strength=0.3)
    net = bd.bayesianize(layer, prior)
    divergence = bd.KL()(net.q(), net.p()).sum()
    (gradient,) = torch.autograd.grad(0.3 / 200 * divergence, net.posterior.loc)
    assert torch.allclose(gradient, 5e-3 * weight[0], rtol=1e-4)


def test_the_pull_of_another_divergence_agrees_at_the_stated_ratio():
    prior = WeightDecayPrior(1e-3, 1000, strength=2.0, divergence=bd.JSA(0.5), ratio=0.2)
    m = torch.tensor(1e-4, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor(prior.scale, dtype=torch.float64)
    value = bd.JSA(0.5)(Normal(m, 0.2 * scale), Normal(torch.zeros_like(m), scale))
    (gradient,) = torch.autograd.grad(2.0 / 1000 * value, m)
    assert gradient.item() == pytest.approx(1e-3 * 1e-4, rel=1e-2)


def test_norms_and_biases_are_not_random():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    model = bd.bayesianize(net, WeightDecayPrior(5e-4, 100), where=matrices)
    assert [entry.names[0] for entry in model.layout.entries] == ["0.weight", "3.weight"]


@pytest.mark.parametrize("bad", [{"decay": 0.0}, {"strength": 0.0}, {"num_data": 0}])
def test_a_decay_or_strength_of_zero_is_refused(bad):
    with pytest.raises(ValueError, match="must be positive"):
        WeightDecayPrior(**{"decay": 5e-4, "num_data": 100} | bad)


def test_a_ratio_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="ratio must be positive, got 0"):
        pull(bd.KL(), 0)
