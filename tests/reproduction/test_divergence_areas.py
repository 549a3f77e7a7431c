"""The figure of shaded areas: each is its divergence."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from bayesdiv.app import runs
from figures import assert_drawn
from reproduction.analytical import divergence_areas as item
from reproduction.verdict import Outcome

COMMITTED = Path(__file__).parents[2] / "results"


def test_a_toy_size_is_computed_drawn_and_judged(results, tmp_path):
    assert_drawn(item, results, tmp_path, width=1500)
    assert item.verdict(results).outcome is Outcome.REPRODUCED


def by_hand(x):
    """The integrands at α = ½ of N(1, 1) and N(0, 1), whose geometric mean is N(½, 1)."""
    q, p = stats.norm.pdf(x, 1), stats.norm.pdf(x, 0)
    means = {"JSG": stats.norm.pdf(x, 0.5), "JSA": (q + p) / 2}
    both = {name: (q * np.log(q / m) + p * np.log(p / m)) / 2 for name, m in means.items()}
    return {"KL": q * np.log(q / p), **both}


@pytest.mark.parametrize("kind", ["KL", "JSG", "JSA"])
def test_integrands_are_those_written_out_by_hand(kind):
    told = runs.read_json(COMMITTED / item.PLACE)
    x = np.array(told["x"])
    np.testing.assert_allclose(told["integrand"][kind], by_hand(x)[kind], rtol=1e-9, atol=1e-15)
    area = integrate.quad(lambda x: by_hand(x)[kind], -9, 10, limit=200)[0]
    assert told["area"][kind] == pytest.approx(area, abs=1e-9)


def test_areas_are_one_half_one_eighth_and_that_of_js_a():
    told = runs.read_json(COMMITTED / item.PLACE)
    assert told["area"]["KL"] == pytest.approx(1 / 2, abs=1e-9)
    assert told["area"]["JSG"] == pytest.approx(1 / 8, abs=1e-9)
    assert 0 < told["area"]["JSA"] < math.log(2)
    assert item.verdict(COMMITTED).outcome is Outcome.REPRODUCED


def test_an_area_that_misses_its_divergence_is_not_reproduced(tmp_path):
    told = runs.read_json(COMMITTED / item.PLACE)
    told["area"]["JSA"] += 1e-5
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).outcome is Outcome.NOT
