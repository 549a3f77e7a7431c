"""How the estimator that fits is chosen: known tails, parts of a divergence, spread of samples."""

import math

import pytest
import torch
from scipy import integrate, stats
from torch.distributions import (
    Categorical,
    Cauchy,
    Gumbel,
    Laplace,
    MixtureSameFamily,
    Normal,
    StudentT,
)

import bayesdiv as bd
from bayesdiv.divergence.estimators import fair, tail_growth, tail_index


def number(value):
    return torch.tensor(value, dtype=torch.float64)


class OwnHeavy(StudentT):
    """A user's own family: nothing is registered for it."""


def heavy(df):
    shares = Categorical(number([0.5, 0.5]))
    return MixtureSameFamily(shares, StudentT(number([df, 30.0]), number([0.0, 1.0]), number(1.0)))


def test_a_cauchy_prior_makes_both_kls_together_infinite_not_a_sample_around_two():
    q = Normal(number(0.3), number(0.2))
    for prior in (Cauchy(number(0.0), number(1.0)), heavy(1.5)):
        values = {bd.WeightedKL(0.3)(q, prior).item() for _ in range(5)}
        assert values == {math.inf}
        assert bd.ReverseKL()(q, prior).item() == math.inf
        assert math.isfinite(bd.KL()(q, prior).item())


@pytest.mark.parametrize("df", [2.5, 3.0, 4.0])
def test_where_a_sample_has_no_variance_the_mean_is_integrated(df):
    """E_p[x²] exists and E_p[x⁴] does not: 2 < df ≤ 4."""
    q, prior = Normal(number(0.3), number(0.2)), heavy(df)
    peers = [stats.t(df), stats.t(30.0, 1.0)]

    def reverse(u, sign):
        x = sign * math.exp(u)
        p = sum(peer.pdf(x) for peer in peers) / 2
        return p * (math.log(p) - stats.norm(0.3, 0.2).logpdf(x)) * math.exp(u)

    wanted = sum(
        integrate.quad(reverse, low, low + 4, args=(sign,), epsabs=1e-11, limit=200)[0]
        for sign in (-1, 1)
        for low in range(-40, 120, 4)
    )
    assert bd.Auto().choose(bd.ReverseKL(), q, prior) == bd.Quadrature()
    assert bd.ReverseKL()(q, prior).item() == pytest.approx(wanted, rel=1e-7)


def test_each_half_of_a_divergence_takes_its_own_best_way():
    """The reverse half against Student's t has a closed form, the forward half is sampled."""
    q, prior = Normal(number(0.3), number(0.2)), StudentT(number(3.0), number(0.0), number(1.0))
    assert isinstance(bd.Auto().choose(bd.WeightedKL(0.3), q, prior), bd.Auto)
    torch.manual_seed(0)
    found = bd.WeightedKL(0.3)(q.expand([4000]), prior)
    assert found.std() < 0.5  # the reverse half alone, sampled, has no deviation at all
    own = stats.norm(0.3, 0.2)
    forward = own.expect(lambda x: own.logpdf(x) - stats.t(3).logpdf(x), epsabs=1e-12)
    variance = 3 + 0.3**2
    cross = 0.5 * math.log(2 * math.pi) + math.log(0.2) + variance / (2 * 0.2**2)
    wanted = 0.49 * forward + 0.09 * (cross - stats.t(3).entropy())
    assert abs(found.mean() - wanted) < 5 * found.std() / math.sqrt(4000)


def test_tails_are_read_off_the_density_of_any_family():
    for df in (1.0, 2.5, 7.0):
        assert tail_index(OwnHeavy(df)) == pytest.approx(df, abs=1e-6)
    assert tail_index(heavy(2.5)) == pytest.approx(2.5, abs=1e-6)
    assert tail_index(Laplace(0.0, 1.0)) == math.inf
    assert tail_growth(Gumbel(0.0, 1.0)) == math.inf
    assert not fair(OwnHeavy(3.0), Normal(0.0, 1.0), OwnHeavy(3.0))
    assert fair(OwnHeavy(3.0), StudentT(5.0), OwnHeavy(3.0))
    assert fair(Normal(0.0, 1.0), Normal(0.0, 1.0), OwnHeavy(3.0))


# The spread of JS-A from samples --------------------------------------------------------------


@pytest.mark.parametrize(
    ("prior", "alpha", "most"),
    [
        (StudentT(number(3.0), number(0.0), number(0.5)), 0.99, 1.5),
        (Normal(number(0.0), number(0.3)), 0.9, 0.8),
        (Laplace(number(0.0), number(0.2)), 0.99, 1.5),
    ],
    ids=["StudentT", "Normal", "Laplace"],
)
def test_samples_of_js_a_spread_little_where_q_is_wider(prior, alpha, most):
    """The single expectation under q spreads by 5.8, 1.6 and 6.1 here."""
    torch.manual_seed(0)
    q = Normal(torch.zeros(100_000).double(), number(5.0 if alpha == 0.99 else 1.5))
    found = bd.MonteCarlo()(bd.JSA(alpha), q, prior)
    assert found.std() < most
    wanted = bd.Quadrature()(bd.JSA(alpha), Normal(number(0.0), q.scale[0]), prior)
    assert abs(found.mean() - wanted) < 5 * found.std() / math.sqrt(100_000)


def test_the_gradient_of_js_a_from_samples_is_unbiased_where_q_is_wider():
    torch.manual_seed(0)
    loc, scale = torch.full((60_000,), 0.5), torch.full((60_000,), 2.0)
    q, p = Normal(loc.requires_grad_(), scale.requires_grad_()), Normal(0.0, 1.0)
    for alpha in (0.25, 0.9):
        sampled = torch.autograd.grad(bd.MonteCarlo(4)(bd.JSA(alpha), q, p).sum(), (loc, scale))
        exact = torch.autograd.grad(bd.Exact(96)(bd.JSA(alpha), q, p).sum(), (loc, scale))
        for one, two in zip(sampled, exact, strict=True):
            assert abs(one.mean() - two.mean()) < 5 * one.std() / math.sqrt(len(one))


def test_given_draws_are_made_up_to_the_samples_asked_for():
    torch.manual_seed(0)
    q, p = Normal(torch.zeros(20_000), 1.0), Laplace(0.0, 1.0)
    given = q.rsample(torch.Size([5]))
    spread = [
        bd.MonteCarlo(samples)(bd.JSA(0.3), q, p, weights=given).std() for samples in (5, 500)
    ]
    assert spread[0] / spread[1] == pytest.approx(10, rel=0.05)
    # Those given are among them.
    torch.manual_seed(1)
    more = q.sample(torch.Size([2]))
    torch.manual_seed(1)
    with torch.no_grad():
        found = bd.MonteCarlo(7)(bd.KL(), q, p, weights=given)
    everything = torch.cat([given, more])
    wanted = (q.log_prob(everything) - p.log_prob(everything)).mean(0)
    torch.testing.assert_close(found, wanted)
