"""Scores that are kept: intervals and sets of any level keep their promise."""

import json
import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Gamma, Normal

from bayesdiv import metrics
from bayesdiv.calibration import Central, Levels, Saved
from bayesdiv.predictive import Predictive

LEVELS = (0.5, 0.8, 0.9)


def numbers(rows, seed):
    """A model that is too sure of itself."""
    rng = np.random.default_rng(seed)
    loc, noise = rng.normal(size=(2, rows))
    predictive = Predictive(Normal(torch.from_numpy(loc)[None], 0.4))
    return predictive, torch.from_numpy(loc + noise)


@pytest.mark.parametrize("level", LEVELS)
def test_intervals_of_any_level_reach_the_score_of_the_right_rank(level):
    predictive, y = numbers(57, seed=0)
    levels = Levels.fit(predictive, y)
    low, high = levels(predictive).interval(level)
    away = np.sort(np.abs((y - predictive.mean).numpy()) / 0.4)
    reach = 0.4 * away[math.ceil(58 * level) - 1]
    assert (high - low).numpy() == pytest.approx(2 * reach, rel=1e-12)
    assert ((low <= y) & (y <= high)).sum() == math.ceil(58 * level)


@pytest.mark.parametrize("level", LEVELS)
def test_new_rows_are_covered_as_often_as_the_rank_promises(level):
    inside = []
    for seed in range(40):
        levels = Levels.fit(*numbers(50, seed))
        new, y = numbers(500, 1000 + seed)
        inside.append(metrics.coverage(levels(new), y, level).item())
    promise = math.ceil(51 * level) / 51
    spread = math.sqrt(promise * (1 - promise) * (1 / 52 + 1 / 500) / 40)
    assert np.mean(inside) == pytest.approx(promise, abs=3 * spread)


def test_too_few_rows_for_a_level_make_it_infinite():
    predictive, y = numbers(8, seed=0)
    promised = Levels.fit(predictive, y)(predictive)
    assert promised.interval(0.9)[1].isinf().all()
    assert promised.interval(0.8)[1].isfinite().all()
    assert metrics.coverage(promised, y) == 1


def test_ends_of_positive_targets_stay_positive():
    predictive = Predictive(Gamma(torch.full((2, 200), 0.3), 1.0))
    y = Gamma(torch.full((200,), 0.2), 1.0).sample()
    levels = Levels.fit(predictive, y)
    assert levels.score == Central()
    low, high = levels(predictive).interval(0.9)
    assert (low >= 0).all()
    assert (high < math.inf).all()
    assert ((low <= y) & (y <= high)).sum() >= math.ceil(201 * 0.9)


@pytest.mark.parametrize("level", LEVELS)
def test_sets_hold_the_likeliest_class_and_the_true_one_often_enough(level):
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(1, 400, 5)))
    true = torch.from_numpy(
        np.array([rng.choice(5, p=row) for row in (logits[0] / 2).softmax(-1).numpy()])
    )
    predictive = Predictive(Categorical(logits=logits))
    member = Levels.fit(predictive, true)(predictive).sets(level)
    assert member.gather(-1, predictive.probabilities.argmax(-1, keepdim=True)).all()
    held = member.gather(-1, true[:, None]).sum()
    assert held >= math.ceil(401 * level)
    assert member.sum(-1).double().mean() < 5


def test_a_sure_and_right_network_has_sets_of_one_class():
    logits = 9 * torch.eye(3).repeat(40, 1)[None]
    predictive = Predictive(Categorical(logits=logits))
    member = Levels.fit(predictive, torch.arange(120) % 3)(predictive).sets(0.9)
    assert (member.sum(-1) == 1).all()


def test_what_was_scored_comes_back_from_json():
    for predictive, y in (
        numbers(30, 0),
        (Predictive(Categorical(logits=torch.randn(2, 30, 3))), torch.arange(30) % 3),
    ):
        levels = Levels.fit(predictive, y)
        again = Saved.from_state(json.loads(json.dumps(levels.state())))
        assert again.score == levels.score
        assert torch.equal(again.scores, levels.scores)


def test_numbers_have_no_sets_and_classes_no_intervals():
    predictive, y = numbers(30, 0)
    with pytest.raises(ValueError, match="sets need targets that are classes"):
        Levels.fit(predictive, y)(predictive).sets(0.9)
    classes = Predictive(Categorical(logits=torch.randn(2, 30, 3)))
    with pytest.raises(ValueError, match="a quantile needs targets that are numbers"):
        Levels.fit(classes, torch.zeros(30))(classes).interval(0.9)
