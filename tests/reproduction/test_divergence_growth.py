"""The figure of growing divergences: KL, both things called JS-G, and λ JS-A."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from scipy import integrate, optimize, stats

from bayesdiv.app import runs
from figures import assert_drawn
from reproduction.analytical import divergence_growth as item
from reproduction.verdict import Badge, Outcome

COMMITTED = Path(__file__).parents[2] / "results"


def test_a_toy_size_is_computed_drawn_and_judged(results, tmp_path):
    assert_drawn(item, results, tmp_path, width=1500)
    assert item.verdict(results).outcome is Outcome.PARTLY


def mean_of(kind, q, p, alpha, points):
    """Log density of the mean, normalised by integration where it is the geometric one."""
    if kind == "JSA":
        return lambda x: math.log(alpha * q.pdf(x) + (1 - alpha) * p.pdf(x))
    geometric = lambda x: alpha * q.logpdf(x) + (1 - alpha) * p.logpdf(x)  # noqa: E731
    z = integral(lambda x: math.exp(geometric(x)), points)
    log_z = 0.0 if kind == "WeightedKL" else math.log(z)
    return lambda x: geometric(x) - log_z


def integral(function, points):
    return sum(integrate.quad(function, low, high, limit=200)[0] for low, high in pairwise(points))


def scipy_value(kind, loc, variance, alpha=0.5):
    """By the definitions: (1-α) KL(q ‖ M) + α KL(p ‖ M), or KL(q ‖ p)."""
    q, p = stats.norm(loc, math.sqrt(variance)), stats.norm(0, math.sqrt(0.1))
    sides = [d.mean() + k * d.std() for d in (q, p) for k in (-9, -3, -1, 0, 1, 3, 9)]
    points = sorted(sides)

    def kl(one, log_other):
        return integral(lambda x: one.pdf(x) * (one.logpdf(x) - log_other(x)), points)

    if kind == "KL":
        return kl(q, p.logpdf)
    mean = mean_of(kind, q, p, alpha, points)
    return (1 - alpha) * kl(q, mean) + alpha * kl(p, mean)


@pytest.mark.parametrize("kind", ["KL", "JSG", "WeightedKL", "JSA"])
def test_curves_are_the_integrals_of_scipy(kind):
    told = runs.read_json(COMMITTED / item.PLACE)
    for place in (0, 70, 105):
        loc, variance = told["mean"]["across"][place], told["variance"]["across"][place]
        assert told["mean"][kind][place] == pytest.approx(scipy_value(kind, loc, 0.01), rel=1e-6)
        wanted = scipy_value(kind, 0.1, variance)
        assert told["variance"][kind][place] == pytest.approx(wanted, rel=1e-6)


def test_the_fixed_values_are_those_of_the_paper():
    settings = runs.read_json(COMMITTED / item.PLACE)["settings"]
    names = ("posterior_loc", "posterior_variance", "prior_variance")
    assert [settings[name] for name in names] == [0.1, 0.01, 0.1]


def test_kl_overtakes_js_a_where_it_passes_its_bound():
    """Far out λ JS-A is λ log 2, and KL = ½(0.1 + 10 μ² - 1) + ½ log 10 passes it."""

    def excess(loc):
        return 0.5 * (0.1 + 10 * loc**2 - 1) + 0.5 * math.log(10) - 20 * math.log(2)

    border = optimize.brentq(excess, 0, 2)
    told = runs.read_json(COMMITTED / item.PLACE)
    places = zip(told["mean"]["across"], item._above(told, "mean", "JSA"), strict=True)
    above = [loc for loc, here in places if here]
    assert max(above) <= border < max(above) + 0.02
    assert f"to {max(above):.3g}" in item.verdict(COMMITTED).sentence


def test_js_g_exceeds_kl_for_every_mean_but_for_no_posterior_wider_than_the_prior():
    told = runs.read_json(COMMITTED / item.PLACE)
    assert all(item._above(told, "mean", "JSG"))
    pairs = zip(told["variance"]["across"], item._above(told, "variance", "JSG"), strict=True)
    assert not any(here for variance, here in pairs if variance >= 0.1)
    assert item.verdict(COMMITTED).outcome is Outcome.PARTLY


@pytest.mark.parametrize(
    ("factors", "direction"),
    [
        ({}, Badge.PARTLY),
        ({"JSA": 0.0}, Badge.PARTLY),
        ({"JSG": 0.0}, Badge.NO),
        ({"JSG": 0.0, "JSA": 1e6}, Badge.PARTLY),
        ({"JSA": 1e6}, Badge.YES),
        ({"JSG": 0.0, "JSA": 0.0}, Badge.NO),
    ],
)
def test_both_losses_must_grow_faster_than_kl(factors, direction, tmp_path):
    told = runs.read_json(COMMITTED / item.PLACE)
    for axis in ("mean", "variance"):
        for name, factor in factors.items():
            told[axis][name] = [factor * value for value in told[axis][name]]
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).direction is direction


def test_a_closed_form_far_from_integration_is_not_reproduced(tmp_path):
    told = runs.read_json(COMMITTED / item.PLACE)
    told["mean"]["largest_error"] = 1e-3
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).outcome is Outcome.NOT


@pytest.mark.parametrize(
    ("above", "words"),
    [
        ([True, True, True], "everywhere"),
        ([False, False, False], "nowhere"),
        ([True, True, False], "to 2"),
        ([False, True, True], "from 2 to 3"),
        ([True, False, True], "at 2 of 3 places"),
    ],
)
def test_a_stretch_is_told_in_words(above, words):
    assert item._reach([1.0, 2.0, 3.0], above) == words
