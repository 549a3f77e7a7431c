"""Intervals, badges and verdicts, against SciPy and by simulation."""

import math
from operator import attrgetter

import numpy as np
import pytest
from scipy import stats

from reproduction.intervals import Interval, Standing, row_variance, standing, student
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


def correlated(rng, share=1 / 9, count=20):
    """Differences on splits that share rows: a part of their error is the same in all of them."""
    return rng.normal(size=count) + math.sqrt(share) * rng.normal()


def test_a_diverged_split_does_not_turn_undecided_into_ahead():
    values = np.random.default_rng(1).normal(0.04, 0.1, 20).tolist()
    for place in range(20):
        lost = [*values[:place], -math.inf, *values[place + 1 :]]
        for confidence in (0.95, 1 - 0.05 / 12):
            found = student(values, overlap=1 / 9, confidence=confidence)
            assert standing(found) is Standing.UNDECIDED
            wider = student(lost, overlap=1 / 9, confidence=confidence)
            assert standing(wider) is Standing.UNDECIDED, place
            assert wider.low <= student(lost, confidence=confidence).low


@pytest.mark.parametrize("confidence", [0.95, 1 - 0.05 / 12])
def test_the_median_of_splits_that_share_rows_is_covered_as_often_as_it_says(confidence):
    rng, missed = np.random.default_rng(3), {0.0: 0, 1 / 9: 0}
    for _ in range(1500):
        values = correlated(rng)
        values[np.argmax(np.abs(values))] *= math.inf
        for overlap in missed:
            found = student(values.tolist(), overlap=overlap, confidence=confidence)
            missed[overlap] += not found.low <= 0 <= found.high
    assert missed[1 / 9] <= (1 - confidence) * 1500
    assert missed[0.0] > 2 * (1 - confidence) * 1500


def test_an_end_that_no_order_statistic_covers_is_infinite():
    assert student([-math.inf, 0.1, 0.2])[1:3] == (-math.inf, math.inf)
    wide = student([-math.inf, *np.linspace(0.1, 0.2, 19)], overlap=1 / 9, confidence=1 - 0.05 / 12)
    assert wide[1:3] == (-math.inf, math.inf)
    assert student([-math.inf] * 20, overlap=1 / 9)[:3] == (-math.inf,) * 3


def test_rows_of_all_folds_are_the_bootstrap_and_of_some_folds_near_it():
    rng, rows = np.random.default_rng(4), 4000
    shared, own = 0.3 * rng.normal(size=rows), 0.6 * rng.normal(size=(5, rows))
    answers = shared + own + rng.normal(size=(5, 1))  # a fold may be better as a whole
    whole = row_variance(answers, 5)
    assert whole == row_variance(answers) == pytest.approx(answers.mean(0).var() / rows)
    assert whole == pytest.approx((0.09 + 0.36 / 5) / rows, rel=0.05)
    for kept in (2, 3, 4):
        assert row_variance(answers[:kept], 5) == pytest.approx(whole, rel=0.15)
    assert row_variance(answers[:1], 5) == pytest.approx((0.09 + 0.36) / rows, rel=0.05)
    alone = row_variance(own[:2] - own[:2].mean(0), 5)  # nothing is shared: not below 0
    assert alone == pytest.approx(0.36 / 2 * 2 / 5 / rows, rel=0.1)


def test_an_interval_is_widened_as_student_has_it():
    values = [0.3, 0.1, 0.5, 0.2, 0.4]
    wider = student(values).widened(4)
    assert wider == pytest.approx(student(values, confidence=1 - 0.05 / 4))
    best = student(values, confidence=0.975)
    assert best.widened(2, 0.975) == pytest.approx(student(values, confidence=0.9875))
    skewed = Interval(1.0, 0.5, 3.0, 5)
    assert skewed.widened(2)[1:3] == (-math.inf, math.inf)
    assert student([0.5]).widened(3)[1:3] == (-math.inf, math.inf)


def test_an_end_near_zero_shows_its_sign():
    assert Interval(-0.0246, -0.049, -0.0001, 20).text(3) == "-0.025 [-0.049, -0.0001]"
    assert Interval(0.5, -0.004, 1.0, 5).text(2) == "+0.50 [-0.004, +1.00]"
    assert Interval(0.0, 0.0, 1.0, 5).text(2) == "+0.00 [+0.00, +1.00]"


def test_a_level_other_than_95_percent_stands_beside_the_figures():
    plain = Comparison("any", ONE, 0.9)
    assert plain.text == "any +100.00 [+50.00, +150.00] points (ahead; published +90.00)"
    wide = plain._replace(confidence=1 - 0.05 / 12)
    assert wide.text.endswith("points (ahead, 99.6 % interval; published +90.00)")


def test_ahead_level_undecided_behind():
    assert standing(Interval(-1.0, -2.0, -0.1, 5)) is Standing.BEHIND
    assert standing(Interval(0.0, -0.2, 0.2, 5), margin=0.3) is Standing.LEVEL
    assert standing(Interval(0.0, -0.2, 0.4, 5), margin=0.3) is Standing.UNDECIDED
    assert standing(ONE, margin=9.0) is Standing.LEVEL
    assert standing(ONE, margin=1.0) is Standing.AHEAD


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


def test_a_part_counts_only_by_an_interval_that_allows_for_all_parts():
    sure, barely = Interval(1.0, 0.5, 1.5, 5), Interval(1.0, 0.1, 1.9, 5)
    none = Comparison("none", Interval(0.0, -1.0, 1.0, 5))
    one, other = Comparison("sure", sure), Comparison("barely", barely)
    assert judged([one, other]).direction is Badge.YES
    assert judged([one, none]).direction is Badge.PARTLY
    assert judged([other, none]).direction is Badge.UNDECIDED
    behind = Comparison("behind", sure.times(-1))
    assert judged([other, behind]).direction is Badge.NO
    assert judged([one, behind]).direction is Badge.PARTLY


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
