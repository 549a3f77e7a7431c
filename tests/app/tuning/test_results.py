"""What a search leaves in its folder."""

import json
import re

import optuna
import pytest

from bayesdiv.app.cli.tune import PAGE, draw
from bayesdiv.app.tuning.search import Search, tune


def objective(trial: optuna.Trial) -> float:
    """Only one of two settings decides, and every third trial is pruned."""
    trial.suggest_float("idle", 0, 1)
    value = trial.suggest_float("decides", 1e-3, 1, log=True)
    trial.report(77.0, 1)
    if trial.number % 3 == 2:
        raise optuna.TrialPruned
    return value


def drawn(search, folder):
    """The specifications of the charts of a search, by their titles, and the page."""
    tune(objective, search)
    draw(search, folder)
    page = (folder / PAGE).read_text()
    found = re.findall(r"<figcaption><b>(.*?)</b>.*?json\">(.*?)</script>", page, re.S)
    return {title: json.loads(spec) for title, spec in found}, page


def test_finished_trials_are_drawn_over_each_setting_with_their_values(tmp_path):
    charts, page = drawn(Search(tmp_path / "study.db", trials=9), tmp_path)
    slice_ = charts["Slice over decides"]
    points = [(value["decides"], value["value"]) for value in slice_["values"]]
    assert len(points) == 6  # the pruned ones are left out
    assert [y for _, y in points] == pytest.approx([x for x, _ in points])
    assert slice_["log"] is True
    assert slice_["y"] == "validation NLL"
    assert "Importance" not in charts  # six trials are too few
    lines = charts["Parallel coordinates"]
    assert len(lines["values"]) * len(lines["names"]) == 6 * 3
    assert page.count("<td>pruned</td>") == 3
    best = [value for value in slice_["values"] if value["run"] == "best"]
    assert [value["value"] for value in best] == [pytest.approx(min(y for _, y in points))]


def test_the_setting_that_decides_alone_has_the_longest_bar(tmp_path):
    charts, _ = drawn(Search(tmp_path / "study.db", trials=18), tmp_path)
    bars = charts["Importance"]["values"]
    assert max(bars, key=lambda bar: bar["importance"])["setting"] == "decides"


def test_a_single_trial_is_drawn_without_a_word(tmp_path):
    charts, _ = drawn(Search(tmp_path / "study.db", trials=1), tmp_path)  # warnings are errors here
    assert len(charts["Slice over decides"]["values"]) == 1
