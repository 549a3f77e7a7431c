"""Run folders: one writer at a time, nothing written through a link, nothing damaged is used."""

import json
import os
import shutil
import socket
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import bayesdiv as bd
from bayesdiv import saving
from bayesdiv.app import runs
from bayesdiv.app import training as trainings
from bayesdiv.training.best import Best
from hostile import QUICK

HERE = socket.gethostname()
TRAIN = ("train", "numbers.csv", "--out", "new", *QUICK)


# One writer ----------------------------------------------------------------------------------


def test_a_second_writer_is_refused_with_the_name_of_the_first(place, refused):
    with runs.owned(Path("new")):
        said = refused(*TRAIN)
    assert f"new is being written by process {os.getpid()}: wait for its end" in said
    assert list(Path("new").iterdir()) == []


def test_of_many_writers_at_once_one_wins(tmp_path):
    inside, most, errors = [], [], []
    start = threading.Barrier(8)

    def write():
        start.wait()
        try:
            with runs.owned(tmp_path / "run"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()
        except runs.RunError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) + len(errors) == 8
    # "process 123", or "another process" before the owner has written down which it is.
    assert all("is being written by" in error for error in errors)


def test_the_lock_of_a_killed_owner_is_taken_over(tmp_path):
    folder = tmp_path / "run"
    child = os.fork()
    if child == 0:
        owned = runs.owned(folder)
        owned.__enter__()
        os._exit(9)  # without giving it up, as a killed process
    os.waitpid(child, 0)
    assert json.loads((folder / runs.LOCK).read_text()) == {"pid": child, "host": HERE}
    (folder / ".weights.safetensors.0123.part").write_text("half")
    with runs.owned(folder):
        assert json.loads((folder / runs.LOCK).read_text())["pid"] == os.getpid()
        assert [path.name for path in folder.iterdir()] == [runs.LOCK]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{}", "[1]", "3", "{", '{"pid": "x"}', '{"pid": -5}'])
def test_a_lock_that_names_nobody_is_taken_over(tmp_path, content):
    (tmp_path / runs.LOCK).write_text(content)
    with runs.owned(tmp_path):
        pass


def test_the_lock_of_another_machine_is_not_taken_over(tmp_path):
    (tmp_path / runs.LOCK).write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    with pytest.raises(runs.RunError, match=r"process 1 on elsewhere: .* remove .*lock if it"):
        runs.owned(tmp_path).__enter__()


# Links ---------------------------------------------------------------------------------------


def test_nothing_is_written_through_a_link(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "shared"
    folder.mkdir()
    monkeypatch.setattr(saving.secrets, "token_hex", lambda _: "known")
    for name in (".settings.json.part", ".settings.json.known.part", runs.HISTORY, runs.LOCK):
        (folder / name).symlink_to(victim)
    with pytest.raises(runs.RunError, match="could not be written"):
        runs.write_json(folder / "settings.json", {})
    with pytest.raises(runs.RunError, match="could not be written"):
        runs.append_history(folder, {"epoch": 1})
    with pytest.raises(runs.RunError, match="could not be written"):
        runs.owned(folder).__enter__()
    monkeypatch.undo()
    runs.write_json(folder / "settings.json", {})
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["settings.json", "weights.safetensors", "history.jsonl"])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(place, refused, name):
    Path("one", name).unlink()
    os.mkfifo(Path("one", name))
    assert "must be an ordinary file" in refused("show", "one")


# Weights and settings ------------------------------------------------------------------------


def predict(refused):
    said = refused("predict", "one", "numbers.csv", "-o", "out.csv")
    assert not Path("out.csv").exists()
    return said


@pytest.mark.parametrize("name", ["weights.safetensors", "settings.json"])
def test_weights_with_the_settings_of_another_run_are_refused(place, refused, name):
    shutil.copy(f"two/{name}", f"one/{name}")
    assert "does not fit the settings beside it" in predict(refused)


def test_every_changed_byte_of_weights_is_noticed(place, refused):
    path = Path("one/weights.safetensors")
    whole = path.read_bytes()
    for at in range(len(whole) - 8, len(whole) // 4, -len(whole) // 8):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert "damaged" in predict(refused)


def resaved(path, change):
    """The same file with other tensors, and a checksum that fits them."""
    from safetensors.torch import save

    tensors, told = runs._read(path)
    change(tensors)
    said = json.dumps(told)
    metadata = {"bayesdiv": said, "checksum": runs._checksum(tensors, said)}
    path.write_bytes(save(tensors, metadata=metadata))


def with_nan(tensors):
    next(iter(tensors.values())).view(-1)[0] = torch.nan


def test_weights_that_are_nan_are_refused(place, refused):
    resaved(Path("one/weights.safetensors"), with_nan)
    assert "holds NaN or infinite numbers; train again" in predict(refused)


@pytest.mark.parametrize("damage", ["flip", "nan"])
def test_a_damaged_checkpoint_is_refused(place, refused, monkeypatch, damage):
    def after(self, epoch, validation, whole=trainings.Keeper.after):
        whole(self, epoch, validation)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainings.Keeper, "after", after)
        refused(*TRAIN, code=130)
    path = Path("new/checkpoint.safetensors")
    content = path.read_bytes()
    if damage == "flip":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 64]) + content[-8:])
    else:
        resaved(path, with_nan)
    assert "checkpoint.safetensors is damaged" in refused(*TRAIN)
    assert not Path("new/metrics.json").exists()


def test_a_training_whose_validation_is_never_a_number_is_no_finished_run(
    place, refused, monkeypatch
):
    monkeypatch.setattr(trainings, "evaluate", lambda *_: {"nll": float("nan")})
    assert "the validation NLL was not finite after any epoch" in refused(*TRAIN)
    assert not Path("new/metrics.json").exists()
    assert not Path("new/weights.safetensors").exists()


# Steps that break the weights ----------------------------------------------------------------


class BreaksLast:
    """A step whose gradient is NaN in the last update alone."""

    def __init__(self, last, rows=slice(None)):
        self.last, self.rows = last, rows

    def __call__(self, loss_of, batch, optimizer, backward):
        self.last -= 1
        loss = bd.Eager()(loss_of, batch, optimizer, backward)
        if self.last == 0:
            with torch.no_grad():
                optimizer.param_groups[0]["params"][0][self.rows] = torch.nan
        return loss


def problem():
    torch.manual_seed(0)
    x = torch.randn(20, 2)
    return x, x[:, 0], bd.bayesianize(nn.Linear(2, 1), bd.FanIn())


def test_fit_notices_weights_that_the_last_step_broke():
    x, y, net = problem()
    objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=20)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()])
    epochs = bd.fit(net, objective, bd.Batches(x, y, 10), optimizer, 3, step=BreaksLast(6))
    assert [next(epochs).number, next(epochs).number] == [1, 2]
    with pytest.raises(bd.Diverged, match=r"posterior\.loc is NaN or infinite after epoch 3"):
        next(epochs)


def test_the_trial_that_the_last_step_broke_is_marked():
    x, y, net = problem()
    both = bd.stacked([net, net])
    objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=20)
    optimizer = torch.optim.Adam([*both.parameters(), *objective.parameters()])
    batches = bd.Batches(x.expand(2, 20, 2), y.expand(2, 20), 10, [0, 1])
    *_, last = bd.fit(both, objective, batches, optimizer, 2, step=BreaksLast(4, 0))
    assert last.trials.nll.isnan().tolist() == [True, False]


@pytest.mark.parametrize("members", [1, 3])
def test_an_estimator_never_ends_with_weights_that_are_nan(monkeypatch, members):
    from bayesdiv.app.sklearn import tabular

    x, y, _ = problem()
    monkeypatch.setattr(tabular, "Eager", lambda: BreaksLast(2))
    model = bd.BayesianRegressor(epochs=2, members=members, random_state=0)
    with pytest.raises(bd.Diverged):
        model.fit(x.numpy(), y.numpy())


def test_an_estimator_never_keeps_untrained_weights(monkeypatch):
    from bayesdiv.app.sklearn import tabular

    x, y, _ = problem()
    monkeypatch.setattr(tabular.Parts, "nll", lambda *_: float("nan"))
    model = bd.BayesianRegressor(epochs=2, validation_fraction=0.2, random_state=0)
    with pytest.raises(bd.Diverged, match="was not finite after any epoch"):
        model.fit(x.numpy(), y.numpy())


def test_best_weights_without_a_finite_score_are_warned_of():
    best = Best(model=nn.Linear(1, 1))
    assert not best.after(1, float("nan"))
    with pytest.warns(UserWarning, match="none of 1 scores was finite"):
        assert best.restore() == 0
