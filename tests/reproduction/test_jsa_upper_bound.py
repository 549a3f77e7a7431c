"""The figure of JS-A and its bounds."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from bayesdiv.app import runs
from figures import assert_drawn
from reproduction.analytical import jsa_upper_bound as item
from reproduction.verdict import Outcome

COMMITTED = Path(__file__).parents[2] / "results"


def test_a_toy_size_is_computed_drawn_and_judged(results, tmp_path):
    assert_drawn(item, results, tmp_path, width=1000)
    assert item.verdict(results).outcome is Outcome.REPRODUCED


def test_curves_and_bounds_are_those_of_theorem_1():
    told = runs.read_json(COMMITTED / item.PLACE)
    for curve in told["curves"]:
        alpha = curve["alpha"]
        bound = -(1 - alpha) * math.log(alpha) - alpha * math.log(1 - alpha)
        assert curve["bound"] == pytest.approx(bound, rel=1e-12)
        assert max(curve["JSA"]) <= bound
        for place in (20, 60, 120):
            loc = told["loc"][place]

            def integrand(x, loc=loc, alpha=alpha):
                q, p = stats.norm.pdf(x, loc), stats.norm.pdf(x)
                mean = alpha * q + (1 - alpha) * p
                return (1 - alpha) * q * np.log(q / mean) + alpha * p * np.log(p / mean)

            wanted = integrate.quad(integrand, -9, loc + 9, limit=300, points=[0, loc])[0]
            assert curve["JSA"][place] == pytest.approx(wanted, rel=1e-7)


def test_committed_curves_come_within_a_hundredth_of_their_bounds():
    told = runs.read_json(COMMITTED / item.PLACE)
    assert all(curve["JSA"][-1] > 0.99 * curve["bound"] for curve in told["curves"])
    assert item.verdict(COMMITTED).outcome is Outcome.REPRODUCED


def changed(tmp_path, change):
    told = runs.read_json(COMMITTED / item.PLACE)
    change(told["curves"][0])
    runs.write_json(tmp_path / item.PLACE, told)
    return item.verdict(tmp_path).outcome


def test_a_value_above_the_bound_is_not_reproduced(tmp_path):
    assert changed(tmp_path, lambda c: c["JSA"].append(c["bound"] + 1e-9)) is Outcome.NOT


def test_a_curve_that_falls_is_not_reproduced(tmp_path):
    assert changed(tmp_path, lambda c: c["JSA"].append(c["JSA"][-1] - 1e-3)) is Outcome.NOT


def test_a_curve_that_stays_far_from_its_bound_is_partly_reproduced(tmp_path):
    assert changed(tmp_path, lambda c: c["JSA"].__delitem__(slice(30, None))) is Outcome.PARTLY
