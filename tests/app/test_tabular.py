"""The scikit-learn estimators: scikit-learn's own checks, its linear models as oracles."""

import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import BayesianRidge, LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv import BayesianClassifier, BayesianRegressor
from bayesdiv.app.sklearn import tabular

QUICK = {"epochs": 20, "batch_size": 64, "learning_rate": 0.03, "test_samples": 20}
WIDE = bd.Prior(Normal, loc=0.0, scale=10.0)
LINEAR = {"divergence": bd.KL(), "hidden": (), "prior": WIDE, "start": 0.01}
LINE = LINEAR | {"likelihood": "gaussian"}
LONGER = {"epochs": 100, "batch_size": 64, "learning_rate": 0.03, "test_samples": 400}


def linear(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs)


def line(rows=200, noise=0.5, seed=0):
    """A plane with known noise, its columns and targets far from standardised."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3)) * [1.0, 30.0, 0.01] + [0.0, 100.0, 5.0]
    y = 40.0 + X @ [1.0, -0.05, 60.0] + noise * rng.normal(size=rows)
    return X, y


@parametrize_with_checks(
    [BayesianRegressor(bd.KL(), **QUICK), BayesianClassifier(bd.KL(), **QUICK)]
)
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


def test_a_small_fit_takes_one_thread_and_gives_the_others_back(monkeypatch):
    seen, fit = [], tabular.fit
    monkeypatch.setattr(
        tabular,
        "fit",
        lambda *a, **b: (seen.append(torch.get_num_threads()) or e for e in fit(*a, **b)),
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for size, threads in ((64, 1), (2000, 2)):
            BayesianRegressor(epochs=1, batch_size=size).fit(*line())
            assert (seen.pop(), torch.get_num_threads()) == (threads, 2)
    finally:
        torch.set_num_threads(before)


def test_a_linear_network_agrees_with_bayesian_ridge_in_mean_and_deviation():
    X, y = line()
    new = line(rows=50, seed=1)[0]
    ours = BayesianRegressor(**LINE, **LONGER, random_state=0)
    mean, std = ours.fit(X, y).predict(new, return_std=True)
    wanted, wanted_std = BayesianRidge().fit(X, y).predict(new, return_std=True)
    np.testing.assert_allclose(mean, wanted, atol=0.1 * wanted_std.mean())
    np.testing.assert_allclose(std, wanted_std, rtol=0.1)


def test_a_linear_classifier_agrees_with_logistic_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) * [1.0, 50.0]
    y = np.where(X @ [1.5, -0.02] + rng.logistic(size=300) > 0.3, "yes", "no")
    ours = BayesianClassifier(**LINEAR, **LONGER, random_state=0).fit(X, y)
    wanted = LogisticRegression(C=1e3).fit(X / [1.0, 50.0], y)
    probabilities = ours.predict_proba(X)
    np.testing.assert_allclose(probabilities, wanted.predict_proba(X / [1.0, 50.0]), atol=0.03)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert ours.classes_.tolist() == ["no", "yes"]


def test_log_probabilities_stay_finite_where_probabilities_are_zero():
    X, y = load_iris(return_X_y=True)
    # A single draw is sure of itself anywhere; several differ far away.
    model = BayesianClassifier(**QUICK | {"test_samples": 1}, random_state=0).fit(X, y)
    near, far = model.predict_log_proba(X), model.predict_log_proba(1e6 * X)
    np.testing.assert_allclose(near, np.log(model.predict_proba(X)))
    assert (model.predict_proba(1e6 * X) == 0).any()
    assert np.isfinite(far).all()


def test_intervals_hold_as_many_targets_as_they_say():
    """Against the noise that was put in, on 4000 new rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(4300, 1))
    y = 100 + 20 * np.sin(2 * X[:, 0]) + 5 * rng.normal(size=4300)
    model = BayesianRegressor(
        **(QUICK | {"epochs": 300, "batch_size": 100, "test_samples": 100}), random_state=0
    )
    model.fit(X[:300], y[:300])
    for level in (0.5, 0.9):
        low, high = model.predict_interval(X[300:], level)
        assert np.mean((low < y[300:]) & (y[300:] < high)) == pytest.approx(level, abs=0.05)
    noise = model.predictive(X[300:]).aleatoric.mean().item()
    assert noise == pytest.approx(25.0, rel=0.25)


def test_deviations_grow_away_from_the_data_and_are_epistemic():
    X, y = load_diabetes(return_X_y=True)
    model = BayesianRegressor(**QUICK, likelihood="gaussian", random_state=0).fit(X, y)
    stds = [model.predict(far * X, return_std=True)[1].mean() for far in (1, 3, 10)]
    assert stds[0] < stds[1] < stds[2]
    near, far = model.predictive(X), model.predictive(10 * X)
    assert far.epistemic.mean() > 20 * near.epistemic.mean()
    torch.testing.assert_close(near.aleatoric.mean(), far.aleatoric.mean())
    total = (near.epistemic + near.aleatoric).sqrt().numpy()
    np.testing.assert_allclose(total, model.predict(X, return_std=True)[1])


def test_diabetes_is_predicted_as_well_as_by_ridge():
    X, y = load_diabetes(return_X_y=True)
    X, new, y, truth = train_test_split(X, y, test_size=0.4, random_state=0)
    model = BayesianRegressor(**QUICK, random_state=0).fit(X, y)
    assert model.score(new, truth) > Ridge(alpha=0.05).fit(X, y).score(new, truth) - 0.03
    low, high = model.predict_interval(new)
    assert 0.84 < np.mean((low < truth) & (truth < high)) < 0.96


def test_a_weight_of_two_is_the_row_twice_and_of_zero_without_it():
    X, y = line(rows=60)
    weight = np.arange(60) % 3
    spoilt = np.where(weight == 0, 1e6, y)
    model = BayesianRegressor(**QUICK, random_state=0)
    weighted = clone(model).fit(X, spoilt, sample_weight=weight).predict(X)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)).predict(X)
    assert np.array_equal(weighted, repeated)
    assert not np.allclose(weighted, clone(model).fit(X, y).predict(X), rtol=1e-4)


def test_fractional_weights_do_what_weighted_least_squares_does():
    X, y = line(rows=200, noise=3.0)
    weight = np.random.default_rng(2).exponential(size=200) ** 2
    ours = BayesianRegressor(**LINE, **LONGER, random_state=0).fit(X, y, sample_weight=weight)
    wanted = LinearRegression().fit(X, y, sample_weight=weight).predict(X)
    plain = LinearRegression().fit(X, y).predict(X)
    off = np.abs(ours.predict(X) - wanted).max()
    assert off < 0.2 * np.abs(plain - wanted).max()


def test_the_order_of_the_rows_does_not_matter():
    X, y = line(rows=60)
    model = BayesianRegressor(**QUICK, random_state=0)
    back = clone(model).fit(X[::-1], y[::-1])
    assert np.array_equal(model.fit(X, y).predict(X), back.predict(X))


def test_several_targets_have_units_of_their_own():
    X, y = line(noise=0.1)
    both = np.column_stack([y, 1e3 - 1e4 * X[:, 2]])
    model = BayesianRegressor(**LINE, **LONGER, random_state=0).fit(X, both)
    wanted = LinearRegression().fit(X, both).predict(X)
    np.testing.assert_allclose((model.predict(X) - wanted) / both.std(0), 0.0, atol=0.03)
    low, high = model.predict_interval(X)
    assert low.shape == high.shape == (200, 2)
    assert clone(model).set_params(epochs=1).fit(X, both[:, :1]).predict(X).shape == (200, 1)


def test_each_target_has_intervals_of_its_own_width():
    """Against the noise that was put into each, on 2000 new rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2200, 2))
    y = X @ [[1.0, 1.0], [-1.0, 1.0]] + rng.normal(size=(2200, 2)) * [0.2, 2.0]
    model = BayesianRegressor(**LINE, **LONGER, random_state=0).fit(X[:200], y[:200])
    low, high = model.predict_interval(X[200:])
    inside = (low < y[200:]) & (y[200:] < high)
    np.testing.assert_allclose(inside.mean(0), 0.9, atol=0.05)
    np.testing.assert_allclose((high - low).mean(0), 2 * 1.645 * np.array([0.2, 2.0]), rtol=0.2)


def test_little_noise_is_found_by_the_default_fit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2100, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=2100)
    model = BayesianRegressor(random_state=0).fit(X[:100], y[:100])
    low, high = model.predict_interval(X[100:])
    assert np.mean((low < y[100:]) & (y[100:] < high)) > 0.85
    assert (high - low).mean() < 0.95
    assert "kept: the validation NLL stood" in model.report_ or "most" in model.report_


def test_a_fit_that_its_time_cuts_short_warns():
    X, y = line(noise=0.01)
    with pytest.warns(ConvergenceWarning, match="0.1 seconds, the most for a fit"):
        BayesianRegressor(random_state=0, seconds=0.1).fit(X, y)


def test_a_default_fit_of_noisy_targets_is_long_enough():
    BayesianRegressor(random_state=0).fit(*load_diabetes(return_X_y=True))  # without a warning


@pytest.mark.parametrize("other", [0.1, np.nextafter(0.1, 1.0)])
def test_a_column_that_differs_by_rounding_says_nothing(other):
    X, y = line(rows=60)
    X = np.column_stack([X, np.where(np.arange(60) % 2, 0.1, other)])
    model = BayesianRegressor(**(QUICK | {"epochs": 2}), random_state=0).fit(X, y)
    for new in (0.1001, -1e9):
        moved = np.column_stack([X[:, :3], np.full(60, new)])
        assert np.array_equal(model.predict(moved), model.predict(X))


@pytest.mark.parametrize("unit", [2.0**660, 2.0**-990])
def test_deviations_follow_targets_whose_squares_are_no_numbers(unit):
    X, y = line(rows=60)
    model = BayesianRegressor(**(QUICK | {"epochs": 2}), random_state=0)
    wanted = clone(model).fit(X, y).predict(X, return_std=True)[1]
    found = clone(model).fit(X, unit * y).predict(X, return_std=True)[1]
    np.testing.assert_allclose(found / unit, wanted, rtol=1e-5)


def test_predictions_follow_the_units_of_the_table():
    X, y = line(rows=60)
    X = np.column_stack([X, np.full(60, 0.1)])  # a column that says nothing
    model = BayesianRegressor(**QUICK, random_state=0)
    mean, std = clone(model).fit(X, y).predict(X, return_std=True)
    # Powers of two, which no rounding changes.
    other, other_std = clone(model).fit(8 * X, 1024 * y).predict(8 * X, return_std=True)
    np.testing.assert_allclose(other, 1024 * mean, rtol=1e-5)
    np.testing.assert_allclose(other_std, 1024 * std, rtol=1e-5)


def test_a_constant_target_is_predicted():
    X, _ = line(rows=60)
    model = BayesianRegressor(**QUICK, random_state=0).fit(X, np.full(60, 7.0))
    assert model.predict(X) == pytest.approx(np.full(60, 7.0), abs=0.5)


def test_tables_with_names_are_checked_by_name():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = BayesianRegressor(**(QUICK | {"epochs": 1}), random_state=0).fit(X, y)
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert np.array_equal(model.predict(X), clone(model).fit(X.to_numpy(), y).predict(X.to_numpy()))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X[X.columns[::-1]])


def test_a_search_chooses_divergence_and_strength_in_a_pipeline():
    X, y = load_iris(return_X_y=True, as_frame=True)
    steps = make_pipeline(MinMaxScaler(), BayesianClassifier(**QUICK, random_state=0))
    grid = {
        "bayesianclassifier__divergence": [bd.JSA(0.5), bd.JSG(0.5)],
        "bayesianclassifier__strength": [1.0, 1e6],
    }
    search = GridSearchCV(steps, grid, cv=2, scoring="neg_log_loss").fit(X, y)
    assert search.best_params_["bayesianclassifier__strength"] == 1.0
    assert search.score(X, y) > -0.3


@pytest.mark.slow
def test_several_processes_find_what_one_finds():
    X, y = load_iris(return_X_y=True)
    model = BayesianClassifier(network=linear, epochs=3, random_state=0)
    one, two = (cross_val_score(model, X, y, cv=2, n_jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(one, two)


@pytest.mark.parametrize("seed", [None, 0])
def test_a_fitted_estimator_is_saved_with_its_draws(seed):
    X, y = line(rows=40)
    model = BayesianRegressor(**(QUICK | {"epochs": 2}), random_state=seed).fit(X, y)
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    for again in (joblib.load(file), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(again.predict(X), model.predict(X))


def test_fits_repeat_and_leave_the_noise_of_torch_alone():
    X, y = line(rows=40)
    before = torch.get_rng_state()
    model = BayesianRegressor(**(QUICK | {"epochs": 2}), random_state=3, validation_fraction=0.2)
    found = model.fit(X, y).predict(X)
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(7)
    assert np.array_equal(model.predict(X), found)
    assert np.array_equal(clone(model).fit(X, y).predict(X), found)
    other = clone(model).set_params(random_state=4).fit(X, y).predict(X)
    assert not np.array_equal(other, found)


def test_two_fits_from_one_random_state_differ_and_repeat():
    X, y = line(rows=40)
    first, second = (
        [BayesianRegressor(epochs=1, random_state=state).fit(X, y).predict(X) for _ in range(2)]
        for state in (np.random.RandomState(0), np.random.RandomState(0))
    )
    assert not np.array_equal(first[0], first[1])
    assert np.array_equal(first, second)


def test_a_held_out_part_keeps_the_weights_from_before_they_overfit():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1040, 10)), rng.normal(size=1040)  # nothing can be learned
    model = BayesianRegressor(
        strength=0.0, epochs=300, learning_rate=0.01, random_state=0, test_samples=20
    )
    last = clone(model).fit(X[:40], y[:40])
    kept = clone(model).set_params(validation_fraction=0.5).fit(X[:40], y[:40])
    truth = torch.from_numpy(y[40:])
    densities = [m.predictive(X[40:]).log_prob(truth).mean().item() for m in (kept, last)]
    assert densities[0] > densities[1] + 1
    assert kept.best_epoch_ < last.best_epoch_ == len(last.history_) == 300


def _silent(inputs: int, outputs: int) -> nn.Module:
    """A network that says 0, which standardised targets have for their mean."""
    network = nn.Linear(inputs, outputs)
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    return network


UNTRAINED = {"network": _silent, "start": 1e-6, "epochs": 1, "learning_rate": 1e-9}


def test_the_history_is_the_loss_of_one_example():
    """Of standardised targets under noise of scale 1: ½ log 2π + ½."""
    X, y = line(rows=64)
    model = BayesianRegressor(bd.KL(), batch_size=64, random_state=0, **UNTRAINED)
    (loss,) = model.fit(X, y, sample_weight=np.full(64, 2.0)).history_
    assert loss.nll == pytest.approx(0.5 * np.log(2 * np.pi) + 0.5, rel=1e-4)
    assert loss.total == pytest.approx(loss.nll + loss.divergence / 128, rel=1e-6)


def test_an_untrained_network_predicts_the_weighted_moments():
    X, y = line(rows=64)
    weight = np.arange(64.0)
    model = BayesianRegressor(random_state=0, **UNTRAINED).fit(X, y, sample_weight=weight)
    mean, std = model.predict(X, return_std=True)
    wanted = np.average(y, weights=weight)
    np.testing.assert_allclose(mean, wanted, rtol=1e-5)
    np.testing.assert_allclose(std, np.average((y - wanted) ** 2, weights=weight) ** 0.5, rtol=1e-4)


def test_settings_are_left_as_they_were_given():
    X, y = line(rows=40)
    limit = bd.Constraint(epsilon=0.1)
    for strength in (limit, bd.WarmUp(2)):
        model = BayesianRegressor(strength=strength, prior=WIDE, epochs=3, random_state=0)
        model.fit(X, y)
        assert model.get_params()["strength"] is strength
    assert limit.value().item() == pytest.approx(1.0)


def test_the_precision_that_torch_is_set_to_does_not_matter():
    X, y = line(rows=40)
    model = BayesianRegressor(**(QUICK | {"epochs": 2}), network=_silent, random_state=0)
    single = clone(model).fit(X, y).predict(X)
    torch.set_default_dtype(torch.float64)
    try:
        double = clone(model).fit(X, y).predict(X)
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_allclose(double, single, rtol=1e-4)


def test_a_loss_that_is_not_finite_is_told():
    X, y = line(rows=40)
    with pytest.raises(bd.Diverged, match="learning rate"):
        BayesianRegressor(learning_rate=1e30, epochs=5, random_state=0).fit(X, y)
    with pytest.raises(bd.Diverged, match="loss of epoch 1 is not finite"):
        BayesianRegressor(start=1e30, epochs=5, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"test_samples": 0}, "test_samples must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
        ({"validation_fraction": 1.0}, r"validation_fraction must lie in \[0, 1\), got 1.0"),
        ({"validation_fraction": 0.99}, "must leave a row to train on, got 0.99 of 10"),
        ({"strength": -1.0}, "strength must be finite and not negative, got -1.0"),
        ({"start": 0.0}, "start must be positive and finite, got 0.0"),
        ({"hidden": 50}, "hidden must name the units of each layer, got 50"),
        ({"hidden": (2.5,)}, r"hidden must name the units of each layer, got \(2.5,\)"),
        ({"epochs": 2.5}, "epochs must be a whole number, got 2.5"),
        ({"samples": None}, "samples must be a whole number, got None"),
        ({"divergence": "kl"}, r"divergence must be one such as JSA\(0.3\), got 'kl'"),
        ({"network": 5}, "network must be a function of .* inputs and outputs, got 5"),
        ({"network": lambda i, o: nn.Linear(i, 3)}, "network must give 2 outputs, got 3"),
        (
            {"likelihood": "gaussian", "network": lambda i, o: nn.Linear(i, 3)},
            "network must give 1 output, got 3",
        ),
        (
            {
                "likelihood": "gaussian",
                "network": lambda i, o: nn.Sequential(nn.Linear(i, o), nn.Flatten(0)),
            },
            r"network must give 1 output, got shape \(2,\) for two rows",
        ),
        ({"likelihood": "normal"}, "likelihood must be one of heteroscedastic, gaussian"),
        ({"likelihood": "normal"}, "negative_binomial, auto, got 'normal'"),
        ({"members": 0}, "members must be at least 1, got 0"),
        ({"seconds": 0.0}, "seconds must be positive, got 0.0"),
        ({"prior": "x"}, r"prior must be a prior such as FanIn\(\), got 'x'"),
    ],
)
def test_a_bad_setting_is_named_when_it_is_used(settings, sentence):
    X, y = line(rows=10)
    with pytest.raises(ValueError, match=sentence):
        BayesianRegressor(**settings).fit(X, y)


@pytest.mark.parametrize(
    ("weight", "sentence"),
    [
        (np.ones(3), r"sample_weight must have shape \(10,\), got \(3,\)"),
        (-np.ones(10), "sample_weight must not be negative, got -1.0"),
        (np.zeros(10), "sample_weight must not be zero for all rows"),
    ],
)
def test_bad_weights_are_named(weight, sentence):
    X, y = line(rows=10)
    with pytest.raises(ValueError, match=sentence):
        BayesianRegressor().fit(X, y, sample_weight=weight)


def test_missing_values_and_a_single_class_are_named():
    X = pd.DataFrame({"a": [1.0, None, 3.0], "b": [0.0, 1.0, 2.0]})
    with pytest.raises(ValueError, match="Input X contains NaN"):  # of arrays; tables may have gaps
        BayesianClassifier().fit(X.to_numpy(), [0, 1, 0])
    with pytest.raises(ValueError, match="y must have two classes or more, got one class: x"):
        BayesianClassifier().fit(X[["b"]], ["x", "x", "x"])
    with pytest.raises(ValueError, match="got one class: x"):
        BayesianClassifier().fit(X[["b"]], ["x", "y", "x"], sample_weight=[1, 0, 1])


@pytest.mark.gpu
def test_training_on_a_gpu_predicts_on_the_cpu_and_leaves_its_noise_alone():
    X, y = load_diabetes(return_X_y=True)
    torch.cuda.init()
    before = torch.cuda.get_rng_state()
    model = BayesianRegressor(**QUICK, random_state=0, device="cuda", validation_fraction=0.1)
    assert model.fit(X, y).score(X, y) > 0.4
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert {parameter.device.type for parameter in model.model_.parameters()} == {"cpu"}


def test_a_row_has_the_same_prediction_in_any_table_and_in_any_thread():
    X, y = load_diabetes(return_X_y=True)
    model = BayesianRegressor(epochs=2, random_state=0).fit(X, y)
    many = np.vstack([X] * 3)
    wanted = model.predict(X[:1])[0]
    for rows in (X[:5], X, many):
        assert model.predict(rows)[0] == pytest.approx(wanted, rel=1e-9)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(model.predict, X[:50]) for _ in range(40)]
        found = [call.result() for call in calls]
    for one in found:
        np.testing.assert_allclose(one, model.predict(X[:50]), rtol=1e-9)


def test_several_labels_agree_with_a_logistic_regression_per_column():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X @ [[1.0, 0.5], [-1.0, 2.0]] + rng.logistic(size=(400, 2)) > 0).astype(int)
    ours = BayesianClassifier(**LINEAR, **LONGER, random_state=0).fit(X, y)
    for column in (0, 1):
        wanted = LogisticRegression(C=np.inf).fit(X, y[:, column]).predict_proba(X)[:, 1]
        np.testing.assert_allclose(ours.predict_proba(X)[:, column], wanted, atol=0.04)
    np.testing.assert_allclose(np.exp(ours.predict_log_proba(X)), ours.predict_proba(X), rtol=1e-6)
    assert ours.score(X, y) == np.mean((ours.predict(X) == y).all(1))
    with pytest.raises(ValueError, match="one class per row"):
        ours.calibrate(X, y)


def test_a_table_that_comes_in_parts_is_learned_as_if_it_came_whole():
    X, y = line(rows=2000)
    settings = LINE | {"learning_rate": 0.01, "test_samples": 100, "random_state": 0}
    model = BayesianRegressor(**settings)
    for _ in range(10):
        for part in range(0, 2000, 250):
            model.partial_fit(X[part : part + 250], y[part : part + 250])
    new = line(rows=50, seed=1)[0]
    mean, std = model.predict(new, return_std=True)
    wanted, wanted_std = BayesianRidge().fit(X, y).predict(new, return_std=True)
    np.testing.assert_allclose(mean, wanted, atol=0.3 * wanted_std.mean())
    np.testing.assert_allclose(std, wanted_std, rtol=0.2)


def test_a_column_that_varies_later_in_a_stream_is_learned_from_then_on():
    X, y = line(rows=1000)
    first = X[:100].copy()
    first[:, 0] = 0.5
    settings = LINE | {"learning_rate": 0.01, "test_samples": 50, "random_state": 0}
    model = BayesianRegressor(**settings).partial_fit(first, y[:100])
    for _ in range(30):
        model.partial_fit(X, y)
    assert model.score(X, y) > 0.9


def test_a_single_row_is_refused():
    X, y = line(rows=5)
    rule = "2 different rows of positive weight, got 1 sample"
    with pytest.raises(ValueError, match=rule):
        BayesianRegressor(epochs=1).fit(X, y, sample_weight=[1, 0, 0, 0, 0])
    with pytest.raises(ValueError, match=rule):
        BayesianClassifier().partial_fit(X[:1], [0], classes=[0, 1])


def test_calibration_rows_are_checked_when_they_are_given():
    X, y = line(rows=60)
    model = BayesianRegressor(epochs=1, members=1, random_state=0).fit(X, y).calibrate(X, y)
    before = model.predict_interval(X[:3])
    gaps = np.where(np.arange(60) < 10, np.nan, y)
    for wrong, got in ((gaps, r"\(60,\) with 10 NaN"), (y[:3], r"\(3,\) with 0 NaN")):
        with pytest.raises(ValueError, match=rf"y must be a number .*, \(60,\), got {got}"):
            model.calibrate(X, wrong)
    np.testing.assert_array_equal(model.predict_interval(X[:3]), before)


def test_the_classes_of_a_stream_are_given_once():
    X, y = load_iris(return_X_y=True)
    model = BayesianClassifier(learning_rate=0.05, batch_size=10, test_samples=20, random_state=0)
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit(X[:60], y[:60])
    model.partial_fit(X[:60], y[:60], classes=[0, 1, 2])  # has no row of the third
    for turn in range(8):
        for rows in np.random.default_rng(turn).permutation(150).reshape(5, 30):
            model.partial_fit(X[rows], y[rows])
    assert model.score(X, y) > 0.9
    with pytest.raises(ValueError, match="must stay"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="classes of the fit, got 7"):
        model.partial_fit(X[:2], [0, 7])


def test_sample_weights_are_routed_through_a_pipeline():
    X, y = line(rows=60)
    weight = np.r_[np.zeros(20), np.ones(40)]
    model = BayesianRegressor(**(QUICK | {"epochs": 3}), random_state=0)
    with config_context(enable_metadata_routing=True):
        asking = clone(model).set_fit_request(sample_weight=True)
        routed = make_pipeline(MinMaxScaler(), asking).fit(X, y, sample_weight=weight)
    scaled = MinMaxScaler().fit(X)
    alone = clone(model).fit(scaled.transform(X[20:]), y[20:])
    np.testing.assert_allclose(routed.predict(X), alone.predict(scaled.transform(X)))


def test_intervals_of_a_small_table_are_calibrated_by_folds():
    X, y = line(rows=60)
    new, truth = line(rows=300, seed=1)
    model = BayesianRegressor(**LINE, **QUICK, random_state=0).fit(X, y)
    before = model.predict_interval(new)
    low, high = model.calibrate_by_folds(X, y, folds=4).predict_interval(new)
    assert not np.array_equal(low, before[0])
    assert 0.8 < np.mean((low <= truth) & (truth <= high)) < 0.99
    assert np.array_equal(model.fit(X, y).predict_interval(new), before)
