"""The search over the settings of an experiment."""

import dataclasses
import math

import pytest
import torch
from optuna.distributions import FloatDistribution

import bayesdiv as bd
from bayesdiv.app import training as trainings
from bayesdiv.app.data.loading import load
from bayesdiv.app.experiment import Training
from bayesdiv.app.tuning import experiment
from bayesdiv.app.tuning.experiment import RANGES
from bayesdiv.app.tuning.search import Search, trials

QUICK = Training(epochs=4, test_samples=5, hidden=(5,), samples=1, members=1)


def settings_of(search: Search) -> list[dict[str, float]]:
    return [tried.settings for tried in trials(search)]


@pytest.fixture(scope="module")
def diabetes():
    return load("diabetes")


def test_an_experiment_is_searched_over_alpha_strength_and_learning_rate(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=3)
    tuned = experiment.tune_experiment(diabetes, bd.JSA(0.5), QUICK, search, folds=2)
    first, *others = trials(search)
    assert first.settings == {"alpha": 0.5, "strength": 1.0, "learning_rate": 5e-3}
    for tried in others:
        assert 0 <= tried.settings["alpha"] <= 1
        assert 1e-3 <= tried.settings["strength"] <= 1e2
    assert tuned.best.value == min(t.value for t in trials(search) if t.state == "complete")
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
    ranges = {**RANGES, "learning_rate": FloatDistribution(1e-3, 0.1, log=True)}
    tuned = experiment.tune_experiment(noise, bd.KL(), wild, search, ranges=ranges, folds=1)
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
    ranges = {"strength": FloatDistribution(2.0, 3.0, log=True)}
    tuned = experiment.tune_experiment(diabetes, bd.JSA(0.2), QUICK, search, ranges=ranges, folds=1)
    assert tuned.divergence == bd.JSA(0.2)
    assert tuned.training.learning_rate == QUICK.learning_rate
    assert all(2 <= tried.settings["strength"] <= 3 for tried in trials(search))


def test_the_test_part_has_no_say(tmp_path, diabetes):
    spoilt = dataclasses.replace(
        diabetes, test=diabetes.test._replace(y=torch.full_like(diabetes.test.y, math.nan))
    )
    values = []
    for name, splits in (("clean", diabetes), ("spoilt", spoilt)):
        search = Search(tmp_path / f"{name}.db", trials=2)
        experiment.tune_experiment(splits, bd.KL(), QUICK, search, folds=2)
        values.append([tried.value for tried in trials(search)])
    assert values[0] == values[1]


def test_accuracy_is_an_aim_for_classes_alone(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=2)
    with pytest.raises(
        ValueError, match="the aim of a regression must be one of nll, rmse, got accuracy"
    ):
        experiment.tune_experiment(diabetes, bd.KL(), QUICK, search, aim="accuracy")
    cancer = load("breast_cancer")
    tuned = experiment.tune_experiment(cancer, bd.KL(), QUICK, search, aim="accuracy", folds=2)
    assert 0.5 < tuned.best.value <= 1


def test_rmse_is_an_aim_for_a_regression_alone(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=1)
    with pytest.raises(ValueError, match="must be one of nll, accuracy, ece, got rmse"):
        experiment.tune_experiment(load("breast_cancer"), bd.KL(), QUICK, search, aim="rmse")
    once = dataclasses.replace(QUICK, epochs=1)
    tuned = experiment.tune_experiment(diabetes, bd.KL(), once, search, aim="rmse", folds=1)
    _, result = trainings.train(diabetes, bd.KL(), once)
    # The trial takes the mean of two halves; the root of a mean is not the mean of roots.
    assert tuned.best.value == pytest.approx(result["validation"]["rmse"], rel=0.02)


def test_a_range_that_the_divergence_refuses_is_told_before_the_search(tmp_path, diabetes):
    search = Search(tmp_path / "study.db", trials=2)
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\], got 2"):
        experiment.tune_experiment(
            diabetes, bd.JSA(0.5), QUICK, search, ranges={"alpha": FloatDistribution(0.0, 2.0)}
        )
    with pytest.raises(ValueError, match="a range must be given for one setting at least"):
        experiment.tune_experiment(
            diabetes, bd.KL(), QUICK, search, ranges={"alpha": RANGES["alpha"]}
        )
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
