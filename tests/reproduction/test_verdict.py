"""Intervals, badges and verdicts, against SciPy and by simulation."""

import math
from operator import attrgetter

import numpy as np
import pytest
from scipy import stats

from reproduction.intervals import Interval, Standing, standing, student
from reproduction.verdict import (
    Badge,
    Comparison,
    Outcome,
    Verdict,
    checked,
    inside,
    judged,
    not_computed,
    together,
)

ONE = Interval(1.0, 0.5, 1.5, 5)


def test_the_interval_of_paired_differences_is_that_of_scipy():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 7))
    for confidence in (0.9, 0.95, 0.99):
        wanted = stats.ttest_rel(one, other).confidence_interval(confidence)
        found = student((one - other).tolist(), confidence=confidence)
        assert found[1:3] == pytest.approx((wanted.low, wanted.high))
        assert found.n == 7


def test_splits_that_share_rows_have_the_variance_of_nadeau_and_bengio():
    differences = [0.1, 0.3, -0.2, 0.4, 0.0]
    found = student(differences, overlap=0.1 / 0.9)
    error = np.std(differences, ddof=1) * math.sqrt(1 / 5 + 1 / 9)
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 4) * error)


def test_random_splits_of_one_sample_need_that_correction():
    """20 splits 90/10 of one sample: without it "ahead" would be called much too often."""
    rng = np.random.default_rng(1)
    called = {0.0: 0, 1 / 9: 0}
    for _ in range(300):
        rows = rng.normal(size=100)  # differences of two losses, of mean 0, row by row
        each = [rng.permutation(rows)[:10].mean() + rows.mean() for _ in range(20)]
        for overlap in called:
            interval = student(each, overlap=overlap)
            called[overlap] += standing(interval) in (Standing.AHEAD, Standing.BEHIND)
    assert called[0.0] > 60
    assert called[1 / 9] < called[0.0] / 1.5


def test_a_single_difference_decides_nothing():
    found = student([0.5])
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert standing(found) is Standing.UNDECIDED
    assert inside(found, 0.4, 0.6) is Badge.UNDECIDED


@pytest.mark.parametrize("lost", [1, 5, 12, 20])
def test_infinite_differences_have_the_interval_of_their_median(lost):
    finite = np.linspace(0.1, 0.2, 20 - lost).tolist()
    found = student([-math.inf] * lost + finite)
    wanted = {1: Standing.AHEAD, 5: Standing.AHEAD, 12: Standing.UNDECIDED, 20: Standing.BEHIND}
    assert standing(found) is wanted[lost]


def test_the_interval_of_the_median_covers_as_often_as_it_says():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(400):
        values = rng.normal(size=20)
        values[values > 2] = math.inf
        values[-1] = math.inf if values[-1] > 0 else -math.inf
        found = student(values.tolist())
        covered += found.low <= 0 <= found.high
    assert covered >= 0.93 * 400


def test_ahead_level_undecided_behind():
    assert standing(Interval(-1.0, -2.0, -0.1, 5)) is Standing.BEHIND
    assert standing(Interval(0.0, -0.2, 0.2, 5), margin=0.3) is Standing.LEVEL
    assert standing(Interval(0.0, -0.2, 0.4, 5), margin=0.3) is Standing.UNDECIDED
    assert standing(ONE, margin=9.0) is Standing.AHEAD


def test_the_best_case_is_the_surest_of_those_ahead_or_else_the_largest():
    narrow = Comparison("nothing", Interval(0.0, -0.01, 0.01, 5))
    wide = Comparison("much, undecided", Interval(3.0, -1.0, 7.0, 5))
    barely = Comparison("more, less surely", Interval(2.0, 0.1, 3.9, 5))
    ahead = Comparison("ahead", ONE)
    ranked = sorted([ahead, wide, narrow, barely], key=attrgetter("rank"))
    assert ranked == [narrow, wide, barely, ahead]


def test_the_size_is_the_published_one_within_a_factor_of_two_of_the_whole_interval():
    assert Comparison("any", ONE, published=0.9).size_badge is Badge.YES
    assert Comparison("any", ONE, published=1.2).size_badge is Badge.UNDECIDED
    assert Comparison("any", ONE, published=9.0).size_badge is Badge.NO
    assert Comparison("any", ONE).size_badge is Badge.UNSTATED
    assert Comparison("any", ONE, published=9.0, size=(0.0, 2.0)).size_badge is Badge.YES


def test_reproduced_needs_the_direction_and_the_size_that_the_paper_states():
    def outcome(direction, size):
        return Verdict(direction, size, "").outcome

    assert outcome(Badge.YES, Badge.YES) is Outcome.REPRODUCED
    assert outcome(Badge.YES, Badge.UNSTATED) is Outcome.REPRODUCED
    for size in (Badge.NO, Badge.UNDECIDED, Badge.PARTLY):
        assert outcome(Badge.YES, size) is Outcome.PARTLY
    assert outcome(Badge.PARTLY, Badge.YES) is Outcome.PARTLY
    assert outcome(Badge.UNDECIDED, Badge.YES) is Outcome.UNDECIDED
    assert outcome(Badge.NO, Badge.YES) is Outcome.NOT
    assert not_computed("none").outcome is Outcome.OPEN


def test_a_claim_without_runs_leaves_the_verdict_undecided_at_best():
    claim = Comparison("any", ONE)
    assert judged([claim]).direction is Badge.YES
    assert judged([claim], wanted=2).direction is Badge.PARTLY
    behind = Comparison("any", ONE.times(-1))
    assert judged([behind], wanted=2).direction is Badge.NO
    assert judged([], wanted=2).outcome is Outcome.OPEN


def test_parts_of_a_claim_go_together():
    assert together([Badge.YES, Badge.YES]) is Badge.YES
    assert together([Badge.YES, Badge.UNDECIDED]) is Badge.PARTLY
    assert together([Badge.UNDECIDED, Badge.UNDECIDED]) is Badge.UNDECIDED
    assert together([Badge.UNSTATED, Badge.YES]) is Badge.YES
    assert together([]) is Badge.UNSTATED


def test_what_is_computed_without_sampling_counts_its_cases():
    verdict = checked(True, None, "all hold", 9)
    assert (verdict.n, verdict.outcome) == (9, Outcome.REPRODUCED)
    assert checked(True, False, "", 9).outcome is Outcome.PARTLY
    assert checked(False, True, "", 9).outcome is Outcome.NOT
