"""Theorems 1 to 3 and the limit cases beyond Gaussians, against SciPy and 50-digit arithmetic.

tests/divergences/test_properties.py has them for pairs of Gaussians, by the library's own values.
Here one side of each statement is integrated by SciPy or computed by mpmath, for Gaussian, Laplace,
Student and uniform densities, and JS-G is held to what is true of it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch.distributions import Distribution, Laplace, Normal, StudentT, Uniform

import bayesdiv as bd
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG
from strategies import INNER_ALPHA, near_normals, normals

ALPHA = st.floats(0.01, 0.99)
SIDES = (-1e3, -100, -25, -10, -4, -1.5, -0.5, 0, 0.5, 1.5, 4, 10, 25, 100, 1e3)
few = settings(max_examples=20)


class Density(NamedTuple):
    """One distribution twice: as the library sees it, and as SciPy does."""

    ours: Distribution
    scipy: Any
    log: Callable[[Any], Any]  # log density

    @property
    def cuts(self) -> list[float]:
        """Where integration is cut: the kink, the edges, and places far into the tails."""
        loc, scale = self.scipy.median(), self.scipy.std()
        edges = [edge for edge in self.scipy.support() if math.isfinite(edge)]
        return [*(loc + scale * side for side in SIDES), *edges]


def double(*values):
    return (torch.tensor(value, dtype=torch.float64) for value in values)


def known(ours, scipy):
    return Density(ours, scipy, scipy.logpdf)


def gaussian(loc, scale):
    return known(Normal(*double(loc, scale)), stats.norm(loc, scale))


def laplace(loc, scale):
    # SciPy takes the logarithm of a density that underflows.
    log = lambda x: -np.abs(x - loc) / scale - math.log(2 * scale)  # noqa: E731
    return Density(Laplace(*double(loc, scale)), stats.laplace(loc, scale), log)


def student(loc, scale):
    return known(StudentT(*double(5.0, loc, scale)), stats.t(5, loc, scale))


def uniform(low, width):
    return known(Uniform(*double(low, low + width)), stats.uniform(low, width))


LOC, SCALE = st.floats(-4, 4), st.floats(math.log(0.1), math.log(10)).map(math.exp)
WHOLE_LINE = (gaussian, laplace, student)


def densities(*families):
    return st.one_of(*(st.builds(family, LOC, SCALE) for family in families))


def integral(function, *sides: Density) -> float:
    """By SciPy's tanh-sinh rule, panel by panel."""
    cuts = np.unique([cut for side in sides for cut in side.cuts])
    cuts = cuts[np.append(True, np.diff(cuts) > 1e-9)]  # a panel of no width has no relative error
    panels = integrate.tanhsinh(function, cuts[:-1], cuts[1:], rtol=1e-9, atol=1e-13)
    total = float(panels.integral.sum())
    assert math.isfinite(total)
    return total


def relative(log_one, log_other):
    """The integrand of KL, with 0 log 0 = 0."""
    with np.errstate(invalid="ignore"):
        return np.where(log_one == -np.inf, 0.0, np.exp(log_one) * (log_one - log_other))


def scipy_kl(one: Density, other: Density) -> float:
    return integral(lambda x: relative(one.log(x), other.log(x)), one, other)


def scipy_js_a(q: Density, p: Density, alpha: float) -> float:
    def integrand(x):
        log_q, log_p = q.log(x), p.log(x)
        mean = np.logaddexp(log_q + math.log(alpha), log_p + math.log1p(-alpha))
        return (1 - alpha) * relative(log_q, mean) + alpha * relative(log_p, mean)

    return integral(integrand, q, p)


def scipy_log_z(q: Density, p: Density, alpha: float) -> float:
    def integrand(x):
        return np.exp(alpha * q.log(x) + (1 - alpha) * p.log(x))

    return math.log(integral(integrand, q, p))


def ours(divergence: bd.Divergence, q: Density, p: Density) -> float:
    return divergence(q.ours, p.ours, bd.Quadrature()).item()


def bound(alpha: float) -> float:
    return -(1 - alpha) * math.log(alpha) - alpha * math.log1p(-alpha)


# Theorem 1: any two distributions.


@few
@given(densities(*WHOLE_LINE, uniform), densities(*WHOLE_LINE, uniform), ALPHA)
def test_theorem_1_holds_for_any_two_distributions(q, p, alpha):
    value = ours(bd.JSA(alpha), q, p)
    assert -1e-12 <= value <= bound(alpha) + 1e-12
    assert value == pytest.approx(scipy_js_a(q, p, alpha), rel=1e-6, abs=1e-8)


@few
@given(st.floats(0, 1), ALPHA, LOC, SCALE)
def test_theorem_1_is_an_equality_exactly_for_disjoint_supports(shift, alpha, low, width):
    """Two uniforms of one width: what does not overlap adds its share of the bound."""
    q, p = uniform(low, width), uniform(low + shift * width, width)
    assert ours(bd.JSA(alpha), q, p) == pytest.approx(shift * bound(alpha), rel=1e-9, abs=1e-12)


@few
@given(st.lists(st.tuples(normals(), normals()), min_size=1, max_size=30), INNER_ALPHA)
def test_theorem_1_for_a_network_is_a_bound_a_weight(pairs, alpha):
    posteriors, priors = zip(*pairs, strict=True)
    q, p = (
        Normal(torch.stack([n.loc for n in side]), torch.stack([n.scale for n in side]))
        for side in (posteriors, priors)
    )
    assert bd.JSA(alpha)(q, p).sum().item() <= len(pairs) * bound(alpha) * (1 + 1e-12)


@few
@given(densities(gaussian, laplace, student), ALPHA, LOC, SCALE)
def test_kl_and_js_g_have_no_bound_where_js_a_keeps_one(q, alpha, low, width):
    """Against a uniform prior q has mass where p has none."""
    p = uniform(low, width)
    for unbounded in (bd.KL(), bd.JSG(alpha), bd.WeightedKL(alpha)):
        assert ours(unbounded, q, p) == math.inf
    assert ours(bd.JSA(alpha), q, p) <= bound(alpha) + 1e-12


# Theorem 2: the weighted KLs of eq. 21, for any two distributions with finite KLs.


@few
@given(densities(*WHOLE_LINE), densities(*WHOLE_LINE), st.floats(0.001, 1))
def test_theorem_2_holds_for_distributions_that_are_not_gaussian(q, p, alpha):
    kl, reverse = scipy_kl(q, p), scipy_kl(p, q)
    assume(kl + reverse > 1e-6)
    threshold = 2 * kl / (kl + reverse)
    assert 0 < threshold < 2
    assume(abs(alpha - threshold) > 1e-3)
    excess = ours(bd.WeightedKL(alpha), q, p) - ours(bd.KL(), q, p)
    assert (excess > 0) == (alpha > threshold)


@few
@given(densities(*WHOLE_LINE), densities(*WHOLE_LINE))
def test_at_the_threshold_the_losses_are_equal_and_js_g_is_below_by_log_z(q, p):
    kl, reverse = scipy_kl(q, p), scipy_kl(p, q)
    if kl > reverse:  # the threshold must lie below 1: change places
        q, p, kl, reverse = p, q, reverse, kl
    assume(1e-6 < kl < 0.999 * reverse)
    threshold = 2 * kl / (kl + reverse)
    assert ours(bd.WeightedKL(threshold), q, p) == pytest.approx(kl, rel=1e-5)
    log_z = scipy_log_z(q, p, threshold)
    assert log_z < 0
    gap = ours(bd.JSG(threshold), q, p) - kl
    assert gap == pytest.approx(log_z, rel=1e-4, abs=1e-5 * max(kl, 1e-3))


@few
@given(densities(*WHOLE_LINE), LOC, SCALE, st.floats(0.01, 1))
def test_an_infinite_reverse_kl_puts_the_threshold_at_0(p, low, width, alpha):
    """q is narrower than the support of p: KL(q‖p) is finite, KL(p‖q) is not."""
    q = uniform(low, width)
    assert math.isfinite(ours(bd.KL(), q, p))
    assert ours(bd.WeightedKL(alpha), q, p) == math.inf


# Theorem 2 for JS-G, and theorem 3: Gaussians in 50 digits.


class Exact(NamedTuple):
    """A Gaussian in 50 digits: mean and variance."""

    loc: mpmath.mpf
    variance: mpmath.mpf

    @classmethod
    def of(cls, normal: Normal) -> "Exact":
        return cls(mpmath.mpf(normal.loc.item()), mpmath.mpf(normal.scale.item()) ** 2)


def mp_kl(q: Exact, p: Exact):
    ratio = q.variance / p.variance
    return (ratio - 1 - mpmath.log(ratio) + (q.loc - p.loc) ** 2 / p.variance) / 2


def mp_js_g(q: Exact, p: Exact, alpha):
    """By the definition: the normalised geometric mean of two Gaussians is a Gaussian."""
    precision = alpha / q.variance + (1 - alpha) / p.variance
    loc = (alpha * q.loc / q.variance + (1 - alpha) * p.loc / p.variance) / precision
    mean = Exact(loc, 1 / precision)
    return (1 - alpha) * mp_kl(q, mean) + alpha * mp_kl(p, mean)


@pytest.fixture(autouse=True, scope="module")
def _fifty_digits():
    with mpmath.workdps(50):
        yield


@given(normals(), normals(), INNER_ALPHA)
def test_js_g_above_kl_implies_an_alpha_above_the_threshold(q, p, alpha):
    """The half of theorem 2 that JS-G keeps, with the library's sign beside the exact one."""
    exact_q, exact_p, exact_alpha = Exact.of(q), Exact.of(p), mpmath.mpf(alpha)
    kl, reverse = mp_kl(exact_q, exact_p), mp_kl(exact_p, exact_q)
    assume(kl + reverse > 1e-12)
    excess = mp_js_g(exact_q, exact_p, exact_alpha) - kl
    if excess > 0:
        assert exact_alpha > 2 * kl / (kl + reverse)
    if abs(excess) > 1e-9 * kl:
        assert (bd.JSG(alpha)(q, p).item() > bd.KL()(q, p).item()) == (excess > 0)


@given(normals(), normals(), INNER_ALPHA, INNER_ALPHA)
def test_js_g_is_convex_in_alpha_so_it_crosses_kl_once(q, p, one, two):
    exact_q, exact_p = Exact.of(q), Exact.of(p)
    ends = [mpmath.mpf(one), mpmath.mpf(two)]
    chord = sum(mp_js_g(exact_q, exact_p, alpha) for alpha in ends) / 2
    middle = mp_js_g(exact_q, exact_p, sum(ends) / 2)
    assert middle <= chord * (1 + mpmath.mpf(10) ** -40) + mpmath.mpf(10) ** -40
    values = [bd.JSG(alpha)(q, p).item() for alpha in (one, (one + two) / 2, two)]
    assert values[1] == pytest.approx(float(middle), rel=1e-8, abs=1e-15)
    assert values[1] <= (values[0] + values[2]) / 2 * (1 + 1e-8) + 1e-15


@given(near_normals(), near_normals())
def test_js_g_falls_at_first_with_slope_minus_two_kl_minus_reverse_kl(q, p):
    kl, reverse = mp_kl(Exact.of(q), Exact.of(p)), mp_kl(Exact.of(p), Exact.of(q))
    assume(kl > 1e-6)
    alpha = torch.tensor(1e-10, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(bd.JSG(alpha)(q, p), alpha)
    assert slope.item() == pytest.approx(float(-2 * kl - reverse), rel=1e-4)


@given(normals(), normals())
def test_js_g_crosses_kl_above_the_threshold_and_below_1_where_the_threshold_is(q, p):
    """R < R_N, and R_N < 1 exactly where R < 1, the counterpart of theorem 3 for JS-G."""
    exact_q, exact_p = Exact.of(q), Exact.of(p)
    assume(abs(mpmath.log(exact_q.variance / exact_p.variance)) > 1e-3)
    kl, reverse = mp_kl(exact_q, exact_p), mp_kl(exact_p, exact_q)
    threshold = 2 * kl / (kl + reverse)
    if threshold < 1:
        assert mp_js_g(exact_q, exact_p, threshold) < kl
        assert mp_js_g(exact_q, exact_p, 1 - mpmath.mpf(10) ** -30) > kl
    else:
        assert mp_js_g(exact_q, exact_p, 1 - mpmath.mpf(10) ** -30) < kl


@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e3), st.floats(1e-8, 20), st.booleans())
def test_theorem_3_holds_however_near_the_scales_are(loc, scale, log_ratio, narrower):
    """Down to scales 1e-8 apart, on both sides of 1: the paper's proof leaves γ < 1 out."""
    other = scale * math.exp(-log_ratio if narrower else log_ratio)
    assume(1e-12 < other < 1e12)
    q, p = Normal(*double(loc, other)), Normal(*double(0.0, scale))
    exact_q, exact_p = Exact.of(q), Exact.of(p)
    kl, reverse = mp_kl(exact_q, exact_p), mp_kl(exact_p, exact_q)
    assert (2 * kl / (kl + reverse) < 1) == narrower
    assert (bd.ReverseKL()(q, p).item() > bd.KL()(q, p).item()) == narrower


@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e3))
def test_equal_scales_put_the_threshold_at_1(loc, scale):
    assume(abs(loc) > 1e-6 * scale)
    q, p = Normal(*double(loc, scale)), Normal(*double(0.0, scale))
    kl, reverse = mp_kl(Exact.of(q), Exact.of(p)), mp_kl(Exact.of(p), Exact.of(q))
    assert kl == reverse
    assert bd.KL()(q, p).item() == pytest.approx(bd.ReverseKL()(q, p).item(), rel=1e-14)


@given(st.lists(st.tuples(LOC, SCALE, st.floats(1e-3, 5)), min_size=1, max_size=20))
def test_theorem_3_is_sufficient_for_a_network_of_narrower_posteriors(weights):
    loc, scale, log_ratio = (torch.tensor(column).double() for column in zip(*weights, strict=True))
    q, p = Normal(loc, scale * (-log_ratio).exp()), Normal(torch.zeros_like(loc), scale)
    assert bd.KL()(q, p).sum() < bd.ReverseKL()(q, p).sum()


def test_theorem_3_is_not_necessary_for_a_network():
    """One weight much narrower outweighs one a little wider than its prior."""
    q = Normal(*double([0.0, 0.0], [0.1, 1.1]))
    p = Normal(*double([0.0, 0.0], [1.0, 1.0]))
    assert bd.KL()(q, p).sum() < bd.ReverseKL()(q, p).sum()


# The limit cases.


@few
@given(densities(*WHOLE_LINE), densities(*WHOLE_LINE))
def test_limit_cases_are_the_two_kls_of_scipy(q, p):
    kl, reverse = scipy_kl(q, p), scipy_kl(p, q)
    for kind in (bd.JSA, bd.JSG, bd.WeightedKL):
        assert ours(kind(0.0), q, p) == pytest.approx(kl, rel=1e-5, abs=1e-7)
        assert ours(kind(1.0), q, p) == pytest.approx(reverse, rel=1e-5, abs=1e-7)
    for kind in (UnmodifiedJSA, UnmodifiedJSG):
        assert ours(kind(0.0), q, p) == ours(kind(1.0), q, p) == 0


@few
@given(densities(gaussian, laplace), densities(student))
def test_js_a_and_js_g_approach_kl_as_alpha_vanishes(q, p):
    """With lighter tails in q than in p; the other way round JS-A is slow to see the tails."""
    kl = scipy_kl(q, p)
    for kind in (bd.JSA, bd.JSG):
        gaps = [abs(ours(kind(alpha), q, p) - kl) for alpha in (1e-2, 1e-4, 1e-13)]
        assert gaps[0] + 1e-6 >= gaps[1]
        assert gaps[2] <= 1e-5 * max(1.0, kl)


def test_an_infinite_kl_is_the_limit_of_finite_bounds():
    """Against a uniform prior JS-A grows like the bound as alpha vanishes, to infinity at 0."""
    q, p = gaussian(0.0, 2.0), uniform(-5.0, 10.0)
    values = [ours(bd.JSA(alpha), q, p) for alpha in (1e-2, 1e-4, 1e-8, 1e-16)]
    assert values == sorted(values)
    outside = 2 * stats.norm.sf(2.5)
    steps = [values[3] - values[2], values[2] - values[1]]
    assert steps == pytest.approx([outside * math.log(1e8), outside * math.log(1e4)], rel=1e-2)
    assert ours(bd.JSA(0.0), q, p) == math.inf


@given(st.floats(math.log(0.03), math.log(30)).map(math.exp), ALPHA)
def test_far_from_the_prior_each_divergence_is_a_known_multiple_of_kl(ratio, alpha):
    """(1-α)² + α²/r² for the weighted KLs, ((1-α)³ r² + α³/r²)/v for JS-G, 0 for JS-A."""
    q, p = Normal(*double(1e7, ratio)), Normal(*double(0.0, 1.0))
    kl = bd.KL()(q, p).item()
    v = (1 - alpha) * ratio**2 + alpha
    weighted = (1 - alpha) ** 2 + alpha**2 / ratio**2
    geometric = ((1 - alpha) ** 3 * ratio**2 + alpha**3 / ratio**2) / v
    assert bd.WeightedKL(alpha)(q, p).item() / kl == pytest.approx(weighted, rel=1e-6)
    assert bd.JSG(alpha)(q, p).item() / kl == pytest.approx(geometric, rel=1e-6)
    assert bd.JSA(alpha)(q, p).item() / kl < 1e-10
    border = 2 * ratio**2 / (1 + ratio**2)
    if abs(alpha - border) > 1e-3:
        assert (bd.WeightedKL(alpha)(q, p).item() > kl) == (alpha > border)
