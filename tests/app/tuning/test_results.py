"""What a search leaves in its folder."""

import matplotlib
import optuna
import pytest
from matplotlib import pyplot

from bayesdiv.app.tuning.results import draw
from bayesdiv.app.tuning.search import Search
from bayesdiv.app.tuning.workers import tune


def objective(trial: optuna.Trial) -> float:
    """Only one of two settings decides, and every third trial is pruned."""
    trial.suggest_float("idle", 0, 1)
    value = trial.suggest_float("decides", 1e-3, 1, log=True)
    trial.report(77.0, 1)
    if trial.number % 3 == 2:
        raise optuna.TrialPruned
    return value


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, by the names of their files."""
    found = {}
    monkeypatch.setattr(
        "bayesdiv.app.plots.save", lambda figure, path: found.update({path.name: figure})
    )
    return found


def test_finished_trials_are_drawn_over_each_setting_with_their_values(tmp_path, figures):
    search = Search(tmp_path / "study.db", trials=9)
    tune(objective, search)
    before = dict(matplotlib.rcParams)
    draw(search, tmp_path, "validation NLL")
    panels = {axes.get_xlabel(): axes for axes in figures["search.png"].axes}
    points = panels["decides"].collections[0].get_offsets()
    assert len(points) == 6  # the pruned ones are left out
    assert [y for _, y in points] == pytest.approx([x for x, _ in points])
    assert panels["decides"].get_xscale() == "log"
    assert panels["decides"].get_ylabel() == "validation NLL"
    assert "importance.png" not in figures  # six trials are too few
    assert dict(matplotlib.rcParams) == before
    assert not pyplot.get_fignums()


def test_the_setting_that_decides_alone_has_the_longest_bar(tmp_path, figures):
    search = Search(tmp_path / "study.db", trials=18)
    tune(objective, search)
    draw(search, tmp_path, "validation NLL")
    (axes,) = figures["importance.png"].axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    widths = [bar.get_width() for bar in axes.patches]
    assert names[widths.index(max(widths))] == "decides"


def test_a_single_trial_is_drawn_without_a_word(tmp_path, figures):
    search = Search(tmp_path / "study.db", trials=1)
    tune(objective, search)
    draw(search, tmp_path, "validation NLL")  # a warning would be an error here
    assert len(figures["search.png"].axes[0].collections[0].get_offsets()) == 1
