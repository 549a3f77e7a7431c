"""Every rule is fed worlds in which the right verdict is known: no effect, the paper's own figures,
those figures turned round, and runs that diverged."""

from pathlib import Path

import pytest

import simulated
from reproduction.algorithms import algorithm_1, algorithm_2
from reproduction.algorithms import results as algorithms_results
from reproduction.catalogue import CATALOGUE
from reproduction.verdict import Badge, Outcome

NOWHERE = Path("nowhere")
TRIED = ("images", "regression", "claims")
ITEMS = [entry for entry in CATALOGUE if entry.group in TRIED]
TIMES = 200
ALLOWED = 0.05
IN_PART = 0.07
"""Of verdicts that a part of a claim holds: 5 %, with what 200 draws add to it."""
EQUAL = ("regression_rmse", "regression_nll", "time_per_epoch")
"""Parts of these say that JS is as good as KL, or as fast: without an effect they are true."""


def names(entry):
    return entry.name


@pytest.mark.parametrize("entry", ITEMS, ids=names)
def test_without_an_effect_at_most_one_in_twenty_is_called_reproduced(entry, monkeypatch):
    module, called = entry.module(), 0
    for seed in range(TIMES):
        with monkeypatch.context() as patch:
            simulated.plant(simulated.null(seed), patch)
            called += module.verdict(NOWHERE).outcome is Outcome.REPRODUCED
    assert called <= ALLOWED * TIMES


@pytest.mark.slow
@pytest.mark.parametrize("entry", ITEMS, ids=names)
def test_without_an_effect_hardly_any_is_called_reproduced_in_part(entry, monkeypatch):
    module, called = entry.module(), 0
    for seed in range(TIMES):
        with monkeypatch.context() as patch:
            world = simulated.null(TIMES + seed, level=entry.name not in EQUAL)
            simulated.plant(world, patch)
            outcome = module.verdict(NOWHERE).outcome
            called += outcome in (Outcome.REPRODUCED, Outcome.PARTLY)
    assert called <= IN_PART * TIMES


@pytest.mark.parametrize("entry", ITEMS, ids=names)
def test_the_papers_own_figures_are_reproduced(entry, monkeypatch):
    world = simulated.published()
    if entry.name == "tuned_histopathology":
        (theirs,) = simulated.read_settings("paper_histopathology")
        world.settings = {name: simulated.Setting(name, **given) for name, given in theirs.items()}
    simulated.plant(world, monkeypatch)
    verdict = entry.module().verdict(NOWHERE)
    assert verdict.direction is Badge.YES, verdict.sentence
    assert verdict.size in (Badge.YES, Badge.UNSTATED), verdict.sentence
    assert verdict.outcome is Outcome.REPRODUCED


@pytest.mark.parametrize("entry", ITEMS, ids=names)
def test_the_papers_figures_turned_round_are_not_reproduced(entry, monkeypatch):
    simulated.plant(simulated.swapped(), monkeypatch)
    verdict = entry.module().verdict(NOWHERE)
    assert verdict.direction in (Badge.NO, Badge.UNDECIDED), verdict.sentence
    assert verdict.outcome in (Outcome.NOT, Outcome.UNDECIDED)


@pytest.mark.parametrize("entry", ITEMS, ids=names)
def test_js_runs_that_diverged_are_the_worst_results_not_missing_ones(entry, monkeypatch):
    simulated.plant(simulated.all_diverged(), monkeypatch)
    verdict = entry.module().verdict(NOWHERE)
    searched = entry.name.startswith("tuned") or entry.name == "time_per_epoch"
    if searched:  # no run of a fold enters there
        return
    assert verdict.outcome is not Outcome.REPRODUCED, verdict.sentence
    # What is left are claims without JS: KL above deterministic, λKL above KL, a larger search.
    without_js = entry.name in ("deterministic_baseline", "lambda_kl_baseline")
    assert (verdict.direction is Badge.NO) is not without_js, verdict.sentence


def test_four_of_five_diverged_runs_are_behind(monkeypatch):
    world = simulated.published()
    world.diverged = lambda where: where.contender == "js_a" and where.fold > 1
    simulated.plant(world, monkeypatch)
    (entry,) = (entry for entry in ITEMS if entry.name == "claims_false_negatives")
    assert entry.module().verdict(NOWHERE).direction is Badge.NO


def times(ratio, count=10):
    noise = (-0.01, 0.01) * (count // 2)
    return {
        "kl": [1.0] * count,
        "js_g": [ratio + each for each in noise],
        "js_a": [1.0 + each for each in noise],
        "js_a_sampled": [ratio + each for each in noise],
    }


def trained(accuracy, falls=True):
    losses = [1.0, 0.2] if falls else [1.0, 0.9]
    runs = [{"losses": losses, "accuracy": 0.9 + k / 1000} for k in range(5)]
    by_samples = [run | {"accuracy": accuracy + k / 1000} for k, run in enumerate(runs)]
    return {"kl": runs, "js_g": runs, "js_a": runs, "js_a_sampled": by_samples}


@pytest.mark.parametrize(
    ("module", "ratio", "accuracy", "falls", "direction", "size"),
    [
        (algorithm_1, 1.02, 0.9, True, Badge.YES, Badge.YES),
        (algorithm_1, 1.5, 0.9, True, Badge.YES, Badge.NO),
        (algorithm_1, 1.02, 0.9, False, Badge.NO, Badge.YES),
        (algorithm_2, 1.63, 0.9, True, Badge.YES, Badge.YES),
        (algorithm_2, 1.0, 0.9, True, Badge.PARTLY, Badge.NO),
        (algorithm_2, 0.6, 0.8, True, Badge.NO, Badge.NO),
        (algorithm_2, 0.6, 0.9, False, Badge.NO, Badge.NO),
    ],
)
def test_algorithms_are_judged_by_what_they_learn_and_by_their_time(
    module, ratio, accuracy, falls, direction, size, monkeypatch
):
    files = {
        algorithms_results.TRAINED: trained(accuracy, falls),
        algorithms_results.TIMED: {"times": times(ratio), "hardware": "none"},
    }
    monkeypatch.setattr(module, "read", lambda results, place: files[place])
    verdict = module.verdict(NOWHERE)
    assert (verdict.direction, verdict.size) == (direction, size), verdict.sentence


def test_every_item_that_is_trained_is_tried():
    others = {entry.group for entry in CATALOGUE} - set(TRIED)
    assert others == {"analytical", "algorithms"}
