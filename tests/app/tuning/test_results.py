"""What a search leaves in its folder."""

import pytest

from bayesdiv.app.tuning.results import draw
from bayesdiv.app.tuning.search import Search, Tried
from bayesdiv.app.tuning.study import importance
from bayesdiv.app.tuning.workers import tune

MATTERS = {"strength": 0.8, "alpha": 0.2}


def tried_with(values: list[float], state: str = "complete") -> list[Tried]:
    """Trials with these values, at settings that lie on no line."""
    settings = [{"alpha": (k * 0.37) % 1, "strength": 10.0 ** (k % 3)} for k in range(len(values))]
    return [Tried(k, settings[k], value, state, "", 1.0, None) for k, value in enumerate(values)]


def test_a_search_is_drawn_over_each_setting_with_the_value_of_each_finished_trial():
    values = [5.4 + 0.01 * k for k in range(12)]
    pruned = tried_with([9.0] * 3, "pruned")
    figure = draw([*tried_with(values), *pruned], MATTERS, "nll", "")
    assert [axes.get_xlabel() for axes in figure.axes[:2]] == ["alpha", "strength"]
    assert [axes.get_xscale() for axes in figure.axes[:2]] == ["linear", "log"]
    points = figure.axes[0].collections[0].get_offsets().tolist()
    assert [x for x, _ in points] == pytest.approx([(k * 0.37) % 1 for k in range(12)])
    assert [y for _, y in points] == pytest.approx(values)


def test_the_last_panel_shows_how_much_each_setting_matters():
    bars = draw(tried_with([1.0, 2.0]), MATTERS, "nll", "").axes[2]
    assert [bar.get_width() for bar in bars.patches] == [0.8, 0.2]
    assert [text.get_text() for text in bars.texts] == ["0.80", "0.20"]


@pytest.mark.parametrize(("aim", "sign"), [("rmse", 1), ("accuracy", -1)])
def test_the_best_is_in_view_and_a_trial_far_off_is_counted_in_the_title(aim, sign):
    near = [sign * value for value in (5.4357951, 5.44, 5.45, 5.46)]
    for values, beyond in ((near, ""), ([*near, sign * 99.0], "1 far worse not shown")):
        figure = draw(tried_with(values), {}, aim, "")
        low, high = figure.axes[0].get_ylim()
        assert [low <= value <= high for value in values] == [True] * 4 + [False] * len(values[4:])
        assert beyond in figure.get_suptitle()


def test_the_setting_that_decides_alone_is_the_most_important(tmp_path):
    def objective(trial):
        trial.suggest_float("idle", 0, 1)
        return trial.suggest_float("decides", 0, 1)

    search = Search(tmp_path / "study.db", trials=15)
    tune(objective, search)
    assert max(importance(search).items(), key=lambda item: item[1])[0] == "decides"


def test_a_few_trials_say_nothing_about_importance(tmp_path):
    search = Search(tmp_path / "study.db", trials=3)
    tune(lambda trial: trial.suggest_float("x", 0, 1), search)
    assert importance(search) == {}
