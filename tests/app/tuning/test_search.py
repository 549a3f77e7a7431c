"""The search: what it finds, what it counts, what it survives."""

import dataclasses
import math
import sqlite3
import threading

import optuna
import pytest
import torch
from optuna.distributions import FloatDistribution
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.app import training as trainings
from bayesdiv.app.data.loading import load
from bayesdiv.app.experiment import Training, settled
from bayesdiv.app.tuning.search import RANGES, Search, opened, trials, tune, tune_experiment


def bowl(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -4, 4)
    y = trial.suggest_float("y", 1e-3, 1e3, log=True)
    return (x - 1) ** 2 + math.log10(y) ** 2


def settings_of(search: Search) -> list[dict[str, float]]:
    return [tried.settings for tried in trials(search)]


def test_the_search_comes_nearer_to_the_minimum_than_chance(tmp_path):
    """A minimum at (1, 1): 45 trials, of which the first 20 are random."""
    search = Search(tmp_path / "study.db", trials=45)
    best = tune(bowl, search)
    values = [tried.value for tried in trials(search)]
    assert best.value == min(values) < 0.1
    assert torch.tensor(values[20:]).median() < torch.tensor(values[:20]).median()


def test_the_same_seed_tries_the_same_settings_and_another_does_not(tmp_path):
    one, same = (Search(tmp_path / f"{k}.db", trials=23, seed=3) for k in (1, 2))
    other = Search(tmp_path / "other.db", trials=3, seed=4)
    for search in (one, same, other):
        tune(bowl, search)
    assert settings_of(one) == settings_of(same)
    assert not any(a == b for a, b in zip(settings_of(one), settings_of(other), strict=False))
    assert len({found["x"] for found in settings_of(one)}) == 23


def test_a_search_that_goes_on_ends_as_one_that_was_never_stopped(tmp_path):
    whole, parts = Search(tmp_path / "whole.db", trials=22), Search(tmp_path / "parts.db", trials=9)
    tune(bowl, whole)
    tune(bowl, parts)
    assert len(trials(parts)) == 9
    tune(bowl, dataclasses.replace(parts, trials=22))
    assert settings_of(whole) == settings_of(parts)
    before = trials(whole)
    tune(bowl, whole)
    assert trials(whole) == before


def test_settings_to_start_with_are_tried_first_and_once(tmp_path):
    search = Search(tmp_path / "study.db", trials=3)
    tune(bowl, search, start={"x": 1.0, "y": 1.0})
    tune(bowl, dataclasses.replace(search, trials=4), start={"x": 1.0, "y": 1.0})
    assert [found == {"x": 1.0, "y": 1.0} for found in settings_of(search)] == [1, 0, 0, 0]


def at_times_hopeless(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", 0, 1)
    if trial.number == 1:
        raise bd.Diverged("the nll of batch 1 of epoch 1 is inf: lower the learning rate")
    if trial.number == 2:
        return math.nan
    if trial.number == 3:
        trial.report(7.0, 1)
        raise optuna.TrialPruned
    return x


def test_a_trial_that_diverges_counts_as_pruned_and_says_why(tmp_path):
    search = Search(tmp_path / "study.db", trials=6)
    tune(at_times_hopeless, search)
    found = trials(search)
    states = [tried.state for tried in found]
    assert states == ["complete", "pruned", "pruned", "pruned", "complete", "complete"]
    assert "lower the learning rate" in found[1].reason
    assert found[2].reason == "the value is nan"
    assert [tried.value for tried in found[1:4]] == [None, None, 7.0]


def test_tpe_takes_a_diverged_trial_for_one_of_the_worst(tmp_path):
    def cliff(trial):
        x = trial.suggest_float("x", -1, 1)
        if x > 0:
            raise bd.Diverged("over the edge")
        return -x  # the best lies at the cliff, none of the good beyond it

    search = Search(tmp_path / "study.db", trials=40)
    tune(cliff, search)
    beyond = [found["x"] > 0 for found in settings_of(search)]
    assert sum(beyond[20:]) / 20 < sum(beyond[:20]) / 20


def test_an_error_of_the_objective_is_raised_and_its_trial_is_run_anew(tmp_path):
    calls = []

    def fails_once(trial):
        trial.suggest_float("x", 0, 1)
        calls.append(trial.number)
        if len(calls) == 2:
            raise KeyError("a mistake")
        return 1.0

    search = Search(tmp_path / "study.db", trials=3)
    with pytest.raises(KeyError, match="a mistake"):
        tune(fails_once, search)
    tune(fails_once, search)
    states = [tried.state for tried in trials(search)]
    assert sorted(states) == ["complete"] * 3 + ["failed"]
    assert trials(search)[1].reason == "KeyError: 'a mistake'"


def test_a_search_stopped_by_hand_repeats_the_trial_it_was_at(tmp_path):
    calls = []

    def stopped(trial):
        calls.append(trial.suggest_float("x", 0, 1))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return calls[-1]

    search = Search(tmp_path / "study.db", trials=3)
    with pytest.raises(KeyboardInterrupt):
        tune(stopped, search)
    tune(stopped, search)
    left, again = trials(search)[1:3]
    assert (left.state, left.reason) == ("stopped", "stopped by the user")
    assert (again.state, again.reason) == ("complete", "")
    assert again.settings == {"x": calls[1]}
    assert len(calls) == 4


def test_a_stop_while_progress_is_shown_is_no_failure(tmp_path):
    told = []

    def tell(tried):
        told.append(tried)
        if len(told) == 3:  # the second trial has begun, its objective has not
            raise KeyboardInterrupt

    search = Search(tmp_path / "study.db", trials=2)
    with pytest.raises(KeyboardInterrupt):
        tune(lambda trial: trial.suggest_float("x", 0, 1), search, tell=tell)
    assert [tried.state for tried in trials(search)] == ["complete", "stopped"]


def test_pruning_from_the_body_of_fit_breaks_a_hopeless_trial_off(tmp_path):
    x, y = torch.randn(32, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(32)
    epochs = []

    def objective(trial):
        torch.manual_seed(0)
        net = bd.bayesianize(nn.Linear(2, 1), bd.Prior(Normal, loc=0.0, scale=1.0))
        loss = bd.Objective(bd.Gaussian(), bd.KL(), num_data=32)
        rate = trial.suggest_float("rate", 1e-3, 1e-1, log=True)
        optimizer = torch.optim.Adam([*net.parameters(), *loss.parameters()], lr=rate)
        epochs.append(0)
        for epoch in bd.fit(net, loss, bd.Batches(x, y, 16), optimizer, 6, seed=0):
            epochs[-1] = epoch.number
            trial.report(epoch.loss.total, epoch.number)
            if trial.should_prune():
                raise optuna.TrialPruned
        return epoch.loss.total

    search = Search(tmp_path / "study.db", trials=12)
    tune(objective, search)
    for tried, length in zip(trials(search), epochs, strict=True):
        assert (length == 6) == (tried.state == "complete") or length == 6
    assert min(epochs) < 6


# Bad input -----------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_told(tmp_path):
    (tmp_path / "s.db").write_text("not a database at all, and longer than its header would be" * 9)
    with pytest.raises(RuntimeError, match="file is not a database"):
        tune(bowl, Search(tmp_path / "s.db", trials=1))


def test_another_subject_is_not_mixed_into_a_study(tmp_path):
    search = Search(tmp_path / "study.db", trials=2)
    tune(bowl, search, about={"data": "one"})
    with pytest.raises(ValueError, match="data is one there and two here"):
        tune(bowl, search, about={"data": "two"})
    tune(bowl, dataclasses.replace(search, name="other"), about={"data": "two"})


def test_only_the_settings_that_differ_are_told(tmp_path):
    search = Search(tmp_path / "study.db", trials=1)
    tune(bowl, search, about={"training": {"epochs": 20, "seed": 0, "hidden": [5]}})
    with pytest.raises(ValueError, match="choose another place or name for it") as caught:
        tune(bowl, search, about={"training": {"epochs": 10, "seed": 0, "hidden": [7]}})
    assert (
        str(caught.value)
        .partition("settings: ")[2]
        .startswith("epochs is 20 there and 10 here, hidden is [5] there and [7] here;")
    )


def test_a_search_without_a_finished_trial_has_no_best(tmp_path):
    def hopeless(trial):
        raise bd.Diverged("always")

    with pytest.raises(ValueError, match="no trial of 'search' came to its end"):
        tune(hopeless, Search(tmp_path / "study.db", trials=2))


def test_a_database_that_another_process_holds_is_waited_for(tmp_path):
    """Half a second of an exclusive lock; without a timeout the first write would raise."""
    search = Search(tmp_path / "study.db", trials=1)
    tune(bowl, search)
    holder = sqlite3.connect(tmp_path / "study.db", check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(0.5, holder.rollback)
    timer.start()
    tune(bowl, dataclasses.replace(search, trials=2))
    timer.join()
    holder.close()
    assert len(trials(search)) == 2


# Experiments ---------------------------------------------------------------------------------

QUICK = Training(epochs=4, test_samples=5, hidden=(5,), samples=1, members=1)


@pytest.fixture(scope="module")
def diabetes():
    return load("diabetes")


def test_an_experiment_is_searched_over_alpha_strength_and_learning_rate(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=3)
    tuned = tune_experiment(diabetes, bd.JSA(0.5), QUICK, search)
    first, *others = trials(search)
    assert first.settings == {"alpha": 0.5, "strength": 1.0, "learning_rate": 5e-3}
    for tried in others:
        assert 0 <= tried.settings["alpha"] <= 1
        assert 1e-3 <= tried.settings["strength"] <= 1e2
    assert tuned.best.value == min(t.value for t in trials(search) if t.state == "complete")
    assert tuned.divergence == bd.JSA(tuned.best.settings["alpha"])
    assert tuned.training == dataclasses.replace(
        settled(QUICK, diabetes.num_data, diabetes.shape),
        strength=tuned.best.settings["strength"],
        learning_rate=tuned.best.settings["learning_rate"],
    )


def test_the_value_of_a_single_epoch_is_the_validation_nll_that_training_reports(
    tmp_path, diabetes
):
    once = dataclasses.replace(QUICK, epochs=1)
    search = Search(tmp_path / "study.db", trials=1)
    tuned = tune_experiment(diabetes, bd.JSA(0.5), once, search)
    _, result = trainings.train(diabetes, bd.JSA(0.5), once)
    assert tuned.best.value == pytest.approx(result["validation"]["nll"], rel=1e-6)


def test_a_divergence_without_alpha_is_searched_over_the_rest(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=1)
    tuned = tune_experiment(diabetes, bd.KL(), QUICK, search)
    assert tuned.best.settings.keys() == {"strength", "learning_rate"}
    assert tuned.divergence == bd.KL()


def test_a_setting_without_a_range_stays_as_it_is(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=2)
    ranges = {"strength": FloatDistribution(2.0, 3.0, log=True)}
    tuned = tune_experiment(diabetes, bd.JSA(0.2), QUICK, search, ranges=ranges)
    assert tuned.divergence == bd.JSA(0.2)
    assert tuned.training.learning_rate == 5e-3
    assert all(2 <= tried.settings["strength"] <= 3 for tried in trials(search))


def test_the_test_part_has_no_say(tmp_path, diabetes):
    spoilt = dataclasses.replace(
        diabetes, test=diabetes.test._replace(y=torch.full_like(diabetes.test.y, math.nan))
    )
    values = []
    for name, splits in (("clean", diabetes), ("spoilt", spoilt)):
        search = Search(tmp_path / f"{name}.db", trials=2)
        tune_experiment(splits, bd.KL(), QUICK, search)
        values.append([tried.value for tried in trials(search)])
    assert values[0] == values[1]


def test_a_range_that_the_divergence_refuses_is_told_before_the_search(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=2)
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\], got 2"):
        tune_experiment(
            diabetes, bd.JSA(0.5), QUICK, search, ranges={"alpha": FloatDistribution(0.0, 2.0)}
        )
    with pytest.raises(ValueError, match="a range must be given for one setting at least"):
        tune_experiment(diabetes, bd.KL(), QUICK, search, ranges={"alpha": RANGES["alpha"]})
    assert not (tmp_path / "study.db").exists()


def stumble():
    try:
        raise KeyboardInterrupt
    finally:
        raise UnboundLocalError("updated_state")


def test_a_stop_that_makes_optuna_stumble_is_still_a_stop(tmp_path):
    with pytest.raises(KeyboardInterrupt), opened(Search(tmp_path / "study.db")):
        stumble()
