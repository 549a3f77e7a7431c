"""The ways to compute a divergence, what they refuse, and how they agree."""

import math
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch.distributions import (
    Bernoulli,
    Beta,
    Cauchy,
    Distribution,
    Exponential,
    Gamma,
    Gumbel,
    HalfNormal,
    Independent,
    Laplace,
    MultivariateNormal,
    Normal,
    StudentT,
    Uniform,
    constraints,
)

import bayesdiv as bd
from bayesdiv.compute.backend import prepare
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG
from bayesdiv.divergence.base import Points
from bayesdiv.divergence.estimators import NoExactForm

Q, P = Normal(0.5, 0.4), Normal(0.0, 1.0)


def number(value):
    return torch.tensor(value, dtype=torch.float64)


# Monte Carlo ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "divergence",
    [bd.KL(), bd.ReverseKL(), bd.WeightedKL(0.3), bd.JSA(0.3), bd.JSG(0.3), bd.JSA(0.9)],
    ids=repr,
)
def test_monte_carlo_with_1e5_samples_is_within_five_standard_errors_of_exact(divergence):
    torch.manual_seed(0)
    q, p = Normal(number([0.5, 0.1]), number([0.4, 0.9])), Normal(number(0.0), number(1.0))
    groups = torch.stack([bd.MonteCarlo(4000)(divergence, q, p) for _ in range(25)])
    error = groups.std(0) / 5
    assert ((groups.mean(0) - bd.Exact(96)(divergence, q, p)).abs() < 5 * error).all()


def test_monte_carlo_is_a_mean_over_samples_not_a_sum():
    torch.manual_seed(0)
    few, many = (bd.MonteCarlo(n)(bd.KL(), Q, P).item() for n in (50_000, 200_000))
    assert few == pytest.approx(many, rel=0.05)


def test_monte_carlo_gradient_is_unbiased():
    torch.manual_seed(0)
    loc, scale = torch.full((40_000,), 0.5), torch.full((40_000,), 0.4)
    q = Normal(loc.requires_grad_(), scale.requires_grad_())
    for divergence in (bd.KL(), bd.WeightedKL(0.4), bd.JSA(0.25)):
        sampled = torch.autograd.grad(bd.MonteCarlo(10)(divergence, q, P).sum(), (loc, scale))
        exact = torch.autograd.grad(bd.Exact(40)(divergence, q, P).sum(), (loc, scale))
        for one, two in zip(sampled, exact, strict=True):
            error = one.std() / math.sqrt(len(one))
            assert abs(one.mean() - two.mean()) < 5 * error


def test_monte_carlo_uses_the_weights_of_the_forward_pass():
    weights = torch.tensor([[0.3], [0.9]])
    q = Normal(torch.tensor([0.5]), 0.4)
    value = bd.MonteCarlo()(bd.KL(), q, P, weights=weights)
    assert torch.allclose(value, (q.log_prob(weights) - P.log_prob(weights)).mean(0))


class NeverSampled(Normal):
    def sample(self, *shape):
        raise AssertionError("the prior was sampled")

    rsample = sample


def test_js_a_and_kl_need_no_samples_of_the_prior():
    prior = NeverSampled(0.0, 1.0)
    prior.expand = lambda shape: prior
    for divergence in (bd.KL(), bd.JSA(0.3), UnmodifiedJSA(0.3), bd.TotalVariation()):
        assert bd.MonteCarlo(10)(divergence, Q, prior).isfinite()
    with pytest.raises(AssertionError, match="the prior was sampled"):
        bd.MonteCarlo(10)(bd.ReverseKL(), Q, prior)


def test_pathwise_monte_carlo_against_a_uniform_prior_is_refused_only_for_a_learned_posterior():
    prior = Uniform(-5.0, 5.0)
    learned = Normal(torch.tensor(4.5, requires_grad=True), 1.0)
    with pytest.raises(ValueError, match="wrong gradient against Uniform"):
        bd.MonteCarlo(10)(bd.JSA(0.25), learned, prior)
    with torch.no_grad():
        assert bd.MonteCarlo(10)(bd.JSA(0.25), learned, prior).isfinite()
    assert bd.MonteCarlo(10)(bd.JSA(0.25), Normal(4.5, 1.0), prior).isfinite()


def test_uniform_prior_has_the_right_gradient_where_samples_do_not():
    """True ∂/∂loc is 0.1821 (mathematics of the errata); a sample's converges to 0."""
    loc = torch.tensor(4.5, dtype=torch.float64, requires_grad=True)
    for estimator in (bd.Auto(), bd.Quadrature()):
        value = estimator(
            bd.JSA(0.25), Normal(loc, number(1.0)), Uniform(number(-5.0), number(5.0))
        )
        (gradient,) = torch.autograd.grad(value, loc)
        assert gradient.item() == pytest.approx(0.1821, abs=1e-4)


@pytest.mark.parametrize(
    "divergence", [bd.JSG(0.3), UnmodifiedJSG(0.3), bd.Renyi(0.5), bd.ChiSquared()], ids=repr
)
def test_the_logarithm_of_a_mean_is_refused_below_1000_samples(divergence):
    with pytest.raises(ValueError, match=r"got 999: use Quadrature\(\) or MonteCarlo\("):
        bd.MonteCarlo(999)(divergence, Q, Laplace(0.0, 1.0))
    assert not bd.MonteCarlo(1000)(divergence, Q, Laplace(0.0, 1.0)).isnan()


# Quadrature ----------------------------------------------------------------------------------

FAMILIES = [
    (Laplace(number(0.0), number(0.3)), stats.laplace(0.0, 0.3)),
    (StudentT(number(4.0), number(0.2), number(0.5)), stats.t(4.0, 0.2, 0.5)),
    (Cauchy(number(0.0), number(1.0)), stats.cauchy(0.0, 1.0)),
    (Gumbel(number(0.0), number(1.0)), stats.gumbel_r(0.0, 1.0)),
    (HalfNormal(number(1.0)), stats.halfnorm(0.0, 1.0)),
    (Gamma(number(2.0), number(1.5)), stats.gamma(2.0, 0.0, 1 / 1.5)),
    (Exponential(number(2.0)), stats.expon(0.0, 0.5)),
    (Beta(number(2.0), number(3.0)), stats.beta(2.0, 3.0)),
]


@pytest.mark.parametrize(("prior", "peer"), FAMILIES, ids=lambda x: type(x).__name__)
@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_quadrature_agrees_with_scipy_for_any_family(prior, peer):
    """JS-A and total variation as SciPy integrates them from its own densities."""
    q, own = Normal(number(0.4), number(0.25)), stats.norm(0.4, 0.25)
    alpha = 0.3

    def js_a(x):
        a, b = own.pdf(x), peer.pdf(x)
        mean = alpha * a + (1 - alpha) * b
        return (1 - alpha) * special.rel_entr(a, mean) + alpha * special.rel_entr(b, mean)

    def distance(x):
        return abs(own.pdf(x) - peer.pdf(x)) / 2

    far = [60.0, 1e3, 1e5, 1e7]
    cuts = [*(-x for x in reversed(far)), -2, 0, 0.2, 0.4, 0.6, 1, 2, 8, *far]
    with np.errstate(over="ignore"):
        wanted = [
            sum(integrate.quad(f, a, b, limit=400)[0] for a, b in pairwise(cuts))
            for f in (js_a, distance)
        ]
    found = [bd.Quadrature()(d, q, prior).item() for d in (bd.JSA(alpha), bd.TotalVariation())]
    assert found == pytest.approx(wanted, abs=1e-6 if isinstance(prior, Cauchy) else 1e-7)


def test_narrow_in_wide_is_seen():
    narrow, wide = Normal(number(3.0), number(1e-6)), Normal(number(0.0), number(1e3))
    for divergence in (bd.KL(), bd.JSA(0.3), bd.JSG(0.3)):
        assert bd.Quadrature()(divergence, narrow, wide).item() == pytest.approx(
            bd.Exact(96)(divergence, narrow, wide).item(), rel=1e-9
        )


def test_infinite_where_the_integral_diverges():
    q = Normal(number(0.0), number(1.0))
    assert bd.Quadrature()(bd.KL(), q, Uniform(number(-5.0), number(5.0))).item() == math.inf
    narrow = Normal(number(0.0), number(0.01))  # 500 scales inside: the density there underflows
    assert bd.Quadrature()(bd.KL(), narrow, Uniform(number(-5.0), number(5.0))).item() == math.inf
    for df in (1.0, 2.0):
        heavy = StudentT(number(df))
        assert bd.Quadrature()(bd.ReverseKL(), q, heavy).item() == math.inf
        assert bd.ReverseKL()(q, heavy).item() == math.inf
    assert bd.Quadrature()(bd.ReverseKL(), q, StudentT(number(2.5))).isfinite()
    assert bd.Quadrature()(bd.ChiSquared(), q, Laplace(number(0.0), number(1.0))).item() == math.inf
    assert bd.Renyi(3.0)(Normal(0.0, 2.0), P).item() == math.inf


def test_quadrature_works_in_blocks_whatever_the_shape(monkeypatch):
    q = Normal(torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(), 0.5)
    p = Laplace(torch.zeros(4), 1.0)
    whole = bd.Quadrature()(bd.JSA(0.3), q, p)
    (gradient,) = torch.autograd.grad(whole.sum(), q.loc)
    monkeypatch.setattr("bayesdiv.divergence.quadrature._NODES_AT_ONCE", 10_000)
    pieces = bd.Quadrature()(bd.JSA(0.3), q, p)
    assert whole.shape == (3, 4)
    assert whole.dtype == torch.float32
    assert torch.allclose(whole, pieces)
    assert torch.allclose(gradient, torch.autograd.grad(pieces.sum(), q.loc)[0])


def test_quadrature_keeps_no_nodes_for_the_backward_pass():
    q = Normal(torch.linspace(-1, 1, 50).requires_grad_(), 0.5)
    kept = 0

    def pack(tensor):
        nonlocal kept
        kept = max(kept, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        bd.Quadrature()(bd.JSA(0.3), q, Laplace(0.0, 1.0))
    assert kept <= 50


def test_panels_of_a_quadrature_hold_the_whole_mass():
    q, p = Normal(number([0.0]), number([1.0])), StudentT(number([3.0]))
    seen = []

    class Mass(bd.KL):
        def estimate(self, at_q, at_p):
            seen.extend((at_q, at_p))
            return at_q.mean(torch.ones_like(at_q.log_q)) + at_p.mean(torch.ones_like(at_p.log_q))

    assert bd.Quadrature()(Mass(), q, p).item() == pytest.approx(2.0, abs=1e-12)
    assert all(isinstance(points, Points) for points in seen)


# Auto and Exact ------------------------------------------------------------------------------


def test_auto_chooses_what_fits():
    choose = bd.Auto().choose
    assert choose(bd.KL(), Q, P) == bd.Exact()
    assert choose(bd.JSA(0.3), Q, P) == bd.Exact()
    assert choose(bd.JSA(0.3), Q, Uniform(-5.0, 5.0)) == bd.Exact()
    assert choose(bd.WeightedKL(0.3), Q, Laplace(0.0, 1.0)) == bd.Exact()
    assert choose(bd.JSA(0.3), Q, Laplace(0.0, 1.0)) == bd.MonteCarlo()
    assert choose(bd.JSG(0.3), Q, Laplace(0.0, 1.0)) == bd.Quadrature()
    assert choose(bd.JSA(0.3), Q, HalfNormal(1.0)) == bd.Quadrature()
    fallback = bd.MonteCarlo(7)
    assert bd.Auto(fallback).choose(bd.JSA(0.3), Q, StudentT(3.0)) == fallback


def test_exact_says_what_to_use_instead():
    with pytest.raises(NoExactForm, match=r"JSA\(alpha=0.3\) has no exact form for Normal"):
        bd.Exact()(bd.JSA(0.3), Q, Laplace(0.0, 1.0))


def test_more_nodes_come_closer_and_memory_does_not_grow_with_them():
    q = Normal(torch.linspace(-3, 3, 500, dtype=torch.float64).requires_grad_(), 0.3)
    p = Normal(number(0.0), number(1.0))
    right = bd.Quadrature()(bd.JSA(0.0729), q, p)
    errors, kept = [], []
    for nodes in (16, 40, 96):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t
        ):
            value = bd.Exact(nodes)(bd.JSA(0.0729), q, p)
        errors.append((value - right).abs().max().item())
        kept.append(sum(sizes))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-9
    assert kept[0] == kept[2] <= 4 * 500


# What is refused -----------------------------------------------------------------------------


class Silent(Distribution):
    arg_constraints: ClassVar = {}
    support = constraints.real

    def __init__(self):
        super().__init__(validate_args=False)


BAD = [
    (lambda: bd.JSA(1.5), ValueError, "alpha must lie in [0, 1], got 1.5"),
    (lambda: bd.JSG(-0.1), ValueError, "alpha must lie in [0, 1], got -0.1"),
    (lambda: bd.WeightedKL(math.nan), ValueError, "alpha must lie in [0, 1], got nan"),
    (lambda: bd.JSA("half"), TypeError, "alpha must be a number, got 'half'"),
    (lambda: bd.JSA(None), TypeError, "alpha must be a number, got None"),
    (
        lambda: bd.JSA(torch.tensor([0.2, 1.0])),
        ValueError,
        "an alpha given as a tensor must lie inside (0, 1), got [0.2",
    ),
    (lambda: bd.Renyi(-1.0), ValueError, "alpha must be finite and at least 0, got -1.0"),
    (lambda: bd.Renyi(math.inf), ValueError, "alpha must be finite and at least 0, got inf"),
    (
        lambda: bd.KL()(Normal(torch.zeros(3), 1.0), Normal(torch.zeros(4), 1.0)),
        ValueError,
        "the shapes of q and p must broadcast, got (3,) and (4,)",
    ),
    (lambda: bd.KL()(Silent(), P), TypeError, "q must have log_prob, which Silent lacks"),
    (lambda: bd.KL()(0.5, P), TypeError, "q must be a torch distribution, got 0.5"),
    (
        lambda: bd.KL()(Q, MultivariateNormal(torch.zeros(2), torch.eye(2))),
        ValueError,
        "p must be one-dimensional for each weight, got MultivariateNormal with event shape (2,)",
    ),
    (
        lambda: bd.KL()(Q, Independent(Normal(torch.zeros(2), 1.0), 1)),
        ValueError,
        "p must be one-dimensional for each weight (its base_dist will do), got Independent",
    ),
    (lambda: bd.MonteCarlo(0), ValueError, "samples must be at least 1, got 0"),
    (lambda: bd.Exact(nodes=3), ValueError, "nodes must lie between 8 and 4096, got 3"),
    (lambda: bd.Quadrature(points=1), ValueError, "points must be at least 2, got 1"),
    (lambda: bd.Exact()("KL", Q, P), TypeError, "divergence must be a Divergence such as KL()"),
    (lambda: bd.KL()(Q, Bernoulli(0.5)), ValueError, "p must be continuous, got Bernoulli"),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD)
def test_bad_input_gets_one_clear_sentence(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# Sums over weights ---------------------------------------------------------------------------


def joint_of_two(divergence_of_densities):
    """A divergence of N(0.4, 0.5) N(-0.3, 0.8) from N(0, 1) N(0, 1), on a grid of the plane."""
    x = np.linspace(-8, 8, 1601)
    one, two = stats.norm(0.4, 0.5).pdf(x), stats.norm(-0.3, 0.8).pdf(x)
    prior = stats.norm(0, 1).pdf(x)
    q, p = np.outer(one, two), np.outer(prior, prior)
    return divergence_of_densities(q, p).sum() * (x[1] - x[0]) ** 2


def sum_of_two(divergence):
    q = Normal(number([0.4, -0.3]), number([0.5, 0.8]))
    return bd.Exact(96)(divergence, q, Normal(number(0.0), number(1.0))).sum().item()


def test_kl_and_both_js_g_add_up_over_independent_weights():
    a, b = 0.3, 0.7
    kl = joint_of_two(lambda q, p: q * np.log(q / p))
    reverse = joint_of_two(lambda q, p: p * np.log(p / q))
    log_z = math.log(joint_of_two(lambda q, p: q**a * p**b))
    assert sum_of_two(bd.KL()) == pytest.approx(kl, rel=1e-9)
    assert sum_of_two(bd.WeightedKL(a)) == pytest.approx(b**2 * kl + a**2 * reverse, rel=1e-9)
    assert sum_of_two(bd.JSG(a)) == pytest.approx(b**2 * kl + a**2 * reverse + log_z, rel=1e-9)


def test_js_a_does_not_add_up_the_joint_one_is_smaller():
    a = 0.3

    def js_a(q, p):
        mean = a * q + (1 - a) * p
        return (1 - a) * q * np.log(q / mean) + a * p * np.log(p / mean)

    assert joint_of_two(js_a) < 0.99 * sum_of_two(bd.JSA(a))


def test_joint_js_a_saturates():
    """Identical weights with δ = 0.5, r = 1, alpha = 0.5: shares of the bound by integration."""
    torch.manual_seed(0)
    for count, share in ((1, 0.044), (10, 0.346), (100, 0.975)):
        q = Normal(torch.full((count,), 0.5), 1.0)
        drawn = q.sample((50_000,))
        logs = [each.log_prob(drawn).sum(-1) for each in (q, P)]
        points = Points(*logs, torch.tensor(1 / 50_000).log())
        joint = bd.JSA(0.5).estimate(points, points)
        assert joint.item() / math.log(2) == pytest.approx(share, abs=6e-3)


def test_a_finite_integral_over_heavy_tails_is_not_taken_for_infinite():
    """Cuts where nothing crosses once made a panel without width beside the last one."""
    q, p = StudentT(5.0, -1.0, math.exp(-0.75)), Laplace(2.0, 1.0)
    theirs, ours = stats.t(5, -1, math.exp(-0.75)), stats.laplace(2, 1)
    wanted, _ = integrate.quad(
        lambda x: theirs.pdf(x) * (theirs.logpdf(x) - ours.logpdf(x)), -400, 400, points=[-1, 2]
    )
    assert bd.KL()(q, p, bd.Quadrature()).item() == pytest.approx(wanted, rel=1e-4)
    assert math.isfinite(bd.JSA(0.3)(q, p, bd.Quadrature()).item())
    far = bd.JSG(0.5)(Normal(20.0, 7.0), StudentT(30.0, -10.0, 1.0))
    assert far.item() == pytest.approx(10.0547, abs=1e-3)


# Draws and sum together ----------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [bd.Exact(), bd.MonteCarlo(2), bd.Quadrature()], ids=repr)
def test_a_sum_beside_draws_is_the_sum_for_those_draws(estimator):
    posterior = bd.MeanField(torch.linspace(-1, 1, 50), torch.full((50,), 0.3))
    q, p = posterior.distribution(), Normal(0.0, 1.0)
    prepared = prepare(estimator, bd.JSA(0.3), q, p)
    torch.manual_seed(0)
    weights, total = prepared.draw_and_total(q, p, 4)
    torch.manual_seed(0)
    assert torch.equal(weights, posterior.rsample(4))
    torch.testing.assert_close(total, estimator(bd.JSA(0.3), q, p, weights=weights).sum())
    assert prepared.draw_and_total(q, p, 4, torch.bfloat16)[0].dtype == torch.bfloat16
