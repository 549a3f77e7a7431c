"""What missing runs would take, against the seconds in the committed files."""

import json
import math
import shutil
from pathlib import Path
from statistics import median

import pytest

from reproduction.catalogue import CATALOGUE
from reproduction.costs import SUPERSEDED, costs
from reproduction.images.plans import PLANS
from reproduction.images.results import Place

RESULTS = Path(__file__).parents[2] / "results"

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="results/ is not beside the tests")


def read(pattern):
    return [json.loads(path.read_text()) for path in RESULTS.glob(pattern)]


@pytest.fixture(scope="module")
def found():
    return {cost.plan: cost for cost in costs(RESULTS)}


def test_a_run_takes_the_median_wall_time_of_committed_runs_of_its_kind(found):
    runs = [*read("images/cifar10/*/*.json"), *read("images/cifar10-tuning/*/*.json")]
    kept = [run for run in runs if not run["diverged"]]
    each = median(run["seconds"] / run["processes"] for run in kept)  # all of 15 epochs
    cost = found["cifar10-noise"]
    there = len(read("images/cifar10/*/*.json"))
    assert (cost.missing, cost.runs) == (225 - there, 225)
    assert cost.seconds == pytest.approx(cost.missing * each)
    large = median(run["seconds"] / run["processes"] for run in read("images/cifar10-224/*/*.json"))
    assert found["cifar10-224-folds"].seconds == pytest.approx(25 * large * 50 / 8)


def test_a_search_of_the_regression_takes_at_most_all_its_epochs(found):
    """Four rounds of 100, 250 and 500 epochs each, and the winner of at most 500 again."""
    searched = {(told["data"], told["contender"]) for told in read("regression-searched/*/*.json")}
    seconds = {
        loss: sum(
            told["seconds"]
            for told in read(f"regression/*/{loss}.json")
            if (told["data"], loss) not in searched
        )
        for loss in ("kl", "lambda_kl", "js_g", "js_a")
    }
    epochs = 4 * 850 + 500
    # KL trained its final networks alone; the others searched for as many epochs before.
    wanted = seconds.pop("kl") / 500 * epochs + sum(seconds.values()) / 1000 * epochs
    cost = found["regression-searched"]
    assert (cost.missing, cost.runs) == (32 - len(searched), 32)
    assert cost.seconds == pytest.approx(wanted)


def test_a_run_of_two_plans_is_counted_once(found):
    plans = [PLANS[name] for name in PLANS if name not in SUPERSEDED]
    places = {place for whole in plans for place in whole.expected(RESULTS)}
    gone = sum(not place.path(RESULTS).exists() for place in places)
    assert sum(cost.missing for name, cost in found.items() if name in PLANS) == gone
    assert found["cifar10-noise"].runs == 225


def test_every_plan_with_missing_runs_is_computed_for_an_item(found):
    """So that one command computes all of them."""
    from reproduction.images.plans import needed

    asked = set()
    for entry in CATALOGUE:
        needs = entry.needs()
        asked |= {*getattr(needs, "plans", ()), *getattr(needs, "beyond", ())}
    asked |= {need for name in asked for need in needed(name)}
    assert {name for name in found if name in PLANS} <= asked


def test_a_plan_without_missing_runs_is_not_listed(tmp_path, found):
    assert "histopathology-folds" not in found
    shutil.copytree(RESULTS / "images", tmp_path / "images")
    Place("histopathology", "kl", 2).path(tmp_path).unlink()
    again = {cost.plan: cost for cost in costs(tmp_path)}
    assert again["histopathology-folds"].missing == 1
    # Nothing is known of the regression there.
    assert math.isnan(again["regression-searched"].seconds)
