"""Alpha and order next to their ends: values and derivatives against mpmath."""

import math

import mpmath as mp
import pytest
import torch
from torch.distributions import Laplace, Normal, Uniform

import bayesdiv as bd
from bayesdiv.divergence import LearnedAlpha

NEAR_THE_ENDS = [1e-6, 1e-5, 1e-4, 1e-2, 0.3, 0.99, 0.9999, 0.99999, 1 - 1e-6]
PAIRS = [(0.5, 0.4), (0.0, 1.0), (1.0, 2.5), (3.0, 0.1)]


def single(value):
    return torch.tensor(value, dtype=torch.float32)


def by_alpha(alpha, loc, scale, p=None, cuts=None):
    """∂/∂α of (1-α) KL(q ‖ A) + α KL(p ‖ A) in 30 digits, by integrating the derivative."""
    with mp.workdps(30):
        a, loc, scale = mp.mpf(alpha), mp.mpf(loc), mp.mpf(scale)
        p = p or (lambda x: mp.npdf(x))

        def integrand(x):
            one, two = mp.npdf(x, loc, scale), p(x)
            if two == 0:  # A = α q: the term is -(1-α) log α, weighted by q
                return one * (mp.log(a) - (1 - a) / a)
            mean = a * one + (1 - a) * two
            by_mean = ((1 - a) * one + a * two) * (one - two) / mean
            return two * mp.log(two / mean) - (one * mp.log(one / mean) if one else 0) - by_mean

        wide = [loc + k * scale for k in (-14, -9, -6, -4, -2, -1, 0, 1, 2, 4, 6, 9, 14)]
        own = cuts or [-14, -9, -6, -4, -2, -1, 0, 1, 2, 4, 6, 9, 14]
        return float(mp.quad(integrand, sorted({*map(mp.mpf, own), *wide})))


@pytest.mark.parametrize(("loc", "scale"), PAIRS)
@pytest.mark.parametrize("alpha", NEAR_THE_ENDS)
def test_js_a_has_the_right_derivative_by_alpha_in_float32(alpha, loc, scale):
    given = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    q = Normal(single(loc), single(scale))
    value = bd.JSA(given)(q, Normal(single(0.0), single(1.0)))
    assert value.dtype == torch.float32
    (found,) = torch.autograd.grad(value, given)
    wanted = by_alpha(alpha, q.loc.item(), q.scale.item())
    assert found.item() == pytest.approx(wanted, rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("alpha", [1e-4, 0.3, 0.9999])
def test_an_alpha_in_float32_has_the_derivative_of_the_number_it_holds(alpha):
    given = single(alpha).requires_grad_()
    q = Normal(single(0.5), single(0.4))
    (found,) = torch.autograd.grad(bd.JSA(given)(q, Normal(single(0.0), single(1.0))), given)
    wanted = by_alpha(given.item(), q.loc.item(), q.scale.item())
    assert found.item() == pytest.approx(wanted, rel=2e-5, abs=2e-5)


@pytest.mark.parametrize("alpha", [1e-4, 0.3, 0.9999])
def test_js_a_against_a_uniform_has_the_right_derivative_by_alpha(alpha):
    given = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    q = Normal(single(0.5), single(0.4))
    (found,) = torch.autograd.grad(bd.JSA(given)(q, Uniform(single(-1.0), single(1.0))), given)
    wanted = by_alpha(
        alpha,
        q.loc.item(),
        q.scale.item(),
        p=lambda x: mp.mpf(0.5) if -1 < x < 1 else mp.mpf(0),
        cuts=[-1, -0.5, 0, 0.5, 1],
    )
    assert found.item() == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_a_step_out_of_the_range_is_refused_not_nan():
    alpha = torch.tensor(0.1, requires_grad=True)
    divergence, q = bd.JSA(alpha), Normal(0.5, 0.4)
    with torch.no_grad():
        alpha -= 0.2
    for prior in (Normal(0.0, 1.0), Laplace(0.0, 1.0)):
        with pytest.raises(ValueError, match=r"inside \(0, 1\), got -0.1.*use LearnedAlpha"):
            divergence(q, prior)


@pytest.mark.parametrize("family", [bd.JSA, bd.JSG, bd.WeightedKL])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_learned_alpha_stays_inside_whatever_the_optimizer_does(family, sign):
    alpha = LearnedAlpha(0.5)
    optimizer = torch.optim.SGD(alpha.parameters(), lr=1e4)
    q = Normal(torch.tensor([0.5, 1.0]), torch.tensor([0.4, 2.0]))
    for _ in range(20):
        loss = sign * family(alpha())(q, Normal(0.0, 1.0)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert loss.isfinite()
        assert 0 < alpha().item() < 1
        assert alpha.logit.grad.isfinite()


def test_a_learned_alpha_begins_where_it_is_told_and_refuses_the_ends():
    alpha = LearnedAlpha(torch.tensor([[0.1], [0.9]]))
    torch.testing.assert_close(alpha().float(), torch.tensor([[0.1], [0.9]]))
    for bad in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"initial must lie inside \(1e-6, 1 - 1e-6\)"):
            LearnedAlpha(bad)


# Rényi next to order 1 ------------------------------------------------------------------------

ORDERS = [0.9, 0.999, 0.99999, 0.999999, 1 - 1e-10, 1 + 1e-15, 1.000001, 1.001, 1.2]


def renyi(order, loc, scale):
    with mp.workdps(40):
        order, delta, ratio = (mp.mpf(x) for x in (order, loc, scale))
        v = (1 - order) * ratio**2 + order
        return mp.log(v) / (2 * (1 - order)) - mp.log(ratio) + order * delta**2 / (2 * v)


@pytest.mark.parametrize("order", ORDERS)
def test_renyi_next_to_order_one_is_right_in_float32_and_never_negative(order):
    for loc in (0.0, 0.01, 0.3, 2.0):
        for scale in (0.05, 0.9, 0.9999, 1.0001, 1.1, 2.0):
            q = Normal(single(loc), single(scale))
            found = bd.Renyi(order)(q, Normal(single(0.0), single(1.0))).item()
            wanted = float(renyi(order, q.loc.item(), q.scale.item()))
            assert found >= 0
            assert found == pytest.approx(wanted, rel=3e-6, abs=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_renyi_next_to_order_one_is_integrated_without_loss(order):
    q = Normal(torch.tensor(0.3).double(), torch.tensor(0.9).double())
    found = bd.Quadrature()(bd.Renyi(order), q, Normal(torch.zeros(()).double(), 1.0))
    assert found.item() == pytest.approx(
        float(renyi(order, q.loc.item(), q.scale.item())), rel=1e-6
    )
