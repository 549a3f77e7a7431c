"""Dense integration against mpmath: far tails, edges, mixtures, singular points, refusals."""

import math

import mpmath as mp
import pytest
import torch
from scipy import stats
from torch.distributions import (
    AffineTransform,
    Beta,
    Categorical,
    Cauchy,
    Distribution,
    FisherSnedecor,
    Gamma,
    Gumbel,
    InverseGamma,
    LogNormal,
    MixtureSameFamily,
    Normal,
    Pareto,
    StudentT,
    TransformedDistribution,
    Uniform,
    VonMises,
    Weibull,
    constraints,
)

import bayesdiv as bd
from bayesdiv.divergence.quadrature import NotConverged


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def normal(loc, scale):
    return lambda x: mp.npdf(x, loc, scale)


def mixture(cls, *parameters):
    shares = number([0.5, 0.5])
    return MixtureSameFamily(Categorical(shares), cls(*(number(list(x)) for x in parameters)))


def reverse_kl(q, p, cuts):
    return mp.quad(lambda x: p(x) * mp.log(p(x) / q(x)), cuts)


def js_a(alpha, q, p, cuts):
    def integrand(x):
        one, two = q(x), p(x)
        mean = alpha * one + (1 - alpha) * two
        terms = [w * d * mp.log(d / mean) for w, d in ((1 - alpha, one), (alpha, two)) if d > 0]
        return mp.fsum(terms)

    return mp.quad(integrand, cuts)


def total_variation(q, p, cuts):
    return mp.quad(lambda x: abs(q(x) - p(x)) / 2, cuts)


def crossing(q, p, near):
    return mp.findroot(lambda x: mp.log(q(x) / p(x)), near)


@pytest.mark.parametrize(("loc", "scale"), [(0.0, 0.5), (1.0, 1.0), (-3.0, 2.0)])
def test_the_mass_of_a_lognormal_is_found_on_its_own_scale(loc, scale):
    """Its loc and scale are those of the logarithm: as positions they missed the mass."""
    q = normal(0.3, 0.8)

    def log_p(u):
        return mp.npdf(u, loc, scale)  # of u = log x

    cuts = [loc + k * scale for k in range(-12, 13, 2)]
    wanted = mp.quad(lambda u: log_p(u) * (mp.log(log_p(u)) - u - mp.log(q(mp.exp(u)))), cuts)
    found = bd.Quadrature()(
        bd.ReverseKL(), Normal(number(0.3), number(0.8)), LogNormal(number(loc), number(scale))
    )
    assert found.item() == pytest.approx(float(wanted), rel=1e-8)


def test_components_with_supports_of_their_own_are_all_seen():
    def p(x):
        return (mp.mpf(-2 < x < -1) + mp.mpf(0.5 < x < 2.5) / 2) / 2

    loc = number(0.2).requires_grad_()
    prior = mixture(Uniform, (-2.0, 0.5), (-1.0, 2.5))
    value = bd.Quadrature()(bd.JSA(0.3), Normal(loc, number(1.0)), prior)
    cuts = [-9, -4, -2, -1, 0.5, 2.5, 5, 9]
    near = [js_a(0.3, normal(0.2 + h, 1), p, cuts) for h in (-1e-4, 0.0, 1e-4)]
    assert value.item() == pytest.approx(float(near[1]), abs=1e-8)
    (gradient,) = torch.autograd.grad(value, loc)
    assert gradient.item() == pytest.approx(float((near[2] - near[0]) / 2e-4), abs=1e-6)


def test_edges_of_a_mixture_of_positive_families_are_seen():
    prior = mixture(Gamma, (0.6, 3.0), (1.0, 2.0))
    peers = [stats.gamma(0.6), stats.gamma(3.0, scale=0.5)]
    q = Normal(number(0.4), number(0.7))

    def p(x):
        if x <= 0:
            return mp.mpf(0)
        return (x**-0.4 * mp.exp(-x) / mp.gamma(0.6) + 4 * x**2 * mp.exp(-2 * x)) / 2

    assert float(p(mp.mpf(0.7))) == pytest.approx(sum(peer.pdf(0.7) for peer in peers) / 2)
    wanted = js_a(0.4, normal(0.4, 0.7), p, [-8, -3, 0, 1e-6, 1e-3, 0.1, 0.5, 1, 2, 5, 12, 40])
    assert bd.Quadrature()(bd.JSA(0.4), q, prior).item() == pytest.approx(float(wanted), abs=1e-7)


@pytest.mark.parametrize(("loc", "scale"), [(0.0, 1.0), (-3.0, 1.0), (1.0, 2.0), (-0.5, 0.05)])
def test_a_gumbel_prior_has_a_finite_kl_with_finite_gradients(loc, scale):
    """KL(N(m, s) ‖ Gumbel(0, 1)) = -½ log(2πe s²) + m + e^(-m + s²/2)."""
    m, s = number(loc).requires_grad_(), number(scale).requires_grad_()
    value = bd.Quadrature()(bd.KL(), Normal(m, s), Gumbel(number(0.0), number(1.0)))
    far = math.exp(-loc + scale**2 / 2)
    wanted = -0.5 * math.log(2 * math.pi * math.e * scale**2) + loc + far
    assert value.item() == pytest.approx(wanted, rel=1e-9)
    by_loc, by_scale = torch.autograd.grad(value, (m, s))
    assert by_loc.item() == pytest.approx(1 - far, rel=1e-7)
    assert by_scale.item() == pytest.approx(-1 / scale + scale * far, rel=1e-7)


SINGULAR = [
    (Gamma(number(0.5), number(1.0)), lambda x: mp.exp(-x) / mp.sqrt(mp.pi * x)),
    (Weibull(number(1.0), number(0.7)), lambda x: 0.7 * x**-0.3 * mp.exp(-(x**0.7))),
    (
        Gamma(number(0.05), number(2.0)),
        lambda x: (2 * x) ** -0.95 * 2 * mp.exp(-2 * x) / mp.gamma(0.05),
    ),
    (
        FisherSnedecor(number(1.0), number(3.0)),
        lambda x: (1 + x / 3) ** -2 / mp.sqrt(3 * x) / mp.beta(0.5, 1.5),
    ),
]


@pytest.mark.parametrize(("prior", "density"), SINGULAR, ids=lambda x: type(x).__name__)
def test_singular_densities_are_integrated_to_1e_8(prior, density):
    q, own = Normal(number(0.4), number(0.25)), normal(0.4, 0.25)

    # x = e^u takes the singularity away.
    def js_integrand(u):
        x = mp.exp(u)
        one, two = own(x) * x, density(x) * x
        mean = 0.3 * one + 0.7 * two
        return 0.7 * one * mp.log(one / mean) + 0.3 * two * mp.log(two / mean)

    cuts = [-690, -300, -100, -40, -15, -6, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 4, 8, 20, 40, 100]
    wanted = mp.quad(js_integrand, cuts) - 0.7 * mp.log(0.3) * mp.ncdf(-0.4 / 0.25)
    assert bd.Quadrature()(bd.JSA(0.3), q, prior).item() == pytest.approx(float(wanted), abs=1e-8)


@pytest.mark.parametrize("scale", [0.05, 0.2, 1.0])
def test_chi_squared_of_a_narrow_gaussian_in_a_uniform_is_right(scale):
    """Log ∫ p²/q over (-5, 5), of which the ends are all: ∫ exp x²/2σ² is an erfi."""
    wanted = mp.log(0.01 * 2 * mp.pi * scale**2 * mp.erfi(5 / (mp.sqrt(2) * scale)))
    found = bd.Quadrature()(
        bd.ChiSquared(), Normal(number(0.0), number(scale)), Uniform(number(-5.0), number(5.0))
    )
    assert found.item() == pytest.approx(float(wanted), rel=1e-9)


def test_the_logarithm_of_an_integral_has_a_gradient_against_a_prior_with_an_edge():
    """∂/∂μ log ∫ p²/q = ∫ p²/q · (μ-x)/σ² / ∫ p²/q over (-1, 1)."""
    loc, scale = number(0.2).requires_grad_(), 0.8
    q, p = Normal(loc, number(scale)), Uniform(number(-1.0), number(1.0))
    (found,) = torch.autograd.grad(bd.Quadrature()(bd.ChiSquared(), q, p), loc)

    def ratio(x):
        return mp.exp((x - 0.2) ** 2 / (2 * scale**2))

    above = mp.quad(lambda x: ratio(x) * (0.2 - x) / scale**2, [-1, 0, 1])
    assert found.item() == pytest.approx(float(above / mp.quad(ratio, [-1, 0, 1])), rel=1e-9)


def test_total_variation_is_cut_where_the_densities_cross():
    q, p = normal(1, 0.5), lambda x: mp.exp(-x) * (x > 0)
    roots = [crossing(q, p, near) for near in (0.3, 2.0)]
    wanted = total_variation(q, p, [-6, -2, 0, roots[0], 1, roots[1], 4, 10, 60])
    found = bd.Quadrature()(
        bd.TotalVariation(), Normal(number(1.0), number(0.5)), Gamma(number(1.0), number(1.0))
    )
    assert found.item() == pytest.approx(float(wanted), abs=1e-9)


@pytest.mark.parametrize("df", [2.2, 2.5, 3.0, 6.0])
def test_tails_that_hardly_converge_are_integrated_to_the_end(df):
    """KL(t ‖ N(0, 1)) = ½ log 2π + df/(df-2)/2 - H(t), which needs the second moment."""
    wanted = 0.5 * math.log(2 * math.pi) + 0.5 * df / (df - 2) - stats.t(df).entropy()
    found = bd.Quadrature()(bd.ReverseKL(), Normal(number(0.0), number(1.0)), StudentT(number(df)))
    assert found.item() == pytest.approx(wanted, rel=1e-8)


DIVERGING = [
    (bd.ReverseKL(), Cauchy(number(0.0), number(1.0))),
    (bd.WeightedKL(0.3), Cauchy(number(0.0), number(1.0))),
    (bd.ReverseKL(), StudentT(number(2.0))),
    (bd.ReverseKL(), InverseGamma(number(2.0), number(1.0))),
    (bd.ReverseKL(), Pareto(number(1.0), number(1.5))),
    (bd.ReverseKL(), mixture(StudentT, (9.0, 1.8))),
    (bd.ChiSquared(), Gamma(number(0.5), number(1.0))),  # p² has no integral at 0
    (bd.ChiSquared(), Gamma(number(3.0), number(1.0))),
    (bd.KL(), Gamma(number(3.0), number(1.0))),
    (bd.Renyi(2.0), Beta(number(2.0), number(2.0))),
]


@pytest.mark.parametrize(("divergence", "prior"), DIVERGING, ids=str)
def test_a_diverging_integral_is_reported_as_infinite(divergence, prior):
    q = Normal(number(0.3), number(0.8)).expand(prior.batch_shape)
    assert bd.Quadrature()(divergence, q, prior).item() == math.inf


def test_a_bounded_posterior_does_not_hide_the_mass_of_the_prior_outside():
    q, p = Uniform(number(-1.0), number(1.0)), Normal(number(0.0), number(1.0))
    for divergence in (bd.ChiSquared(), bd.ReverseKL()):
        assert bd.Quadrature()(divergence, q, p).item() == math.inf
    wanted = -math.log(2) + 0.5 * math.log(2 * math.pi) + 1 / 6
    assert bd.Quadrature()(bd.KL(), q, p).item() == pytest.approx(wanted, rel=1e-10)
    outside = -math.log(math.erf(math.sqrt(0.5)))
    assert bd.Quadrature()(bd.Renyi(0.0), q, p).item() == pytest.approx(outside, rel=1e-9)


def test_what_cannot_be_integrated_is_refused_with_the_error_reached():
    """Next to 1 a Beta(2, 0.05) has a tenth of its mass where doubles have no digits."""
    q = Normal(number(0.5), number(0.3))
    with pytest.raises(NotConverged, match=r"of Normal from Beta is known to .* only"):
        bd.Quadrature()(bd.JSA(0.3), q, Beta(number(2.0), number(0.05)))


def test_a_density_on_the_circle_is_integrated_over_one_turn():
    wanted = js_a(
        0.3,
        normal(0.4, 0.5),
        lambda x: mp.exp(2 * mp.cos(x - 1)) / (2 * mp.pi * mp.besseli(0, 2)) * (abs(x) < mp.pi),
        [-6, -mp.pi, -2, 0, 1, 2, mp.pi, 6],
    )
    prior = VonMises(number(1.0), number(2.0))
    found = bd.Quadrature()(bd.JSA(0.3), Normal(number(0.4), number(0.5)), prior)
    assert found.item() == pytest.approx(float(wanted), abs=1e-8)


@pytest.mark.parametrize("family", [bd.JSA, bd.JSG, bd.WeightedKL])
def test_an_alpha_per_trial_is_integrated_trial_by_trial(family):
    """It crashed in a broadcast."""
    alpha = number([[0.2], [0.5], [0.9]]).requires_grad_()
    q = Normal(torch.linspace(-1, 1, 12).double().reshape(3, 4), 0.5)
    p = StudentT(number(5.0), number(0.0), number(1.0))
    whole = bd.Quadrature()(family(alpha), q, p)
    single = [
        bd.Quadrature()(family(a), Normal(q.loc[k], 0.5), p)
        for k, a in enumerate(alpha.flatten().tolist())
    ]
    torch.testing.assert_close(whole, torch.stack(single), rtol=1e-10, atol=1e-12)
    (gradient,) = torch.autograd.grad(whole.sum(), alpha)
    above, below = (bd.Quadrature()(family(alpha.detach() + h), q, p) for h in (1e-5, -1e-5))
    torch.testing.assert_close(gradient[:, 0], (above - below).sum(1) / 2e-5, rtol=1e-6, atol=1e-8)


def test_transformations_of_many_weights_are_cut_into_blocks_too(monkeypatch):
    scale = torch.linspace(0.5, 2, 30)
    prior = Weibull(scale, torch.linspace(0.7, 3, 30))
    shifted = TransformedDistribution(Normal(0.0, torch.ones(30)), [AffineTransform(scale, scale)])
    q = Normal(torch.linspace(-1, 1, 30), 0.5)
    monkeypatch.setattr("bayesdiv.divergence.quadrature._NODES_AT_ONCE", 40_000)
    found = bd.Quadrature()(bd.JSA(0.3), q, prior)
    single = bd.Quadrature()(
        bd.JSA(0.3), Normal(q.loc[7], 0.5), Weibull(scale[7], prior.concentration[7])
    )
    assert found[7].item() == pytest.approx(single.item(), abs=1e-7)
    wanted = bd.Quadrature()(bd.JSA(0.3), q, Normal(scale, scale))
    torch.testing.assert_close(bd.Quadrature()(bd.JSA(0.3), q, shifted), wanted)


def test_gradients_are_finite_in_float32_for_every_family_here():
    for prior, _ in SINGULAR:
        loc, scale = torch.tensor(0.4).requires_grad_(), torch.tensor(0.25).requires_grad_()
        value = bd.Quadrature()(bd.JSA(0.3), Normal(loc, scale), prior)
        assert value.dtype == torch.float32
        for gradient in torch.autograd.grad(value, (loc, scale)):
            assert gradient.isfinite()


def test_the_heavier_part_of_a_mixture_of_weibulls_is_seen_where_the_lighter_overflows():
    parts = Weibull(
        torch.tensor([[0.63, 0.87]], dtype=torch.float64),
        torch.tensor([[0.94, 4.6]], dtype=torch.float64),
    )
    prior = MixtureSameFamily(Categorical(torch.tensor([[0.3, 0.7]], dtype=torch.float64)), parts)
    q = Normal(torch.tensor([0.4], dtype=torch.float64), 1.06)
    # x^0.94 against x²: p² / q grows for ever.
    assert bd.Quadrature()(bd.ChiSquared(), q, prior).item() == math.inf


@pytest.mark.parametrize("df", [3.0, 22.05, 200.0])
def test_kl_of_student_t_keeps_its_digits_in_single_precision(df):
    q, p = StudentT(df, 0.08, 0.98), Normal(-0.34, 0.56)
    x = stats.t(df, 0.08, 0.98)
    wanted = -x.entropy() - x.expect(lambda t: stats.norm.logpdf(t, -0.34, 0.56), epsabs=1e-12)
    assert bd.Exact()(bd.KL(), q, p).item() == pytest.approx(wanted, rel=5e-7)


class HalfLine(Distribution):
    """An exponential that keeps its rate as a number: no parameter has a dtype."""

    arg_constraints, support, rate = {}, constraints.positive, 1.3

    def __init__(self, batch=torch.Size()):  # noqa: B008
        super().__init__(batch, validate_args=False)

    def expand(self, batch, _=None):
        return HalfLine(torch.Size(batch))

    def log_prob(self, value):
        return math.log(self.rate) - self.rate * value

    def cdf(self, value):
        return -torch.expm1(-self.rate * value)

    @property
    def mean(self):
        return torch.full(self.batch_shape, 1 / self.rate)


def test_a_prior_without_tensors_on_a_half_line_is_integrated():
    q = Normal(torch.tensor([0.2, -0.4, 1.5]), torch.tensor([0.5, 0.05, 2.0]))
    found = bd.Quadrature()(bd.JSA(0.3), q, HalfLine())

    def density(x):
        return 1.3 * mp.exp(-1.3 * x) if x >= 0 else mp.mpf(0)

    for loc, scale, value in zip(q.loc.tolist(), q.scale.tolist(), found.tolist(), strict=True):
        cuts = sorted({-40, 0, 60, *(loc + scale * k for k in (-9, -4, -2, 0, 2, 4, 9))})
        wanted = js_a(0.3, normal(loc, scale), density, cuts)
        assert value == pytest.approx(float(wanted), rel=1e-5)
