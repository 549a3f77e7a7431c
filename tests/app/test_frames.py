"""Estimators with tables as people have them, and with what scikit-learn's users expect."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bayesdiv as bd
from bayesdiv.app.sklearn.rows import encoder_for

QUICK = {"epochs": 8, "members": 2, "samples": 2, "learning_rate": 0.02, "test_samples": 20}


def messy(rows=120, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(50, 10, rows),
            "rooms": pd.array(rng.integers(1, 5, rows), dtype="Int64"),
            "new": rng.random(rows) < 0.5,
            "town": rng.choice(["Bonn", "Kiel", "Ulm"], rows),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), "D"),
            "garden": pd.Categorical(rng.choice(["large", "none"], rows)),
        }
    )
    y = frame["size"] + 20 * (frame["town"] == "Kiel") + rng.normal(size=rows)
    for name in ("size", "rooms", "town", "sold"):
        frame.loc[rng.random(rows) < 0.1, name] = None
    return frame, y


def test_columns_become_the_numbers_that_they_mean():
    frame, _ = messy()
    encoder = encoder_for(frame).fit(frame)
    found = pd.DataFrame(encoder.transform(frame), columns=encoder.get_feature_names_out())
    known = frame["sold"].notna()
    days = (frame["sold"] - pd.Timestamp("1970-01-01")).dt.days[known]
    assert np.allclose(found["numbers__sold"][known], days)
    gap = frame["size"].isna()
    assert np.array_equal(found["numbers__missingindicator_size"] == 1, gap)
    assert np.allclose(found["numbers__size"][gap], frame["size"].median())
    assert np.array_equal(found["categories__town_nan"] == 1, frame["town"].isna())
    assert np.array_equal(found["numbers__new"] == 1, frame["new"])


def test_a_frame_with_text_dates_and_gaps_is_learned_and_predicted():
    frame, y = messy()
    model = bd.BayesianRegressor(**QUICK | {"epochs": 30}, random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.5
    assert list(model.feature_names_in_) == list(frame.columns)
    strange = frame.iloc[:3].copy()
    strange["town"] = "Rome"
    strange["size"] = None
    assert np.isfinite(model.predict(strange)).all()
    alone = model.predict(frame.iloc[[7]])
    assert np.allclose(alone, model.predict(frame)[7])
    with pytest.raises(ValueError, match="X must be a DataFrame with the columns"):
        model.predict(np.zeros((2, 6)))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"size": "area"}))


@pytest.mark.parametrize("columns", [["size", "size"], ["town", "size", "town"]])
def test_two_columns_of_one_name_are_refused_in_one_sentence(columns):
    frame, y = messy(rows=20)
    sentence = f"column names must differ, got '{columns[0]}' more than once: rename one of them"
    with pytest.raises(ValueError, match=sentence):
        bd.BayesianRegressor(**QUICK).fit(frame[columns], y)


@pytest.mark.parametrize("columns", [["size"], ["size", "sold", "town"]])
def test_text_in_a_column_of_numbers_or_dates_is_named_with_its_column(columns):
    frame, y = messy()
    frame = frame[columns].assign(size=frame["size"].fillna(50.0))
    model = bd.BayesianRegressor(**QUICK | {"epochs": 1}).fit(frame, y)
    numbers = frame.assign(size=frame["size"].astype(str))
    assert np.array_equal(model.predict(numbers), model.predict(frame))
    for name in columns[:2]:
        wrong = frame.astype({name: object})
        wrong.loc[3, name] = "x"
        sentence = f"column '{name}' must hold numbers or dates as in the fit, got 'x'"
        with pytest.raises(ValueError, match=sentence):
            model.predict(wrong)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.assign(other="x"))


def test_no_rows_are_refused_in_one_sentence():
    frame, y = messy(rows=30)
    model = bd.BayesianRegressor(**QUICK | {"epochs": 1}).fit(frame, y)
    with pytest.raises(
        ValueError, match="X must have a row to predict, got an array with 0 sample"
    ):
        model.predict(frame.iloc[:0])


def test_a_frame_of_numbers_is_the_array_of_its_numbers():
    X, y = load_iris(return_X_y=True)
    array, frame = (
        bd.BayesianClassifier(**QUICK, random_state=0).fit(x, y).predict_proba(x)
        for x in (X, pd.DataFrame(X, columns=list("abcd")))
    )
    assert np.array_equal(array, frame)


def test_weights_of_classes_are_weights_of_their_rows():
    X, y = load_iris(return_X_y=True)
    weight = {0: 1.0, 1: 3.0, 2: 0.5}
    one = bd.BayesianClassifier(**QUICK, class_weight=weight, random_state=0).fit(X, y)
    rows = np.array([weight[label] for label in y])
    two = bd.BayesianClassifier(**QUICK, random_state=0).fit(X, y, sample_weight=rows)
    assert np.array_equal(one.predict_proba(X), two.predict_proba(X))
    with pytest.raises(ValueError, match="class_weight is for a classifier"):
        bd.BayesianRegressor(class_weight="balanced").fit(X, y)


def test_a_warm_start_goes_on_from_the_weights_before(capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=100)
    settings = QUICK | {"epochs": 40, "strength": 0.01, "random_state": 0}
    warm = bd.BayesianRegressor(**settings, warm_start=True, verbose=20).fit(X, y)
    assert "epoch 20: loss" in capsys.readouterr().out
    first, last = warm.history_[0].nll, warm.history_[-1].nll
    again = warm.set_params(epochs=1).fit(X + 0.01, y).history_[0].nll
    assert abs(again - last) < 0.2 * (first - last)
    with pytest.raises(ValueError, match="warm_start needs 2 members"):
        warm.set_params(members=3).fit(X, y)


def test_a_warm_start_keeps_the_classes_of_the_first_fit():
    X, y = load_iris(return_X_y=True)
    warm = bd.BayesianClassifier(**QUICK | {"epochs": 2}, warm_start=True, random_state=0).fit(X, y)
    assert warm.fit(X[:100], y[:100]).predict_proba(X).shape == (150, 3)  # without the third class
    with pytest.raises(ValueError, match="y must hold classes of the fit, got 7"):
        warm.fit(X[:2], [0, 7])


def test_fields_of_a_divergence_are_searched_like_any_setting():
    X, y = load_iris(return_X_y=True)
    model = bd.BayesianClassifier(bd.JSG(0.3), **QUICK | {"epochs": 2}, random_state=0)
    search = GridSearchCV(model, {"divergence__alpha": [0.1, 0.5]}, cv=2).fit(X, y)
    assert search.best_estimator_.divergence.alpha == search.best_params_["divergence__alpha"]
    assert model.set_params(divergence=bd.JSG(0.2), divergence__alpha=0.4).divergence == bd.JSG(0.4)


def test_sample_weights_are_routed():
    X, y = load_iris(return_X_y=True)
    with config_context(enable_metadata_routing=True):
        model = bd.BayesianClassifier(**QUICK | {"epochs": 2}, random_state=0)
        model.set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        found = cross_validate(model, X, y, cv=2, params={"sample_weight": np.ones(150)})
    assert (found["test_score"] > 0.3).all()


@pytest.fixture(scope="module")
def noisy():
    """Rows whose noise a fit of two epochs is wrong about."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(1500, 2))
    return X, np.exp(X[:, 0] + 0.3 * rng.normal(size=1500))


@pytest.mark.parametrize("likelihood", [None, "gamma"])
def test_calibrated_intervals_hold_what_they_say(noisy, likelihood):
    X, y = noisy
    model = bd.BayesianRegressor(
        **QUICK | {"epochs": 2}, likelihood=likelihood, random_state=0
    ).fit(X[:200], y[:200])

    def coverage():
        low, high = model.predict_interval(X[800:], level=0.8)
        assert likelihood is None or low.min() > 0
        return np.mean((low <= y[800:]) & (y[800:] <= high))

    before = coverage()
    model.calibrate(X[200:800], pd.Series(y[200:800]))
    assert abs(coverage() - 0.8) < 0.06  # three standard errors of 600 and 700 rows
    assert abs(coverage() - 0.8) < abs(before - 0.8)
    assert np.isinf(model.calibrate(X[200:205], y[200:205]).predict_interval(X[800:])[1]).all()


def test_sets_of_classes_hold_what_they_say():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1200, 2))
    y = np.array(["low", "high"])[(X[:, 0] + rng.normal(size=1200) > 0).astype(int)]
    model = bd.BayesianClassifier(**QUICK | {"epochs": 2}, random_state=0).fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="call calibrate"):
        model.predict_set(X)
    sets = model.calibrate(X[100:600], y[100:600]).predict_set(X[600:], level=0.8)
    own = sets[np.arange(600), np.searchsorted(model.classes_, y[600:])]
    assert abs(own.mean() - 0.8) < 0.07
    assert np.array_equal(sets, model.predict_set(X[600:], level=0.8))
    with pytest.raises(ValueError, match="y must hold classes of the fit, got 'other'"):
        model.calibrate(X[:2], ["low", "other"])


def test_intervals_come_through_a_pipeline(noisy):
    X, y = noisy
    pipe = make_pipeline(StandardScaler(), bd.BayesianRegressor(**QUICK, random_state=0))
    pipe.fit(X[:100], y[:100])
    low, high = pipe[-1].predict_interval(pipe[:-1].transform(X[:5]))
    mean, std = pipe.predict(X[:5], return_std=True)
    assert (low < mean).all()
    assert (mean < high).all()
    assert (std > 0).all()
