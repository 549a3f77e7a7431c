"""The search: what it finds, what it counts, what it survives."""

import dataclasses
import math
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path

import optuna
import pytest
import torch
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.app import training as trainings
from bayesdiv.app.data.loading import load
from bayesdiv.app.experiment import Training
from bayesdiv.app.tuning import experiment, workers
from bayesdiv.app.tuning import plots as search_plots
from bayesdiv.app.tuning import search as searches
from bayesdiv.app.tuning import study as studies
from bayesdiv.app.tuning.search import Search
from bayesdiv.app.tuning.space import LogUniform, Space, Uniform
from bayesdiv.app.tuning.study import opened

QUICK = Training(epochs=4, test_samples=5, hidden=(5,), samples=1, members=1)


def bowl(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -4, 4)
    y = trial.suggest_float("y", 1e-3, 1e3, log=True)
    return (x - 1) ** 2 + math.log10(y) ** 2


def settings_of(search: Search) -> list[dict[str, float]]:
    return [tried.settings for tried in studies.trials(search)]


def test_the_search_comes_nearer_to_the_minimum_than_chance(tmp_path):
    """A minimum at (1, 1): 45 trials, of which the first 20 are random."""
    search = Search(tmp_path / "study.db", trials=45)
    best = workers.tune(bowl, search)
    values = [tried.value for tried in studies.trials(search)]
    assert best.value == min(values) < 0.1
    assert torch.tensor(values[20:]).median() < torch.tensor(values[:20]).median()


def test_the_same_seed_tries_the_same_settings_and_another_does_not(tmp_path):
    one, same = (Search(tmp_path / f"{k}.db", trials=23, seed=3) for k in (1, 2))
    other = Search(tmp_path / "other.db", trials=3, seed=4)
    for search in (one, same, other):
        workers.tune(bowl, search)
    assert settings_of(one) == settings_of(same)
    assert not any(a == b for a, b in zip(settings_of(one), settings_of(other), strict=False))
    assert len({found["x"] for found in settings_of(one)}) == 23


def test_a_search_that_goes_on_ends_as_one_that_was_never_stopped(tmp_path):
    whole, parts = Search(tmp_path / "whole.db", trials=22), Search(tmp_path / "parts.db", trials=9)
    workers.tune(bowl, whole)
    workers.tune(bowl, parts)
    assert len(studies.trials(parts)) == 9
    workers.tune(bowl, dataclasses.replace(parts, trials=22))
    assert settings_of(whole) == settings_of(parts)
    before = studies.trials(whole)
    workers.tune(bowl, whole)
    assert studies.trials(whole) == before


def test_the_aim_decides_which_value_is_best(tmp_path):
    search = Search(tmp_path / "study.db", trials=6, aim=searches.Aim("height", best=max))
    best = workers.tune(bowl, search)
    assert best.value == max(tried.value for tried in studies.trials(search))


def test_settings_to_start_with_are_tried_first_and_once(tmp_path):
    search = Search(tmp_path / "study.db", trials=3)
    workers.tune(bowl, search, start={"x": 1.0, "y": 1.0})
    workers.tune(bowl, dataclasses.replace(search, trials=4), start={"x": 1.0, "y": 1.0})
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
    workers.tune(at_times_hopeless, search)
    found = studies.trials(search)
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
    workers.tune(cliff, search)
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
        workers.tune(fails_once, search)
    workers.tune(fails_once, search)
    states = [tried.state for tried in studies.trials(search)]
    assert sorted(states) == ["complete"] * 3 + ["failed"]
    assert studies.trials(search)[1].reason == "KeyError: 'a mistake'"


def test_a_search_stopped_by_hand_repeats_the_trial_it_was_at(tmp_path):
    calls = []

    def stopped(trial):
        calls.append(trial.suggest_float("x", 0, 1))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return calls[-1]

    search = Search(tmp_path / "study.db", trials=3)
    with pytest.raises(KeyboardInterrupt):
        workers.tune(stopped, search)
    workers.tune(stopped, search)
    (again,) = [tried for tried in studies.trials(search) if tried.retry_of is not None]
    left = studies.trials(search)[1]
    assert (left.state, left.reason) == ("stopped", "stopped by hand")
    assert (again.state, again.reason) == ("complete", "")
    assert again.retry_of == 1
    assert again.settings == {"x": calls[1]}
    assert len(calls) == 4


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
    workers.tune(objective, search)
    for tried, length in zip(studies.trials(search), epochs, strict=True):
        assert (length == 6) == (tried.state == "complete") or length == 6
    assert min(epochs) < 6


# Several processes ---------------------------------------------------------------------------


def killed_at_first(trial: optuna.Trial) -> float:
    """Trial 0 kills its process, and every other leaves a file that must not be there yet."""
    x = trial.suggest_float("x", 0, 1)
    if trial.number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    with open(Path(os.environ["BAYESDIV_TEST_FOLDER"]) / f"trial-{trial.number}", "x"):
        time.sleep(0.02)
    return x


def test_workers_share_the_trials_and_a_killed_one_leaves_its_settings_to_another(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("BAYESDIV_TEST_FOLDER", str(tmp_path))
    search = Search(tmp_path / "study.db", trials=12, workers=2, heartbeat=1)
    workers.tune(killed_at_first, search)
    found = studies.trials(search)
    assert [tried.state for tried in found] == ["failed"] + ["complete"] * 12
    assert [tried.retry_of for tried in found] == [None] * 12 + [0]
    assert found[12].settings == found[0].settings
    assert len({tried.settings["x"] for tried in found}) == 12
    assert len(list(tmp_path.glob("trial-*"))) == 12


def broken(trial: optuna.Trial) -> float:
    raise ValueError(f"trial {trial.number} is broken")


def test_an_error_in_a_worker_reaches_the_caller(tmp_path):
    with pytest.raises(workers.WorkerFailed, match=r"ValueError: trial [01] is broken"):
        workers.tune(broken, Search(tmp_path / "study.db", trials=4, workers=2))


@pytest.mark.slow
def test_an_experiment_is_searched_by_several_processes(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=3, workers=2)
    experiment.tune_experiment(diabetes, bd.JSA(0.5), QUICK, search, folds=2)
    single = Search(tmp_path / "single.db", trials=3)
    experiment.tune_experiment(diabetes, bd.JSA(0.5), QUICK, single, folds=2)
    assert settings_of(search) == settings_of(single)  # random so far, by the trial's number


def always_killed(trial: optuna.Trial) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.slow
def test_no_worker_left_is_told_and_the_search_can_go_on(tmp_path):
    search = Search(tmp_path / "study.db", trials=2, workers=2, heartbeat=1)
    with pytest.raises(workers.WorkerFailed, match="no worker is left after 0 of 2 trials"):
        workers.tune(always_killed, search)
    workers.tune(bowl, dataclasses.replace(search, workers=1))
    states = [tried.state for tried in studies.trials(search)]
    assert sorted(states) == ["complete"] * 2 + ["failed"] * 2


def stopped_by_hand(path: Path) -> None:
    workers.tune(waits_for_ever, Search(path, trials=3, workers=2))


def waits_for_ever(trial: optuna.Trial) -> float:
    trial.suggest_float("x", 0, 1)
    time.sleep(600)
    raise AssertionError


@pytest.mark.slow
def test_a_caller_stopped_by_hand_ends_its_workers_and_leaves_their_trials_waiting(tmp_path):
    path = tmp_path / "study.db"
    caller = multiprocessing.get_context("spawn").Process(target=stopped_by_hand, args=(path,))
    caller.start()
    search = Search(path, trials=3)
    deadline = time.monotonic() + 60
    while not path.exists() or [t.state for t in studies.trials(search)].count("running") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.kill(caller.pid, signal.SIGINT)
    caller.join(60)
    found = studies.trials(search)
    assert [tried.state for tried in found] == ["stopped"] * 2 + ["waiting"] * 3
    assert sorted(tried.retry_of for tried in found[3:]) == [0, 1]
    assert {t.retry_of: t.settings for t in found[3:]} == {t.number: t.settings for t in found[:2]}


def test_trials_planned_twice_are_run_once(tmp_path):
    """As when two callers begin at the same moment: both see none and both plan all."""
    search = Search(tmp_path / "study.db", trials=5)
    with opened(search) as (study, _):
        for _ in range(10):
            study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.WAITING))
    workers.tune(bowl, search)
    states = [tried.state for tried in studies.trials(search)]
    assert states == ["complete"] * 5 + ["waiting"] * 5


def test_a_trial_that_another_process_has_taken_over_does_not_count_here(tmp_path):
    """A process that slept past its heartbeat wakes up when its trial is failed and retried."""
    search, calls = Search(tmp_path / "study.db", trials=2), []

    def overslept(trial):
        calls.append(trial.number)
        x = trial.suggest_float("x", 0, 1)
        if calls == [0]:
            with opened(search) as (study, storage):
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                callback = storage.get_heartbeat_stale_trial_callback()
                callback(study, study.trials[0])
        trial.report(x, 1)
        return x

    workers.tune(overslept, search)
    found = studies.trials(search)
    assert [tried.state for tried in found] == ["failed", "complete", "complete"]
    assert found[2].settings == found[0].settings


# Bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Search("s.db", trials=0), "trials must be at least 1, got 0"),
        (lambda: Search("s.db", workers=-1), "workers must be at least 1, got -1"),
        (lambda: Search("s.db", seed=-1), "seed must be at least 0, got -1"),
        (lambda: Uniform(1.0, 0.5), "low below high, got 1.0 and 0.5"),
        (lambda: Uniform(0.0, math.inf), "must be finite"),
        (lambda: LogUniform(0.0, 1.0), "low must be positive on a logarithmic scale, got 0.0"),
        (lambda: searches.Aim("nll", best=sum), "best must be min or max, got"),
    ],
)
def test_bad_values_are_refused_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("nonsense://here", "storage must be a database that opens, got nonsense://here"),
        ("sqlite:////nowhere/at/all/s.db", "unable to open database file"),
        ("postgresql+psycopg://me:secret@127.0.0.1:1/x", "me:\\*\\*\\*@127.0.0.1"),
    ],
)
def test_a_storage_that_does_not_open_is_told_without_its_password(storage, words):
    with pytest.raises(ValueError, match=words) as caught:
        workers.tune(bowl, Search(storage, trials=1))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_told(tmp_path):
    (tmp_path / "s.db").write_text("not a database at all, and longer than its header would be" * 9)
    with pytest.raises(ValueError, match="file is not a database"):
        workers.tune(bowl, Search(tmp_path / "s.db", trials=1))


def test_another_aim_or_subject_is_not_mixed_into_a_study(tmp_path):
    search = Search(tmp_path / "study.db", trials=2)
    workers.tune(bowl, search, about={"data": "one"})
    with pytest.raises(ValueError, match="it is to minimize there and to maximize here"):
        workers.tune(
            bowl, dataclasses.replace(search, aim=searches.ACCURACY), about={"data": "one"}
        )
    with pytest.raises(ValueError, match="data is one there and two here"):
        workers.tune(bowl, search, about={"data": "two"})
    workers.tune(bowl, dataclasses.replace(search, name="other"), about={"data": "two"})


def test_only_the_settings_that_differ_are_told(tmp_path):
    search = Search(tmp_path / "study.db", trials=1)
    workers.tune(bowl, search, about={"training": {"epochs": 20, "seed": 0, "hidden": [5]}})
    with pytest.raises(studies.OtherStudy, match="choose another name or storage") as caught:
        workers.tune(bowl, search, about={"training": {"epochs": 10, "seed": 0, "hidden": [7]}})
    assert caught.value.differs == (
        "epochs is 20 there and 10 here, hidden is [5] there and [7] here"
    )


def test_an_objective_without_a_number_is_told(tmp_path):
    with pytest.raises(TypeError, match="an objective must return a number, got None"):
        workers.tune(lambda trial: None, Search(tmp_path / "study.db", trials=1))


def test_a_search_without_a_finished_trial_has_no_best(tmp_path):
    def hopeless(trial):
        raise bd.Diverged("always")

    with pytest.raises(ValueError, match="no trial of 'search' came to its end"):
        workers.tune(hopeless, Search(tmp_path / "study.db", trials=2))


def test_a_database_that_another_process_holds_is_waited_for(tmp_path):
    """Half a second of an exclusive lock; without a timeout the first write would raise."""
    search = Search(tmp_path / "study.db", trials=1)
    workers.tune(bowl, search)
    holder = sqlite3.connect(tmp_path / "study.db", check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(0.5, holder.rollback)
    timer.start()
    workers.tune(bowl, dataclasses.replace(search, trials=2))
    timer.join()
    holder.close()
    assert len(studies.trials(search)) == 2


# An experiment -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def diabetes():
    return load("diabetes")


def test_an_experiment_is_searched_over_alpha_strength_and_learning_rate(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=3)
    tuned = experiment.tune_experiment(diabetes, bd.JSA(0.5), QUICK, search, folds=2)
    first, *others = studies.trials(search)
    assert first.settings == {"alpha": 0.5, "strength": 1.0, "learning_rate": 5e-3}
    for tried in others:
        assert 0 <= tried.settings["alpha"] <= 1
        assert 1e-3 <= tried.settings["strength"] <= 1e2
    assert tuned.best.value == min(t.value for t in studies.trials(search) if t.state == "complete")
    assert tuned.divergence == bd.JSA(tuned.best.settings["alpha"])
    assert tuned.training == dataclasses.replace(
        QUICK,
        strength=tuned.best.settings["strength"],
        learning_rate=tuned.best.settings["learning_rate"],
    )


def test_the_value_of_a_single_epoch_is_the_validation_nll_that_training_reports(
    tmp_path, diabetes
):
    """The trial trains by its own loop; `trainings.train` is where its settings are used."""
    once = dataclasses.replace(QUICK, epochs=1)
    search = Search(tmp_path / "study.db", trials=1)
    tuned = experiment.tune_experiment(diabetes, bd.JSA(0.5), once, search, folds=1)
    _, result = trainings.train(diabetes, bd.JSA(0.5), once)
    assert tuned.best.value == pytest.approx(result["validation"]["nll"], rel=1e-6)


def test_rows_that_choose_the_epoch_do_not_measure_it(tmp_path, diabetes):
    """Targets of pure noise: the best epoch on the rows that chose it is better than can be."""
    generator = torch.Generator().manual_seed(0)
    noise = dataclasses.replace(
        diabetes,
        train=diabetes.train._replace(y=torch.randn(266, generator=generator)),
        validation=diabetes.validation._replace(y=torch.randn(88, generator=generator)),
    )
    wild = Training(epochs=15, learning_rate=0.03, strength=1e-3, test_samples=50)
    search = Search(tmp_path / "study.db", trials=1)
    space = Space(learning_rate=LogUniform(1e-3, 0.1))
    tuned = experiment.tune_experiment(noise, bd.KL(), wild, search, space=space, folds=1)
    _, result = trainings.train(noise, bd.KL(), wild)
    assert tuned.training == wild
    assert tuned.best.value > result["validation"]["nll"]


def test_a_divergence_without_alpha_is_searched_over_the_rest(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=1)
    tuned = experiment.tune_experiment(diabetes, bd.KL(), QUICK, search, folds=1)
    assert tuned.best.settings.keys() == {"strength", "learning_rate"}
    assert tuned.divergence == bd.KL()


def test_a_setting_without_a_range_stays_as_it_is(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=2)
    space = Space(alpha=None, learning_rate=None, strength=LogUniform(2.0, 3.0))
    tuned = experiment.tune_experiment(diabetes, bd.JSA(0.2), QUICK, search, space=space, folds=1)
    assert tuned.divergence == bd.JSA(0.2)
    assert tuned.training.learning_rate == QUICK.learning_rate
    assert all(2 <= tried.settings["strength"] <= 3 for tried in studies.trials(search))


def test_the_test_part_has_no_say(tmp_path, diabetes):
    spoilt = dataclasses.replace(
        diabetes, test=diabetes.test._replace(y=torch.full_like(diabetes.test.y, math.nan))
    )
    values = []
    for name, splits in (("clean", diabetes), ("spoilt", spoilt)):
        search = Search(tmp_path / f"{name}.db", trials=2)
        experiment.tune_experiment(splits, bd.KL(), QUICK, search, folds=2)
        values.append([tried.value for tried in studies.trials(search)])
    assert values[0] == values[1]


def test_accuracy_is_an_aim_for_classes_alone(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=2, aim=searches.ACCURACY)
    with pytest.raises(
        ValueError, match="the aim of a regression must be one of nll, rmse, got accuracy"
    ):
        experiment.tune_experiment(diabetes, bd.KL(), QUICK, search)
    cancer = load("breast_cancer")
    tuned = experiment.tune_experiment(cancer, bd.KL(), QUICK, search, folds=2)
    assert 0.5 < tuned.best.value <= 1


def test_rmse_is_an_aim_for_a_regression_alone(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=1, aim=searches.RMSE)
    with pytest.raises(ValueError, match="must be one of nll, accuracy, ece, got rmse"):
        experiment.tune_experiment(load("breast_cancer"), bd.KL(), QUICK, search)
    once = dataclasses.replace(QUICK, epochs=1)
    tuned = experiment.tune_experiment(diabetes, bd.KL(), once, search, folds=1)
    _, result = trainings.train(diabetes, bd.KL(), once)
    # The trial takes the mean of two halves; the root of a mean is not the mean of roots.
    assert tuned.best.value == pytest.approx(result["validation"]["rmse"], rel=0.02)


def test_a_range_that_the_divergence_refuses_is_told_before_the_search(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=2)
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\], got 2"):
        experiment.tune_experiment(
            diabetes, bd.JSA(0.5), QUICK, search, space=Space(alpha=Uniform(0.0, 2.0))
        )
    space = Space(strength=None, learning_rate=None)
    with pytest.raises(ValueError, match="a range must be given for one setting at least"):
        experiment.tune_experiment(diabetes, bd.KL(), QUICK, search, space=space)
    assert not (tmp_path / "study.db").exists()


# Folds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["diabetes", "breast_cancer"])
def test_every_row_is_validated_once_and_never_where_it_is_trained_on(name):
    splits = load(name)
    rows = {tuple(x.tolist()) for part in (splits.train, splits.validation) for x in part.x}
    folds = experiment.dealt(splits, 4)
    seen = [tuple(x.tolist()) for fold in folds for x in fold.validation.x]
    assert len(seen) == len(splits.train.y) + len(splits.validation.y)
    assert set(seen) == rows
    for fold in folds:
        train = {tuple(x.tolist()) for x in fold.train.x}
        assert train.isdisjoint({tuple(x.tolist()) for x in fold.validation.x})
        assert fold.num_data + len(fold.validation.y) == len(seen)
        assert fold.test is splits.test


def test_each_fold_has_its_share_of_every_class():
    splits = load("breast_cancer")
    shares = [fold.validation.y.float().mean().item() for fold in experiment.dealt(splits, 5)]
    assert max(shares) - min(shares) < 0.02


def test_one_fold_is_the_split_as_it_is(diabetes):
    assert experiment.dealt(diabetes, 1) == [diabetes]
    with pytest.raises(
        ValueError, match="folds must lie between 1 and half of the 354 rows, got 0"
    ):
        experiment.dealt(diabetes, 0)


# Figures -------------------------------------------------------------------------------------


def tried_with(values: list[float]) -> list[searches.Tried]:
    """Finished trials with these values, at settings that lie on no line."""
    return [
        searches.Tried(
            k,
            {"alpha": (k * 0.37) % 1, "strength": 10 ** (k % 3)},
            value,
            "complete",
            "",
            1.0,
            None,
        )
        for k, value in enumerate(values)
    ]


def worse_than_shown(values: list[float], aim: searches.Aim) -> list[float]:
    """The numbers of the trials that the history marks as worse than shown."""
    axes = search_plots.search_figure(tried_with(values), aim, "").axes[0]
    marks = [c for c in axes.collections if c.get_label() == "worse than shown"]
    return [x for mark in marks for x, _ in mark.get_offsets().tolist()]


@pytest.mark.parametrize("aim", [searches.RMSE, searches.ACCURACY])
def test_the_history_marks_the_trials_far_off_and_never_the_best(aim):
    """5.4357951 is 5.4357953 in single precision."""
    sign = 1 if aim.best is min else -1
    near = [sign * value for value in (5.4357951, 5.44, 5.45, 5.46)]
    assert worse_than_shown(near, aim) == []
    assert worse_than_shown([*near, sign * 99.0], aim) == [4]


def test_a_search_is_drawn_over_each_setting_with_the_value_of_each_trial():
    values = [5.4 + 0.01 * k for k in range(12)]
    figure = search_plots.search_figure(tried_with(values), searches.NLL, "")
    assert [axes.get_xlabel() for axes in figure.axes] == ["trial", "alpha", "strength"]
    assert [axes.get_xscale() for axes in figure.axes] == ["linear", "linear", "log"]
    points = figure.axes[1].collections[0].get_offsets().tolist()
    assert [x for x, _ in points] == pytest.approx([(k * 0.37) % 1 for k in range(12)])
    assert [y for _, y in points] == pytest.approx(values)
