"""The figure of Monte Carlo errors: how many samples 5 % takes, for which JS-G."""

import math
from pathlib import Path

import pytest
from scipy import stats

from bayesdiv.app import runs
from figures import assert_drawn
from reproduction.analytical import monte_carlo_error as item
from reproduction.verdict import Outcome

COMMITTED = Path(__file__).parents[2] / "results"


def test_a_toy_size_is_computed_drawn_and_judged(results, tmp_path):
    assert_drawn(item, results, tmp_path, width=1500)
    assert item.verdict(results).outcome is Outcome.PARTLY


def deviation(samples):
    """Of the weighted KLs: ¼ log q/p is ¼(5w - 12.5), of deviation 5/4 under q, as under p."""
    return math.sqrt(2 * (5 / 4) ** 2 / samples)


EXACT = {"WeightedKL": 6.25, "JSG": 3.125}


def test_the_closed_forms_are_those_computed_by_hand():
    """δ²/4 for the weighted KLs at α = ½, and log Z = -δ²/8 makes it half of that."""
    exact = runs.read_json(COMMITTED / item.PLACE)["exact"]
    assert exact == {name: pytest.approx(value, rel=1e-12) for name, value in EXACT.items()}


@pytest.mark.parametrize("kind", ["WeightedKL", "JSG"])
def test_errors_are_those_of_a_normal_estimate(kind):
    told = runs.read_json(COMMITTED / item.PLACE)
    for entry in told["counts"]:
        wanted = stats.norm.ppf(0.975) * deviation(entry["samples"]) / EXACT[kind]
        assert entry[kind]["error"] == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize(("kind", "wanted"), [("WeightedKL", 122.9), ("JSG", 491.7)])
def test_samples_needed_are_those_of_normal_theory(kind, wanted):
    one = stats.norm.ppf(0.975) * deviation(1) / (0.05 * EXACT[kind])
    assert one**2 == pytest.approx(wanted, abs=0.1)
    told = runs.read_json(COMMITTED / item.PLACE)
    assert told["needed"][kind] == pytest.approx(wanted, rel=0.05)


def test_the_papers_600_samples_serve_97_percent_of_repeats_of_js_g():
    told = runs.read_json(COMMITTED / item.PLACE)
    (entry,) = (entry for entry in told["counts"] if entry["samples"] == 600)
    share = 1 - 2 * stats.norm.sf(0.05 * EXACT["JSG"] / deviation(600))
    assert share == pytest.approx(0.97, abs=0.005)
    assert entry["JSG"]["within"] == pytest.approx(share, abs=0.015)
    assert item.verdict(COMMITTED).outcome is Outcome.PARTLY


def test_a_sampled_normaliser_misses_5_percent_even_with_10_000_samples():
    told = runs.read_json(COMMITTED / item.PLACE)
    many = [entry for entry in told["counts"] if "JSG_sampled_z" in entry]
    assert many[-1]["samples"] == 10_000
    assert all(entry["JSG_sampled_z"]["error"] > 0.05 for entry in many)


@pytest.mark.parametrize(
    ("needed", "outcome"),
    [
        ({"JSG": 500.0, "WeightedKL": 700.0}, Outcome.REPRODUCED),
        ({"JSG": 50.0, "WeightedKL": 5000.0}, Outcome.NOT),
    ],
)
def test_the_outcome_follows_the_samples_needed(tmp_path, needed, outcome):
    told = runs.read_json(COMMITTED / item.PLACE) | {"needed": needed}
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).outcome is outcome
