"""The abstract's claims: drawn and judged from the committed results, and without any."""

from pathlib import Path

import pytest

from bayesdiv.app import runs
from reproduction.claims import accuracy, false_negatives, regression
from reproduction.verdict import Outcome

COMMITTED = Path(__file__).parents[2] / "results"
ITEMS = (accuracy, false_negatives, regression)


@pytest.mark.parametrize("item", ITEMS)
def test_a_claim_is_drawn_with_its_interval_and_the_published_figure(item, tmp_path):
    _, page, _ = item.draw(COMMITTED, tmp_path)
    rows = [line for line in page.read_text().splitlines() if line.startswith("|")][2:]
    assert all(" to " in row for row in rows)
    assert item.verdict(COMMITTED).evidence[0].name in rows[0]
    assert len(rows) >= 3


@pytest.mark.parametrize("item", ITEMS)
def test_without_results_a_claim_is_open(item, tmp_path):
    assert item.verdict(tmp_path).outcome is Outcome.OPEN
    with pytest.raises(runs.RunError, match="there are no"):
        item.draw(tmp_path, tmp_path)


def test_the_better_of_two_is_judged_by_a_wider_interval():
    best, other, tuned = accuracy.comparisons(COMMITTED)
    assert best.interval.mean >= other.interval.mean
    assert (best.published, tuned.published) == (pytest.approx(0.0519, abs=1e-4), None)


def test_the_best_case_of_twelve_is_that_of_the_largest_lower_end():
    every = regression.comparisons(COMMITTED)
    assert len(every) == 12
    assert every[0].interval.low == max(one.interval.low for one in every)
