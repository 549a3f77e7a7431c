"""The items of the theorems: tried on random pairs, and against copies that contradict them."""

import math
from pathlib import Path

import pytest
from scipy import integrate, stats

from bayesdiv.app import runs
from figures import assert_drawn
from reproduction.analytical import corollary, theorem_1, theorem_2, theorem_3
from reproduction.item import Effort
from reproduction.verdict import Badge, Outcome

COMMITTED = Path(__file__).parents[2] / "results"
ITEMS = (theorem_1, theorem_2, theorem_3, corollary)


def names(item):
    return item.__name__.rpartition(".")[2]


@pytest.mark.parametrize("item", ITEMS, ids=names)
def test_a_toy_size_is_computed_drawn_and_judged(item, tmp_path):
    assert item.verdict(tmp_path).outcome is Outcome.OPEN
    item.compute(tmp_path, Effort.QUICK, lambda line: None)
    assert_drawn(item, tmp_path, tmp_path / "out", width=700)
    assert item.verdict(tmp_path).direction is Badge.YES
    before = (tmp_path / item.PLACE).read_bytes()
    item.compute(tmp_path, Effort.FULL, pytest.fail)
    assert (tmp_path / item.PLACE).read_bytes() == before


@pytest.mark.parametrize("item", ITEMS, ids=names)
def test_the_theorems_hold_for_the_committed_pairs(item):
    verdict = item.verdict(COMMITTED)
    assert verdict.outcome is Outcome.REPRODUCED
    assert verdict.n >= 500


def test_committed_values_of_theorem_1_are_those_of_scipy_for_gaussians():
    from reproduction.analytical.pairs import SIZES, pairs

    cases = [
        case
        for case in runs.read_json(COMMITTED / theorem_1.PLACE)["cases"]
        if case["pair"] == "Gaussian from Gaussian"
    ]
    (_, q, p), *_ = pairs(SIZES[Effort.FULL], ("Gaussian", "Laplace", "Student", "uniform"))
    for place in range(0, len(cases), 12):
        alpha = cases[place]["alpha"]
        one = stats.norm(q.loc[place].item(), q.scale[place].item())
        two = stats.norm(p.loc[place].item(), p.scale[place].item())

        def integrand(x, one=one, two=two, alpha=alpha):
            a, b = one.pdf(x), two.pdf(x)
            mean = alpha * a + (1 - alpha) * b
            left = (1 - alpha) * a * math.log(a / mean) if a > 0 else 0.0
            return left + (alpha * b * math.log(b / mean) if b > 0 else 0.0)

        ends = [side.mean() + k * side.std() for side in (one, two) for k in (-30, -4, 0, 4, 30)]
        wanted, _ = integrate.quad(integrand, min(ends), max(ends), points=sorted(ends), limit=500)
        assert cases[place]["JSA"] == pytest.approx(wanted, rel=1e-5)


def contradicting(item, told):
    if item is theorem_1:
        told["cases"][0]["JSA"] = theorem_1.bound(told["cases"][0]["alpha"]) + 1e-3
    elif item is theorem_2:
        far = max(told["cases"], key=lambda case: case["alpha"] - case["threshold"])
        far["weighted_excess"] = -1.0
    elif item is theorem_3:
        told["threshold"][0] = 2 - told["threshold"][0]
    else:
        told["WeightedKL"][0] = -0.1
    return told


@pytest.mark.parametrize("item", ITEMS, ids=names)
def test_one_pair_that_contradicts_is_enough(item, tmp_path):
    told = contradicting(item, runs.read_json(COMMITTED / item.PLACE))
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).outcome is Outcome.NOT
