"""Conformal intervals and sets keep their promise, by simulation and at the edges."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Independent,
    LogNormal,
    Normal,
    Poisson,
    StudentT,
)

from bayesdiv.calibration import Central, Intervals, Quantiles, Saved, Scaled, Sets
from bayesdiv.calibration.conformal import threshold
from bayesdiv.predictive import Predictive

SCORES = [Scaled(), Quantiles(), Central()]
scores = pytest.mark.parametrize("score", SCORES, ids=repr)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Predictive, Tensor]:
    """A model that is wrong in its mean and in its noise."""
    random = generator(seed)
    x = torch.rand(rows, generator=random, dtype=dtype)
    y = x + (0.2 + x) * torch.randn(rows, generator=random, dtype=dtype)
    loc = torch.stack([0.8 * x, 0.8 * x + 0.1])
    return Predictive(Normal(loc, (0.1 + 0.3 * x).expand(2, -1))), y


def classes(rows: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Predictive, Tensor]:
    """Five classes and a model that is far too sure."""
    random = generator(seed)
    logits = torch.randn(rows, 5, generator=random, dtype=dtype)
    y = logits.softmax(-1).multinomial(1, generator=random).squeeze(-1)
    return Predictive(Categorical(logits=torch.stack([3 * logits, 4 * logits + 0.2]))), y


def inside(intervals: Intervals, predictive: Predictive, y: Tensor) -> Tensor:
    low, high = intervals(predictive)
    return (low <= y) & (y <= high)


# --- the rank ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.05, 0.1, 0.5, 0.55, 0.7, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("count", [0, 1, 8, 9, 10, 19, 99, 100, 999])
def test_the_rank_is_the_smallest_that_keeps_the_promise(count, level):
    """In whole per cent, so that the oracle needs no rounding."""
    percent = round(100 * level)
    found = min(threshold(torch.arange(1.0, count + 1), level).item(), count + 1)
    assert 100 * found >= percent * (count + 1)
    assert 100 * (found - 1) < percent * (count + 1)


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, math.nan])
def test_a_level_outside_zero_and_one_is_refused(level):
    with pytest.raises(ValueError, match=r"level must lie inside \(0, 1\), got"):
        Intervals.fit(*numbers(20, 0), level)


@dtypes
def test_the_threshold_is_that_order_statistic(dtype):
    found = torch.randn(57, 3, generator=generator(), dtype=dtype)
    wanted = np.sort(found.numpy(), axis=0)[math.ceil(58 * 0.8) - 1]
    np.testing.assert_array_equal(threshold(found, 0.8), wanted)


# --- the promise ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [9, 30, 200])
def test_coverage_given_the_calibration_rows_follows_the_beta_law(count):
    """A thousand calibrations at once, as outputs of their own; the true noise is normal."""
    random = generator(count)
    y = 0.5 + 1.7 * torch.randn(count, 1000, generator=random, dtype=torch.float64)
    wrong = Predictive(Independent(Normal(torch.zeros_like(y).unsqueeze(0), 0.3), 1))
    low, high = Intervals.fit(wrong, y, 0.9)(wrong)
    covered = stats.norm.cdf(high[0], 0.5, 1.7) - stats.norm.cdf(low[0], 0.5, 1.7)
    k = math.ceil(0.9 * (count + 1))
    assert stats.kstest(covered, stats.beta(k, count + 1 - k).cdf).pvalue > 1e-3
    assert abs(covered.mean() - k / (count + 1)) < 5 * covered.std() / math.sqrt(1000)


@pytest.mark.parametrize("kind", [*SCORES, None], ids=repr)
def test_mean_coverage_over_many_calibrations_is_the_rank_over_the_count(kind):
    """Of intervals by each score, and of sets; 24 rows promise 23/25 for a level of 0.9."""
    torch.manual_seed(0)
    repeats, count, fresh = 300, 24, 100
    made = classes if kind is None else numbers
    found = []
    for seed in range(repeats):
        predictive, y = made(count + fresh, seed)
        conditional = predictive.conditional
        old, new = (parts(conditional, rows) for rows in (slice(count), slice(count, None)))
        if kind is None:
            member = Sets.fit(old, y[:count], 0.9)(new)
            hit = member.gather(-1, y[count:].unsqueeze(-1)).squeeze(-1)
        else:
            hit = inside(Intervals.fit(old, y[:count], 0.9, score=kind), new, y[count:])
        found.append(hit.double().mean().item())
    error = np.std(found) / math.sqrt(repeats)
    assert abs(np.mean(found) - 23 / 25) < 4 * error
    spread = stats.betabinom(fresh, 23, 2).std() / fresh
    assert np.std(found) == pytest.approx(spread, rel=0.25)


def parts(conditional: Normal | Categorical, rows: slice) -> Predictive:
    if isinstance(conditional, Categorical):
        return Predictive(Categorical(logits=conditional.logits[:, rows]))
    return Predictive(Normal(conditional.loc[:, rows], conditional.scale[:, rows]))


def test_each_group_keeps_its_own_promise():
    """One group is ten times as noisy as the model believes."""
    random = generator()
    groups = torch.randint(2, (20_000,), generator=random)
    noise = torch.where(groups == 0, 0.5, 10.0)
    y = noise * torch.randn(20_000, generator=random)
    predictive = Predictive(Normal(torch.zeros(1, 20_000), 1.0))
    half = Predictive(Normal(torch.zeros(1, 10_000), 1.0))
    together = Intervals.fit(half, y[:10_000], 0.8)
    apart = Intervals.fit(half, y[:10_000], 0.8, groups=groups[:10_000])
    assert together.thresholds.shape == (1,)
    assert apart.thresholds.shape == (2,)
    low, high = apart(predictive, groups)
    held = (low <= y) & (y <= high)
    for group in (0, 1):
        mine = held[10_000:][groups[10_000:] == group].double()
        assert abs(mine.mean() - 0.8) < 5 * math.sqrt(0.16 * 2 / len(mine))
    low, high = together(predictive)
    held = (low <= y) & (y <= high)
    assert held[groups == 0].double().mean() > 0.95
    assert held[groups == 1].double().mean() < 0.7


def test_sets_by_class_keep_the_promise_for_each_class():
    torch.manual_seed(0)
    predictive, y = classes(20_000, 3)
    old, new = (parts(predictive.conditional, s) for s in (slice(10_000), slice(10_000, None)))
    sets = Sets.fit(old, y[:10_000], 0.9, groups=y[:10_000])
    member = sets(new, torch.arange(5).unsqueeze(0))
    for label in range(5):
        mine = member[y[10_000:] == label, label].double()
        assert abs(mine.mean() - 0.9) < 5 * math.sqrt(0.09 * 2 / len(mine))


def test_sets_by_groups_of_rows_keep_the_promise_within_each():
    torch.manual_seed(0)
    predictive, y = classes(20_000, 3)
    groups = (predictive.probabilities.max(-1).values > 0.6).long()  # unsure rows, sure rows
    old, new = (parts(predictive.conditional, s) for s in (slice(10_000), slice(10_000, None)))
    sets = Sets.fit(old, y[:10_000], 0.9, groups=groups[:10_000])
    held = sets(new, groups[10_000:]).gather(-1, y[10_000:, None]).squeeze(-1)
    for group in (0, 1):
        mine = held[groups[10_000:] == group].double()
        assert len(mine) > 500
        assert abs(mine.mean() - 0.9) < 5 * math.sqrt(0.09 * 2 / len(mine))


@pytest.mark.parametrize("count", [100, 1000])
def test_the_page_says_how_far_a_single_calibration_may_be_off(count):
    k = math.ceil(0.9 * (count + 1))
    low, high = (round(100 * end) for end in stats.beta(k, count + 1 - k).interval(0.9))
    page = (Path(__file__).parents[2] / "docs/howto/calibration.md").read_text()
    assert re.search(rf"n = {count:,}\s[^;:]*?{low} to {high} %", page)


# --- what each score says ------------------------------------------------------------------------


@scores
@dtypes
def test_an_interval_holds_the_calibration_rows_up_to_the_rank(score, dtype):
    """Exactly so many, also where a target is itself an end."""
    predictive, y = numbers(83, 5, dtype)
    intervals = Intervals.fit(predictive, y, 0.75, score=score)
    assert inside(intervals, predictive, y).sum() == math.ceil(84 * 0.75)
    low, _ = intervals(predictive)
    assert low.dtype == dtype


def test_scaled_intervals_agree_with_numpy():
    predictive, y = numbers(60, 1)
    loc, scale = predictive.conditional.loc.numpy(), predictive.conditional.scale.numpy()
    mean, total = loc.mean(0), np.sqrt((scale**2).mean(0) + loc.var(0))
    reach = np.sort(np.abs(y.numpy() - mean) / total)[math.ceil(61 * 0.9) - 1]
    low, high = Intervals.fit(predictive, y)(predictive)
    np.testing.assert_allclose(low, mean - reach * total, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(high, mean + reach * total, rtol=1e-12, atol=1e-12)


def test_conformalised_quantiles_agree_with_numpy():
    random = generator(2)
    loc = torch.randn(60, generator=random, dtype=torch.float64)
    y = loc + 2 * torch.randn(60, generator=random, dtype=torch.float64)
    predictive = Predictive(Normal(loc.unsqueeze(0), 1.0))
    low, high = stats.norm.interval(0.9, loc, 1.0)
    gap = np.sort(np.maximum(low - y.numpy(), y.numpy() - high))[math.ceil(61 * 0.9) - 1]
    found = Intervals.fit(predictive, y, score=Quantiles())(predictive)
    np.testing.assert_allclose(found[0], low - gap, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found[1], high + gap, rtol=1e-8, atol=1e-8)


def test_quantiles_that_would_change_places_meet():
    predictive = Predictive(Normal(torch.zeros(1, 40), torch.linspace(0.1, 50, 40)))
    low, high = Intervals.fit(predictive, torch.zeros(40), score=Quantiles())(predictive)
    assert (low <= high).all()
    assert low[0].item() == pytest.approx(0, abs=1e-5)


def test_central_intervals_of_positive_targets_stay_positive():
    random = generator(4)
    y = torch.randn(200, generator=random).mul(2).exp()
    predictive = Predictive(LogNormal(torch.zeros(1, 200), 0.5))
    low, high = Intervals.fit(predictive, y, score=Central())(predictive)
    assert (low > 0).all()
    assert ((low <= y) & (y <= high)).sum() == math.ceil(201 * 0.9)
    assert (Intervals.fit(predictive, y)(predictive)[0] < 0).all()


@scores
def test_intervals_of_counts_hold_them_and_central_ones_are_not_negative(score):
    torch.manual_seed(0)
    predictive = Predictive(Poisson(6 * torch.rand(3, 500) + 0.1))
    y = predictive.sample(1)[0]
    low, high = Intervals.fit(predictive, y, score=score)(predictive)
    assert ((low <= y) & (y <= high)).sum() >= math.ceil(501 * 0.9)
    if score == Central():
        assert (low >= 0).all()


def test_central_intervals_differ_by_group():
    predictive, y = numbers(200, 6)
    groups = torch.arange(200) % 2
    low, high = Intervals.fit(predictive, y, score=Central(), groups=groups)(predictive, groups)
    for group in (0, 1):
        mine = groups == group
        held = (low <= y) & (y <= high)
        assert held[mine].sum() == math.ceil(101 * 0.9)


def by_hand(probabilities: list[float], share: float) -> list[float]:
    """The score of each class: what is likelier, or as likely and named before, and its share."""
    found = []
    for c, own in enumerate(probabilities):
        above = [p for d, p in enumerate(probabilities) if p > own or (p == own and d < c)]
        found.append(sum(above) + share * own)
    return found


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_sets_agree_with_a_plain_loop(share):
    predictive, y = classes(50, 7)
    rows = predictive.probabilities.tolist()
    every = [by_hand(row, share) for row in rows]
    own = sorted(row[label] for row, label in zip(every, y.tolist(), strict=True))
    largest = own[math.ceil(51 * 0.8) - 1]
    found = Sets.fit(predictive, y, 0.8, share=share)(predictive)
    wanted = torch.tensor([[score <= largest + 1e-12 for score in row] for row in every])
    assert torch.equal(found, wanted)


def test_sets_of_two_classes_come_from_a_binary_likelihood_too():
    predictive = Predictive(Bernoulli(torch.tensor([[0.9] * 20])))
    y = torch.tensor([1] * 19 + [0])
    assert Sets.fit(predictive, y, 0.8, share=1.0)(predictive)[0].tolist() == [False, True]
    assert Sets.fit(predictive, y, 0.95, share=1.0)(predictive)[0].tolist() == [True, True]


# --- edges ---------------------------------------------------------------------------------------


@scores
@pytest.mark.parametrize("count", [0, 1, 8])
def test_too_few_rows_promise_everything(score, count):
    few = Intervals.fit(*numbers(count, 0), 0.9, score=score)
    low, high = few(numbers(5, 1)[0])
    assert (low == -math.inf).all()
    assert (high == math.inf).all()


@pytest.mark.parametrize("count", [0, 1, 8])
def test_too_few_rows_put_every_class_in_a_set(count):
    none = Predictive(Categorical(logits=torch.zeros(1, count, 5), validate_args=False))
    few = Sets.fit(none, torch.zeros(count), 0.9)
    assert few(classes(5, 1)[0]).all()


def test_one_row_is_enough_for_one_half():
    one = Intervals.fit(Predictive(Normal(torch.zeros(1, 1), 1.0)), torch.tensor([3.0]), 0.5)
    low, high = one(Predictive(Normal(torch.zeros(1, 1), 1.0)))
    assert (low.item(), high.item()) == pytest.approx((-3, 3))


@scores
@dtypes
@pytest.mark.parametrize("value", [3.1, -1e6, 1e-20])
def test_targets_that_are_all_the_same_are_covered(score, dtype, value):
    """Ties at the threshold may not fall out by rounding."""
    y = torch.full((40,), value, dtype=dtype)
    loc = torch.full((1, 40), 0.3, dtype=dtype)
    predictive = Predictive(Normal(loc, 0.7))
    assert inside(Intervals.fit(predictive, y, score=score), predictive, y).all()


@scores
@dtypes
def test_ratings_with_ties_are_covered_at_least_as_promised(score, dtype):
    random = generator(8)
    y = torch.randint(3, 8, (4000,), generator=random).to(dtype)
    predictive = Predictive(Normal(torch.full((1, 4000), 5.37, dtype=dtype), 0.9))
    half = Predictive(Normal(torch.full((1, 2000), 5.37, dtype=dtype), 0.9))
    for level in (0.3, 0.5, 0.7, 0.9):
        intervals = Intervals.fit(half, y[:2000], level, score=score)
        assert inside(intervals, predictive, y)[2000:].double().mean() > level - 0.05


def test_drawn_shares_break_ties_where_all_predictions_are_the_same():
    """A fixed share covers far too much there, a drawn one what was promised."""
    torch.manual_seed(0)
    probs = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    predictive = Predictive(Categorical(probs.expand(1, 40_000, 3)))
    y = probs.expand(40_000, 3).multinomial(1, generator=generator()).squeeze(-1)
    for share, wanted in [(None, 0.6), (1.0, 0.8)]:
        member = Sets.fit(predictive, y, 0.6, share=share)(predictive)
        covered = member.gather(-1, y.unsqueeze(-1)).double().mean().item()
        assert covered == pytest.approx(wanted, abs=0.015)


def test_a_group_without_calibration_rows_gets_everything():
    predictive, y = numbers(40, 0)
    groups = torch.where(torch.arange(40) < 20, 0, 2)
    low, high = Intervals.fit(predictive, y, 0.8, groups=groups)(predictive, torch.arange(40) % 5)
    infinite = low.isinf() & high.isinf()
    assert torch.equal(infinite, ~torch.isin(torch.arange(40) % 5, torch.tensor([0, 2])))


def test_groups_may_be_true_and_false():
    predictive, y = numbers(40, 0)
    side = y > 0
    found = Intervals.fit(predictive, y, groups=side)(predictive, side)
    wanted = Intervals.fit(predictive, y, groups=side.int())(predictive, side.long())
    assert torch.equal(found[0], wanted[0])


def test_groups_must_be_given_and_be_numbered():
    predictive, y = numbers(40, 0)
    groups = torch.arange(40) % 2
    with pytest.raises(ValueError, match="groups must be given: thresholds differ by 2 groups"):
        Intervals.fit(predictive, y, groups=groups)(predictive)
    with pytest.raises(ValueError, match="groups must be numbered 0, 1, 2, …, got -1"):
        Intervals.fit(predictive, y, groups=groups - 1)
    with pytest.raises(ValueError, match=r"groups must be numbered 0, 1, 2, …, got 0\.5"):
        Sets.fit(*classes(40, 0), groups=groups / 2)
    with pytest.raises(ValueError, match="groups must be numbered 0, 1, 2, …, got 20050112"):
        Intervals.fit(predictive, y, groups=groups + 20050112)
    with pytest.raises(ValueError, match=r"groups must have shape \(40,\), got \(3,\)"):
        Intervals.fit(predictive, y, groups=groups[:3])


@scores
def test_nan_targets_are_refused(score):
    predictive, y = numbers(20, 0)
    y[3] = math.nan
    with pytest.raises(ValueError, match="targets must be numbers, got 1 NaN"):
        Intervals.fit(predictive, y, score=score)


def test_predictions_that_are_not_numbers_are_refused():
    loc = torch.zeros(1, 20)
    loc[0, 2] = math.nan
    broken = Predictive(Normal(loc, 1.0, validate_args=False))
    with pytest.raises(ValueError, match="scores must be numbers, got 1 NaN"):
        Intervals.fit(broken, torch.zeros(20), score=Quantiles())
    with pytest.raises(ValueError, match="finite predictive variance, got nan"):
        Intervals.fit(broken, torch.zeros(20))


def test_a_variance_that_is_not_finite_is_refused_with_a_way_out():
    heavy = Predictive(StudentT(2.0, torch.zeros(1, 50), 1.0))
    y = heavy.sample(1)[0]
    with pytest.raises(ValueError, match=r"finite predictive variance, got inf: use Quantiles\(\)"):
        Intervals.fit(heavy, y)
    assert inside(Intervals.fit(heavy, y, score=Quantiles()), heavy, y).sum() == 46


def test_numbers_and_classes_are_not_mixed_up():
    with pytest.raises(ValueError, match="got classes: use Sets"):
        Intervals.fit(*classes(20, 0))
    with pytest.raises(ValueError, match="got numbers: use Intervals"):
        Sets.fit(*numbers(20, 0))
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\], got 2"):
        Sets.fit(*classes(20, 0), share=2)


def test_trials_are_refused():
    with pytest.raises(ValueError, match=r"batch shape \(samples, rows\), got \(1, 3, 20\)"):
        Intervals.fit(Predictive(Normal(torch.zeros(1, 3, 20), 1.0)), torch.zeros(3, 20))


def test_thresholds_keep_no_graph():
    loc = torch.zeros(2, 20, requires_grad=True)
    assert not Intervals.fit(Predictive(Normal(loc, 1.0)), torch.ones(20)).thresholds.requires_grad


class Both(nn.Module):
    """A network of two draws whose outputs leave it as intervals and sets."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Linear(3, 10)
        self.intervals = Intervals.fit(*numbers(50, 0, torch.float32))
        self.sets = Sets.fit(*classes(50, 0, torch.float32), share=1.0)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        means, logits = self.network(x).unflatten(1, (2, 5)).movedim(1, 0).split([1, 4], -1)
        number = Normal(means.squeeze(-1), 1.0, validate_args=False)
        label = Categorical(logits=logits, validate_args=False)
        return *self.intervals(Predictive(number)), self.sets(Predictive(label))


def test_intervals_and_sets_go_into_an_exported_graph():
    model, rows = Both(), torch.export.Dim("rows")
    exported = torch.export.export(model, (torch.zeros(5, 3),), dynamic_shapes=({0: rows},))
    for count in (1, 5, 64):
        x = torch.randn(count, 3, generator=generator(count))
        for ours, theirs in zip(model(x), exported.module()(x), strict=True):
            assert torch.equal(ours, theirs)


# --- saving --------------------------------------------------------------------------------------


@scores
def test_saved_intervals_come_back_from_json(score):
    predictive, y = numbers(40, 0)
    groups = torch.where(torch.arange(40) < 30, 0, 2)  # of group 1 there are none
    before = Intervals.fit(predictive, y, score=score, groups=groups)
    text = json.dumps(before.state(), allow_nan=False)
    after = Intervals.from_state(json.loads(text))
    assert (after.level, after.score) == (before.level, before.score)
    for one, two in zip(before(predictive, groups), after(predictive, groups), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("share", [None, 0.5])
def test_saved_sets_come_back_from_json(share):
    predictive, y = classes(40, 0)
    before = Sets.fit(predictive, y, share=share)
    after = Sets.from_state(json.loads(json.dumps(before.state(), allow_nan=False)))
    torch.manual_seed(0)
    wanted = before(predictive)
    torch.manual_seed(0)
    assert torch.equal(after(predictive), wanted)


def test_thresholds_of_several_outputs_come_back():
    y = torch.randn(30, 2, generator=generator())
    predictive = Predictive(Independent(Normal(torch.zeros(1, 30, 2), 1.0), 1))
    before = Intervals.fit(predictive, y, groups=torch.arange(30) % 2)
    after = Intervals.from_state(json.loads(json.dumps(before.state())))
    assert torch.equal(after.thresholds, before.thresholds)


def test_a_saved_score_that_is_unknown_is_refused():
    state = Intervals.fit(*numbers(20, 0)).state() | {"score": {"kind": "Mine"}}
    with pytest.raises(ValueError, match="a saved value must be of kind Saved, got Mine"):
        Intervals.from_state(state)


def test_saved_sets_are_not_taken_for_intervals():
    state = Sets.fit(*classes(20, 0)).state()
    with pytest.raises(ValueError, match="a saved value must be of kind Intervals, got Sets"):
        Intervals.from_state(state)
    assert isinstance(Saved.from_state(state), Sets)
    del state["level"]
    with pytest.raises(ValueError, match="a saved Sets must have level"):
        Saved.from_state(state)


@dataclass(frozen=True)
class Doubled(Scaled):
    """A score of a user's own, with a number of its own."""

    factor: float = 2.0

    def scores(self, predictive: Predictive, y: Tensor, level: float) -> Tensor:
        return self.factor * super().scores(predictive, y, level)

    def interval(
        self, predictive: Predictive, largest: Tensor, level: float
    ) -> tuple[Tensor, Tensor]:
        return super().interval(predictive, largest / self.factor, level)


def test_a_score_of_ones_own_is_saved_too():
    predictive, y = numbers(40, 0)
    before = Intervals.fit(predictive, y, score=Doubled(3.0))
    after = Intervals.from_state(json.loads(json.dumps(before.state())))
    assert after.score == Doubled(3.0)
    torch.testing.assert_close(after(predictive), Intervals.fit(predictive, y)(predictive))


def test_a_saved_level_that_is_no_number_is_refused():
    state = Intervals.fit(*numbers(20, 0)).state() | {"level": "high"}
    with pytest.raises(ValueError, match="a saved calibration must hold numbers, got 'high'"):
        Intervals.from_state(state)
