"""Divergences of posteriors whose weights depend on each other, against independent oracles."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import (
    Independent,
    Laplace,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    StudentT,
    Uniform,
    kl_divergence,
)

import bayesdiv as bd
from bayesdiv.divergence import joint

N, RANK = 6, 2


def low_rank(dtype=torch.float64, seed=0, size=N, rank=RANK, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    loc, factor, diagonal = (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        for shape in ((size,), (size, rank), (size,))
    )
    return LowRankMultivariateNormal(
        0.3 * loc, 0.5 * spread * factor, (0.3 * spread * diagonal.exp()).square() + 0.01
    )


def prior(dtype=torch.float64, size=N):
    generator = torch.Generator().manual_seed(9)
    loc = torch.randn(size, generator=generator, dtype=torch.float64)
    return Normal((0.2 * loc).to(dtype), (0.5 + loc.abs()).to(dtype))


def dense(q):
    return MultivariateNormal(q.mean, scale_tril=torch.linalg.cholesky(q.covariance_matrix))


def full(p):
    return MultivariateNormal(p.loc, scale_tril=p.scale.diag_embed())


BOTH = pytest.mark.parametrize("form", [lambda q: q, dense], ids=["low rank", "dense"])


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_both_kls_are_those_of_torch(form, seed):
    q, p = low_rank(seed=seed), prior()
    forward, reverse = kl_divergence(dense(q), full(p)), kl_divergence(full(p), dense(q))
    assert torch.allclose(joint.total(bd.KL(), form(q), p), forward, rtol=1e-10)
    assert torch.allclose(joint.total(bd.ReverseKL(), form(q), p), reverse, rtol=1e-10)


def precise_jsg(q, p, alpha):
    """(1-α) KL(q ‖ G) + α KL(p ‖ G) around the Gaussian G ∝ q^α p^(1-α), in 40 digits."""
    mpmath.mp.dps = 40
    mean = lambda x: mpmath.matrix([[mpmath.mpf(v)] for v in x.tolist()])  # noqa: E731
    cov_q = mpmath.matrix(q.covariance_matrix.tolist())
    cov_p = mpmath.diag([mpmath.mpf(v) ** 2 for v in p.scale.tolist()])
    m_q, m_p = mean(q.mean), mean(p.loc)
    inverse_q, inverse_p = cov_q**-1, cov_p**-1
    precision = alpha * inverse_q + (1 - alpha) * inverse_p
    cov = precision**-1
    centre = cov * (alpha * inverse_q * m_q + (1 - alpha) * inverse_p * m_p)

    def kl(m, c):
        away = centre - m
        product = precision * c
        trace = sum(product[i, i] for i in range(N))
        logs = mpmath.log(mpmath.det(cov)) - mpmath.log(mpmath.det(c))
        return (trace - N + logs + (away.T * precision * away)[0]) / 2

    return float((1 - alpha) * kl(m_q, cov_q) + alpha * kl(m_p, cov_p))


@BOTH
@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.9])
def test_jsg_is_the_divergence_around_the_geometric_mean(form, alpha):
    q, p = low_rank(), prior()
    wanted = precise_jsg(q, p, mpmath.mpf(alpha))
    assert joint.total(bd.JSG(alpha), form(q), p).item() == pytest.approx(wanted, rel=1e-10)


@BOTH
def test_weighted_kl_is_the_weighted_sum_of_both(form):
    q, p = form(low_rank()), prior()
    forward, reverse = (joint.total(d, q, p) for d in (bd.KL(), bd.ReverseKL()))
    ours = joint.total(bd.WeightedKL(0.3), q, p)
    assert torch.allclose(ours, 0.49 * forward + 0.09 * reverse)


@BOTH
def test_jsg_at_its_ends_is_a_kl(form):
    q, p = form(low_rank()), prior()
    assert torch.equal(joint.total(bd.JSG(0.0), q, p), joint.total(bd.KL(), q, p))
    assert torch.equal(joint.total(bd.JSG(1.0), q, p), joint.total(bd.ReverseKL(), q, p))
    near = joint.total(bd.JSG(1e-9), q, p)
    assert torch.allclose(near, joint.total(bd.KL(), q, p), rtol=1e-6)


@pytest.mark.parametrize(
    "divergence", [bd.KL(), bd.ReverseKL(), bd.WeightedKL(0.3), bd.JSG(0.3)], ids=repr
)
def test_without_correlation_it_is_the_sum_over_weights(divergence):
    p = prior()
    scale = torch.linspace(0.1, 2.0, N, dtype=torch.float64)
    loc = torch.linspace(-1.0, 1.0, N, dtype=torch.float64)
    q = MultivariateNormal(loc, scale_tril=scale.diag_embed())
    wanted = divergence(Normal(loc, scale), p).sum()
    assert torch.allclose(joint.total(divergence, q, p), wanted, rtol=1e-12)
    flat = LowRankMultivariateNormal(loc, torch.zeros(N, 2).double(), scale.square())
    assert torch.allclose(joint.total(divergence, flat, p), wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "divergence", [bd.KL(), bd.ReverseKL(), bd.WeightedKL(0.3), bd.JSG(0.3)], ids=repr
)
@BOTH
def test_gradients_are_right_and_finite_in_single_precision(form, divergence):
    values = low_rank(), prior()
    leaves = [
        x.clone().requires_grad_()
        for x in (values[0].loc, values[0].cov_factor, values[0].cov_diag, values[1].scale)
    ]

    def value(loc, factor, diagonal, scale):
        q = LowRankMultivariateNormal(loc, factor, diagonal, validate_args=False)
        return joint.total(divergence, form(q), Normal(values[1].loc, scale))

    assert torch.autograd.gradcheck(value, leaves)
    exact = torch.autograd.grad(value(*leaves), leaves)
    single = [leaf.detach().float().requires_grad_() for leaf in leaves]
    q = LowRankMultivariateNormal(*single[:3], validate_args=False)
    coarse = joint.total(divergence, form(q), Normal(values[1].loc.float(), single[3]))
    assert coarse.item() == pytest.approx(value(*leaves).item(), rel=1e-4)
    for one, two in zip(torch.autograd.grad(coarse, single), exact, strict=True):
        assert torch.allclose(one.double(), two, rtol=1e-3, atol=1e-3)


def test_narrow_posteriors_of_many_weights_stay_exact_in_single_precision():
    size = 2000
    q, p = low_rank(torch.float32, size=size, spread=1e-3), Normal(0.0, 1.0)
    narrow = LowRankMultivariateNormal(q.loc, q.cov_factor, q.cov_diag * 1e-8)
    fine = LowRankMultivariateNormal(
        *(x.double() for x in (narrow.loc, narrow.cov_factor, narrow.cov_diag))
    )
    standard = MultivariateNormal(torch.zeros(size).double(), torch.eye(size).double())
    wanted = kl_divergence(fine, standard).item()
    assert joint.total(bd.KL(), narrow, p).item() == pytest.approx(wanted, rel=1e-5)


def test_correlation_counts():
    """By its marginals alone, as 0.1.0 took it, this posterior would have 9.09 nats."""
    size, scale, rho = 20, 0.4205, 0.51
    one = torch.eye(size, dtype=torch.float64)
    q = MultivariateNormal(one[0] * 0, scale**2 * ((1 - rho) * one + rho))
    by_marginals = size * bd.KL()(Normal(0.0, scale), Normal(0.0, 1.0)).item()
    assert by_marginals == pytest.approx(9.09, abs=0.01)
    correlation = np.full((size, size), rho) + (1 - rho) * np.eye(size)
    wanted = by_marginals - 0.5 * np.linalg.slogdet(correlation)[1]
    assert joint.total(bd.KL(), q, Normal(0.0, 1.0)).item() == pytest.approx(wanted, rel=1e-6)
    assert wanted == pytest.approx(14.70, abs=0.02)


def test_no_matrix_of_all_weights_is_formed_for_low_rank():
    size = 200_000  # whose square would need 160 GB
    q = LowRankMultivariateNormal(
        torch.zeros(size), 0.1 * torch.ones(size, 2), torch.full((size,), 0.5)
    )
    for divergence in (bd.KL(), bd.ReverseKL(), bd.JSG(0.3)):
        assert joint.total(divergence, q, Normal(0.0, 1.0)).isfinite()


@BOTH
def test_leading_axes_are_trials_with_an_alpha_of_their_own(form):
    one, two, p = low_rank(seed=1), low_rank(seed=2), prior()
    stack = LowRankMultivariateNormal(
        *(
            torch.stack([getattr(x, name) for x in (one, two)])
            for name in ("loc", "cov_factor", "cov_diag")
        )
    )
    priors = Normal(torch.stack([p.loc, p.loc + 1]), torch.stack([p.scale, 2 * p.scale]))
    alphas = torch.tensor([[0.2], [0.7]], dtype=torch.float64)
    for divergence, apart in (
        (bd.KL(), (bd.KL(), bd.KL())),
        (bd.JSG(alphas), (bd.JSG(0.2), bd.JSG(0.7))),
        (bd.WeightedKL(alphas), (bd.WeightedKL(0.2), bd.WeightedKL(0.7))),
    ):
        together = joint.total(divergence, form(stack), priors)
        wanted = [
            joint.total(d, form(q), Normal(priors.loc[t], priors.scale[t]))
            for t, (q, d) in enumerate(zip((one, two), apart, strict=True))
        ]
        assert torch.allclose(together, torch.stack(wanted))


def numeric_kls(q, family, samples=400_000):
    """Both KLs to a factorised prior by SciPy, from its own draws."""
    generator = np.random.default_rng(0)
    ours = stats.multivariate_normal(q.mean.numpy(), q.covariance_matrix.numpy())
    drawn, believed = ours.rvs(samples, generator), family.rvs((samples, N), generator)
    forward = ours.logpdf(drawn) - family.logpdf(drawn).sum(-1)
    reverse = family.logpdf(believed).sum(-1) - ours.logpdf(believed)
    return forward.mean(), reverse.mean()


@BOTH
def test_against_other_priors_draws_estimate_both_kls(form):
    q = low_rank(spread=2.0)
    p, family = Laplace(torch.zeros(N).double(), 0.7), stats.laplace(0.0, 0.7)
    torch.manual_seed(0)
    weights = form(q).rsample((100_000,))
    forward, reverse = numeric_kls(q, family)
    assert joint.total(bd.KL(), form(q), p, weights).item() == pytest.approx(forward, rel=0.02)
    found = joint.total(bd.ReverseKL(), form(q), p, weights).item()
    assert found == pytest.approx(reverse, rel=0.03)
    both = joint.total(bd.WeightedKL(0.3), form(q), p, weights).item()
    assert both == pytest.approx(0.49 * forward + 0.09 * reverse, rel=0.03)
    assert joint.total(bd.KL(), form(q), p).isfinite()


@pytest.mark.parametrize("divergence", [bd.JSA(0.3), bd.Renyi(0.5), bd.TotalVariation()], ids=repr)
def test_what_is_per_weight_is_refused(divergence):
    with pytest.raises(ValueError, match=r"no joint form .* use KL, ReverseKL, WeightedKL or JSG"):
        joint.total(divergence, low_rank(), prior())


def test_jsg_without_two_gaussians_is_refused():
    p = StudentT(torch.tensor(3.0), torch.zeros(N), 1.0)
    with pytest.raises(ValueError, match=r"needs two Gaussians, got LowRank.* against StudentT"):
        joint.total(bd.JSG(0.3), low_rank(), p)


def test_a_prior_with_an_edge_is_refused():
    with pytest.raises(ValueError, match="against Uniform, whose density has an edge"):
        joint.total(bd.KL(), low_rank(), Uniform(-torch.ones(N), torch.ones(N)))


def test_a_product_is_refused():
    with pytest.raises(ValueError, match=r"event shape \(weights,\), got \(\)"):
        joint.total(bd.KL(), Normal(torch.zeros(3), 1.0), Normal(0.0, 1.0))


# Members ---------------------------------------------------------------------------------------


def members(dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    loc = torch.randn(4, N, generator=generator, dtype=dtype)
    return Normal(loc, 0.2 + 0.1 * loc.abs())


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSA(0.3), bd.JSG(0.3)], ids=repr)
def test_the_total_of_members_is_the_mean_of_theirs(divergence):
    each = members()
    q = joint.Members(Independent(each, 1))
    wanted = divergence(each, Normal(0.0, 1.0)).sum(-1).mean()
    assert torch.allclose(joint.total(divergence, q, Normal(0.0, 1.0)), wanted, rtol=1e-4)


def test_the_mean_of_members_bounds_the_kl_of_their_mixture():
    each = members()
    bound = joint.total(bd.KL(), joint.Members(Independent(each, 1)), Normal(0.0, 1.0)).item()
    generator = np.random.default_rng(0)
    loc, scale = each.loc.numpy(), each.scale.numpy()
    pick = generator.integers(4, size=100_000)
    drawn = generator.normal(loc[pick], scale[pick])
    log_each = stats.norm(loc, scale).logpdf(drawn[:, None]).sum(-1)
    log_q = np.logaddexp.reduce(log_each, 1) - math.log(4)
    own = (log_q - stats.norm(0, 1).logpdf(drawn).sum(-1)).mean()
    assert own - 0.05 < bound < own + math.log(4) + 0.05


def test_members_may_be_joint_and_have_trials():
    one = low_rank()
    stack = LowRankMultivariateNormal(
        *(
            torch.stack([torch.stack([x, 2 * x, 3 * x]), torch.stack([x, x, x])])
            for x in (one.loc, one.cov_factor, one.cov_diag)
        )
    )
    priors = Normal(torch.zeros(2, N).double(), torch.tensor([[1.0], [2.0]]).double().expand(2, N))
    ours = joint.total(bd.KL(), joint.Members(stack), priors)
    assert ours.shape == (2,)
    wanted = kl_divergence(
        dense(one), MultivariateNormal(torch.zeros(N).double(), 4 * torch.eye(N).double())
    )
    assert torch.allclose(ours[1], wanted)
