"""The figure of theorem 3: where the JS-G loss is above the KL loss."""

from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

from bayesdiv.app import runs
from figures import assert_drawn
from reproduction.analytical import sign_of_difference as item
from reproduction.verdict import Outcome

COMMITTED = Path(__file__).parents[2] / "results"


def test_a_toy_size_is_computed_drawn_and_judged(results, tmp_path):
    assert_drawn(item, results, tmp_path, width=1500)
    assert item.verdict(results).outcome is Outcome.REPRODUCED


def kls(scale):
    """KL(N(0, σ²) ‖ N(0, 1)) and its reverse."""
    forward = (scale**2 - 1) / 2 - np.log(scale)
    return forward, (1 / scale**2 - 1) / 2 + np.log(scale)


def excess(kind, alpha, scale):
    """Over KL; the normaliser of the geometric mean is σ^(1-α) / √((1-α) σ² + α)."""
    forward, reverse = kls(scale)
    log_z = (1 - alpha) * np.log(scale) - np.log((1 - alpha) * scale**2 + alpha) / 2
    both = (1 - alpha) ** 2 * forward + alpha**2 * reverse
    return both - forward + (log_z if kind == "JSG" else 0.0)


@pytest.mark.parametrize("kind", ["WeightedKL", "JSG"])
def test_signs_are_those_of_the_formulas(kind):
    told = runs.read_json(COMMITTED / item.PLACE)
    alpha, difference = (np.array(told[name]) for name in ("alpha", "difference"))
    wanted = excess(kind, alpha[:, None], 1 - difference)
    found = np.array([["-0+".index(s) - 1 for s in row] for row in told["sign"][kind]])
    clear = np.abs(wanted) > 1e-9
    assert clear.mean() > 0.95
    np.testing.assert_array_equal(found[clear], np.sign(wanted)[clear])
    assert not found[0].any()
    assert not found[:, difference == 0].any()


def test_borders_are_roots_of_the_difference():
    told = runs.read_json(COMMITTED / item.PLACE)
    for kind in ("WeightedKL", "JSG"):
        for place in (80, 100, 125):
            scale = 1 - told["difference"][place]
            root = optimize.brentq(lambda a, s=scale, k=kind: excess(k, a, s), 1e-3, 1)
            assert told["border"][kind][place] == pytest.approx(root, abs=1e-9)


def test_theorem_2_holds_for_the_weighted_kls_and_fails_in_cells_of_js_g():
    told = runs.read_json(COMMITTED / item.PLACE)
    assert item._against_theorem_2(told, "WeightedKL") == 0
    assert item._against_theorem_2(told, "JSG") > 100
    verdict = item.verdict(COMMITTED)
    assert verdict.outcome is Outcome.REPRODUCED
    assert str(item._against_theorem_2(told, "JSG")) in verdict.sentence


def test_a_plus_beside_a_wider_posterior_is_not_reproduced(tmp_path):
    told = runs.read_json(COMMITTED / item.PLACE)
    told["sign"]["WeightedKL"][50] = "+" + told["sign"]["WeightedKL"][50][1:]
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).outcome is Outcome.NOT
