"""A population of settings: how it is halved, averaged and written."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import bayesdiv as bd
from bayesdiv.app.cli import tune as command
from bayesdiv.app.data.loading import load
from bayesdiv.app.data.splits import Part
from bayesdiv.app.experiment import Training, evaluate
from bayesdiv.app.tuning.population import LAST, SLOTS, Paced, population, shares_of
from tests.command import call

QUICK = Training(epochs=8, samples=1, hidden=(8,), test_samples=20, learning_rate=0.02)


@pytest.fixture(scope="module")
def diabetes():
    return load("diabetes")


@pytest.fixture(scope="module")
def grown(diabetes):
    return population(diabetes, bd.JSG(0.3), QUICK, trials=12)


def test_the_worse_half_goes_and_the_given_settings_come_first(grown):
    assert grown.tried[0].settings["alpha"] == 0.3
    assert grown.tried[0].settings["learning_rate"] == 0.02
    ended = [trial for trial in grown.tried if trial.state == "complete"]
    assert len(grown.tried) == 12
    assert len(ended) == LAST
    assert grown.best.value == min(trial.value for trial in ended)
    assert grown.experiment.training.members == SLOTS
    assert sum(grown.shares.values()) == pytest.approx(1, abs=0.01)


def test_a_population_predicts_better_than_its_worst_trial_and_repeats(grown, diabetes):
    own = evaluate(grown.experiment, diabetes, diabetes.validation)["nll"]
    assert own < max(trial.value for trial in grown.tried if trial.value is not None)
    assert population(diabetes, bd.JSG(0.3), QUICK, trials=12).shares == grown.shares


def test_the_test_part_has_no_say(grown, diabetes):
    hidden = replace(diabetes, test=Part(diabetes.test.x, 1e3 + diabetes.test.y))
    assert population(hidden, bd.JSG(0.3), QUICK, trials=12).tried == grown.tried


def test_each_trial_steps_as_adam_with_its_own_rate():
    torch.manual_seed(0)
    weights, rates = torch.randn(3, 5), torch.tensor([1e-3, 1e-2, 0.1])
    stack = torch.nn.Parameter(weights.clone())
    paced = Paced([stack], 0.01, rates)
    alone = [torch.nn.Parameter(row.clone()) for row in weights]
    others = [torch.optim.Adam([p], lr=r) for p, r in zip(alone, rates.tolist(), strict=True)]
    for _ in range(20):
        for optimizer in (paced, *others):
            optimizer.zero_grad()
        (stack.sin() + stack**2).sum().backward()
        torch.stack([(p.sin() + p**2).sum() for p in alone]).sum().backward()
        for optimizer in (paced, *others):
            optimizer.step()
    torch.testing.assert_close(stack.detach(), torch.stack([p.detach() for p in alone]))


def test_shares_are_half_equal_and_half_the_likeliest():
    each = np.random.default_rng(0).normal(size=(3, 40)) + np.array([[0.0], [0.4], [-1.0]])

    def nll(raw):
        weights = np.exp(raw) / np.exp(raw).sum()
        return -np.log(weights @ np.exp(each)).mean()

    raw = minimize(nll, np.zeros(3), tol=1e-10).x
    wanted = np.exp(raw) / np.exp(raw).sum()
    found = shares_of(torch.from_numpy(each)).numpy()
    np.testing.assert_allclose(found, (wanted + 1 / 3) / 2, atol=0.01)


def test_a_population_of_one_is_the_given_setting_moved_into_its_range(tmp_path, capsys):
    quick = ["--epochs", "2", "--hidden", "4", "--samples", "1", "--test_samples", "4"]
    out = ["--trials", "1", "--strength", "500", "--out", str(tmp_path / "one")]
    assert call("tune", "diabetes", "--divergence", "JSG:0.3", *out, *quick) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "strength is 500, outside its range: the search starts with" in said
    assert (tmp_path / "one" / "run" / "metrics.json").exists()


def test_tune_leaves_a_run_that_predicts_what_it_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = ["--epochs", "4", "--hidden", "8", "--samples", "1", "--test_samples", "20"]
    assert call("tune", "diabetes", "--divergence", "JSG:0.3", "--trials", "10", *quick) == 0
    out = capsys.readouterr().out
    assert "prior gain" in out
    assert "bayesdiv predict tunings/diabetes-JSG/run new.csv" in out
    told = json.loads(Path("tunings/diabetes-JSG/result.json").read_text())
    metrics = json.loads(Path("tunings/diabetes-JSG/run/metrics.json").read_text())
    assert metrics["test"] == told["test"]["population"]
    assert call("evaluate", "tunings/diabetes-JSG/run") == 0
    assert f"{metrics['test']['nll']:.3f}" in capsys.readouterr().out
    assert call("tune", "diabetes", "--divergence", "JSG:0.3", "--trials", "6", *quick) == 2
    assert "holds the results of a population" in capsys.readouterr().err
    optuna = ["--divergence", "JSG:0.3", "--search", "optuna", "--trials", "1"]
    assert call("tune", "diabetes", *optuna, *quick) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "tunings/diabetes-JSG holds the results of a population: choose another --out" in said
    assert json.loads(Path("tunings/diabetes-JSG/result.json").read_text()) == told


def test_a_population_leaves_a_search_by_optuna_alone(tmp_path, capsys):
    (tmp_path / "search.db").touch()
    assert call("tune", "diabetes", "--out", tmp_path) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith(
        f"{tmp_path} holds the results of a search by Optuna: choose another --out"
    )


@pytest.mark.parametrize(
    ("step", "finished", "sentence"),
    [
        ("population", False, "a population does not resume: the same command starts again in {}"),
        ("_table", True, "the run is finished, {}/run; to start again, choose another --out"),
    ],
)
def test_a_stopped_population_does_not_promise_to_resume(
    grown, step, finished, sentence, tmp_path, monkeypatch, capsys
):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "population", lambda *_, **__: grown)
    monkeypatch.setattr(command, step, stop)
    folder = tmp_path / "[t]"
    assert call("tune", "diabetes", "--out", folder, "--epochs", "2", "--hidden", "8") == 130
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith(f"bayesdiv: stopped; {sentence.format(folder)}")
    assert (folder / "run" / "metrics.json").exists() == finished


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--search", "grid"], "search must be one of "),
        (["--storage", "s.db"], "tune has no option --storage"),
        (
            ["--divergence", "KL", "--alpha_range", "0", "1"],
            "KL has no alpha to search: leave out --alpha_range",
        ),
        (["--divergence", "deterministic"], "tune needs a divergence, got deterministic: give one"),
        (
            ["--alpha_range", "0", "2"],
            "alpha_range has a wrong end: alpha must lie in [0, 1]",
        ),
    ],
)
def test_what_a_population_cannot_do_is_said(options, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("tune", "diabetes", *options) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("tunings").exists()
