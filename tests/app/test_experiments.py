"""One experiment from data to metrics, without the command line around it."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.app import experiment as experiments
from bayesdiv.app import runs
from bayesdiv.app import settings as run_settings
from bayesdiv.app import training as trainings
from bayesdiv.app.data.loading import load
from bayesdiv.app.data.splits import Part
from bayesdiv.app.experiment import Training
from bayesdiv.training.best import Best

QUICK = Training(epochs=3, test_samples=20)


@pytest.fixture(scope="module")
def diabetes():
    splits = load("diabetes")
    return splits, *trainings.train(splits, bd.JSA(0.3), QUICK)


def test_nll_in_original_units_is_the_normalised_one_plus_log_scale(diabetes):
    """Against densities of the targets themselves, as if nothing had been standardised."""
    splits, experiment, result = diabetes
    task, (x, y) = splits.task, splits.test
    each = experiment.predict(x).conditional  # (S, B), standardised
    own = Normal(task.to_units(each.mean), each.stddev * task.scale)
    density = own.log_prob(task.to_units(y)).logsumexp(0) - math.log(QUICK.test_samples)
    assert result["test"]["nll"] == pytest.approx(-density.mean().item(), rel=1e-5)


def test_rmse_is_in_the_units_of_the_target(diabetes):
    splits, experiment, result = diabetes
    x, y = splits.test
    off = splits.task.to_units(experiment.predict(x).mean) - splits.task.to_units(y)
    assert result["test"]["rmse"] == pytest.approx(off.square().mean().sqrt().item(), rel=1e-5)


def test_the_best_epoch_is_kept_and_every_loss_starts_alike(diabetes):
    splits, experiment, result = diabetes
    nlls = [line["validation_nll"] for line in experiment.history]
    assert result["best_epoch"] == 1 + nlls.index(min(nlls))
    recipe = experiment.recipe
    starts = [
        experiments.build(recipe, splits.task, divergence, experiment.training, 10).model.network
        for divergence in (bd.KL(), bd.JSG(0.1))
    ]
    assert torch.equal(starts[0].loc, starts[1].loc)


def test_a_written_run_is_restored_with_the_same_predictions(tmp_path):
    splits = load("breast_cancer")
    training = Training(epochs=2, test_samples=5)
    experiment, _ = trainings.train(splits, bd.JSG(0.1), training, folder=tmp_path / "run")
    again, settings = run_settings.restore(tmp_path / "run")
    one, two = (e.predict(splits.test.x).probabilities for e in (experiment, again))
    assert torch.equal(one, two)
    assert settings["divergence"] == "JSG:0.1"
    assert again.divergence == bd.JSG(0.1)


@pytest.mark.parametrize("place", ["append_history", "state_of", "after"])
def test_a_stop_while_an_epoch_is_noted_loses_that_epoch_whole(tmp_path, monkeypatch, place):
    """Wherever Ctrl-C comes, the run goes on as if it had not: bit for bit."""
    splits, training = load("diabetes"), Training(epochs=4, test_samples=5)
    whole, result = trainings.train(splits, bd.KL(), training, folder=tmp_path / "whole")
    owners = {"append_history": runs, "state_of": trainings, "after": Best}
    owner = owners[place]
    original = getattr(owner, place)

    def stop(*arguments):
        found = original(*arguments)
        if len(runs.read_history(tmp_path / "parts")) == 2:  # the second epoch is being noted
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patch:
        patch.setattr(owner, place, stop)
        with pytest.raises(KeyboardInterrupt):
            trainings.train(splits, bd.KL(), training, folder=tmp_path / "parts")
    told = runs.load_state(tmp_path / "parts" / runs.CHECKPOINT, {})
    assert told["epoch"] == 1
    parts, again = trainings.train(splits, bd.KL(), training, folder=tmp_path / "parts")
    assert again["test"] == result["test"]
    assert again["best_epoch"] == result["best_epoch"]
    one, two = whole.model.state_dict(), parts.model.state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert [line["nll"] for line in parts.history] == [line["nll"] for line in whole.history]


def test_a_fingerprint_tells_any_row_of_any_part(diabetes):
    splits = diabetes[0]
    found = {run_settings.fingerprint(splits)}
    for name in ("train", "validation", "test"):
        for which in (0, 1):
            part = [rows.clone() for rows in getattr(splits, name)]
            part[which].view(-1)[-1] += 1e-3
            found.add(run_settings.fingerprint(replace(splits, **{name: Part(*part)})))
    assert len(found) == 7
    assert run_settings.fingerprint(load("diabetes")) in found
