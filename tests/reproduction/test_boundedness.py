"""The figures of theorem 1: infinite against a uniform prior, but JS-A."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from bayesdiv.app import runs
from figures import assert_drawn
from reproduction.analytical import boundedness as item
from reproduction.item import Effort
from reproduction.verdict import Outcome

COMMITTED = Path(__file__).parents[2] / "results"


def test_a_toy_size_is_computed_drawn_and_judged(results, tmp_path):
    assert_drawn(item, results, tmp_path, width=1500)
    assert item.verdict(results).outcome is Outcome.PARTLY


def test_what_is_there_is_not_computed_again(results):
    before = (results / item.PLACE).read_bytes()
    item.compute(results, Effort.FULL, pytest.fail)
    assert (results / item.PLACE).read_bytes() == before


def scipy_js_a(scale, alpha, edge):
    q, p = stats.norm(0, scale), 1 / (2 * edge)

    def inside(x):
        mean = alpha * q.pdf(x) + (1 - alpha) * p
        left = (1 - alpha) * q.pdf(x) * (q.logpdf(x) - math.log(mean))
        return left + alpha * p * math.log(p / mean)

    # Outside p the mean is α q, and log q/A is -log α.
    outside = -(1 - alpha) * math.log(alpha) * 2 * q.sf(edge)
    return 2 * integrate.quad(inside, 0, edge, limit=200)[0] + outside


def test_exact_values_are_those_of_scipy_and_kl_is_infinite_at_every_scale():
    told = runs.read_json(COMMITTED / item.PLACE)
    assert told["exact"]["KL"] == told["exact"]["JSG"] == [None] * len(told["scale"])
    for place in range(0, len(told["scale"]), 10):
        wanted = scipy_js_a(told["scale"][place], 0.5, 5.0)
        assert told["exact"]["JSA"][place] == pytest.approx(wanted, rel=1e-7)


def test_samples_stay_finite_only_by_the_chance_that_none_leaves_the_support():
    told = runs.read_json(COMMITTED / item.PLACE)
    wanted = (1 - 2 * stats.norm.sf(5 / np.array(told["scale"]))) ** 50_000
    np.testing.assert_allclose(told["chance_inside"], wanted, rtol=1e-6, atol=1e-12)
    for chance, kl in zip(wanted, told["sampled"]["KL"], strict=True):
        assert kl is not None if chance > 0.9999 else True
        assert kl is None if chance < 1e-4 else True


def test_committed_values_are_the_papers_50_000_samples():
    told = runs.read_json(COMMITTED / item.PLACE)
    assert told["settings"]["samples"] == 50_000
    verdict = item.verdict(COMMITTED)
    assert verdict.outcome is Outcome.PARTLY
    assert "0.693" in verdict.sentence


def test_a_js_a_above_its_bound_is_not_reproduced(tmp_path):
    told = runs.read_json(COMMITTED / item.PLACE)
    told["exact"]["JSA"][3] = 0.7
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).outcome is Outcome.NOT


def test_a_finite_kl_is_not_reproduced(tmp_path):
    told = runs.read_json(COMMITTED / item.PLACE)
    told["exact"]["KL"][0] = 1.0
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).outcome is Outcome.NOT
