"""Files of a run: written whole or not at all, and read without surprises."""

import copy
import errno
import io
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import bayesdiv as bd
from bayesdiv import saving
from bayesdiv.app import runs
from bayesdiv.app.runs import RunError


def model(width=4):
    torch.manual_seed(0)
    return bd.bayesianize(nn.Linear(3, width), bd.FanIn())


def trained(optimizer_of=torch.optim.Adam, **settings):
    """A model, an objective and an optimizer with a state."""
    net, objective = model(), bd.Objective(bd.Gaussian(), strength=bd.Constraint(0.1), num_data=5)
    optimizer = optimizer_of([*net.parameters(), *objective.parameters()], **settings)
    steps(net, objective, optimizer)
    return net, objective, optimizer


def states(**parts):
    return {name: part.state_dict() for name, part in parts.items()}


def steps(net, objective, optimizer, count=3):
    torch.manual_seed(1)
    for _ in range(count):
        optimizer.zero_grad()
        objective(net, torch.ones(5, 3), torch.ones(5, 4)).total.backward()
        optimizer.step()


def one_line(error):
    message = str(error.value)
    assert message
    assert "\n" not in message
    return message


# Whole or not at all -------------------------------------------------------------------------


def test_a_file_is_written_with_its_folder_and_nothing_else_is_left(tmp_path):
    runs.write(tmp_path / "new" / "file", b"content")
    runs.write(tmp_path / "new" / "file", b"other")
    assert (tmp_path / "new" / "file").read_bytes() == b"other"
    assert os.listdir(tmp_path / "new") == ["file"]


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["fsync", "open", "replace"])
def test_a_full_disk_is_one_sentence_and_keeps_the_old_file(tmp_path, monkeypatch, where):
    path = tmp_path / "weights.safetensors"
    net, _, optimizer = trained()
    runs.save_state(path, states(model=net, optimizer=optimizer), epoch=1)
    before = path.read_bytes()
    owner = {"fsync": os, "open": saving, "replace": Path}[where]
    monkeypatch.setattr(owner, where, full_disk, raising=False)
    with pytest.raises(RunError) as error:
        runs.save_state(path, states(model=net, optimizer=optimizer), epoch=2)
    monkeypatch.undo()
    assert one_line(error).endswith("No space left on device")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["weights.safetensors"]


def test_a_write_that_fails_half_way_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "metrics.json"
    runs.write_json(path, {"rmse": 1.0})

    class Half(io.BytesIO):
        def write(self, content):
            super().write(content[: len(content) // 2])
            full_disk()

    monkeypatch.setattr(saving, "open", lambda *_, **__: Half(), raising=False)
    with pytest.raises(RunError, match="No space left"):
        runs.write_json(path, {"rmse": 2.0})
    monkeypatch.undo()
    assert runs.read_json(path) == {"rmse": 1.0}


def test_an_interrupt_while_writing_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "settings.json"
    runs.write_json(path, [1])

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs.write_json(path, [2])
    monkeypatch.undo()
    assert runs.read_json(path) == [1]
    assert os.listdir(tmp_path) == ["settings.json"]


def test_a_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RunError) as error:
        runs.write_json(tmp_path / "run" / "settings.json", {})
    one_line(error)


# JSON ----------------------------------------------------------------------------------------


def test_json_comes_back_as_it_was(tmp_path):
    content = {"name": "größe", "values": [1, 0.1, None, True], "nested": {"a": []}}
    runs.write_json(tmp_path / "settings.json", content)
    assert runs.read_json(tmp_path / "settings.json") == content


@pytest.mark.parametrize("content", [b'{"a": 1', b"", b"\xff\xfe\x00broken", b"\x80\x04K\x01."])
def test_damaged_json_is_told_in_one_line(tmp_path, content):
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    with pytest.raises(RunError) as error:
        runs.read_json(path)
    assert one_line(error).startswith(f"{path} is damaged JSON (")
    assert one_line(error).endswith("): train the run again")


def test_a_missing_file_is_told_in_one_line(tmp_path):
    for read in (runs.read_json, lambda path: runs.load_state(path, {})):
        with pytest.raises(RunError) as error:
            read(tmp_path / "nothing")
        assert one_line(error).endswith("does not exist: is this a run's folder?")


# State ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer_of", "settings"),
    [
        (torch.optim.Adam, {"lr": 0.1}),
        (torch.optim.Adam, {"lr": torch.tensor(0.1)}),
        (torch.optim.AdamW, {"lr": 0.1, "amsgrad": True}),
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.RMSprop, {"lr": 0.1, "centered": True}),
        (torch.optim.NAdam, {"lr": 0.1}),
    ],
    ids=["adam", "tensor", "amsgrad", "plain", "momentum", "centred", "nadam"],
)
def test_state_restores_modules_and_optimizer_bit_for_bit(tmp_path, optimizer_of, settings):
    path = tmp_path / "checkpoint.safetensors"
    net, objective, optimizer = trained(optimizer_of, **settings)
    saved = states(model=net, objective=objective, optimizer=optimizer)
    runs.save_state(path, saved, epoch=7, note="a")
    again = trained(optimizer_of, **settings)
    steps(*again)
    told = runs.load_state(path, dict(zip(("model", "objective", "optimizer"), again, strict=True)))
    assert (told["epoch"], told["note"]) == (7, "a")
    steps(net, objective, optimizer)
    steps(*again)
    for one, two in zip((net, objective), again, strict=False):
        assert all(torch.equal(v, two.state_dict()[k]) for k, v in one.state_dict().items())
    assert torch.equal(net.p().scale, again[0].p().scale)


def test_state_without_an_optimizer_is_enough_to_predict(tmp_path):
    net, _, _ = trained()
    runs.save_state(tmp_path / "weights", states(model=net))
    other = model()
    runs.load_state(tmp_path / "weights", {"model": other})
    assert torch.equal(net.loc, other.loc)
    with pytest.raises(RunError) as error:
        runs.load_state(
            tmp_path / "weights",
            {"model": other, "optimizer": torch.optim.Adam(other.parameters())},
        )
    assert "does not fit this optimizer" in one_line(error)


def test_weights_laid_out_otherwise_are_saved_too(tmp_path):
    net = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 2, 4, 4)).sum().backward()
    optimizer.step()
    runs.save_state(tmp_path / "weights", states(model=net, optimizer=optimizer))
    other = nn.Conv2d(2, 3, 3)
    fresh = torch.optim.Adam(other.parameters())
    runs.load_state(tmp_path / "weights", {"model": other, "optimizer": fresh})
    assert torch.equal(net.weight, other.weight)


def test_saving_leaves_module_and_optimizer_alone(tmp_path):
    net, _, optimizer = trained()
    before = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    runs.save_state(tmp_path / "weights", states(model=net, optimizer=optimizer))
    assert all(torch.equal(v, net.state_dict()[k]) for k, v in before[0].items())
    assert optimizer.state_dict()["param_groups"] == before[1]["param_groups"]


def saved(tmp_path):
    path = tmp_path / "weights.safetensors"
    runs.save_state(path, states(model=model()))
    return path


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_weights_are_told_in_one_line(tmp_path, share):
    path = saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(RunError) as error:
        runs.load_state(path, {"model": model()})
    assert "is damaged or not a file of this library" in one_line(error)


def test_another_format_number_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "FORMAT", 99)
    path = saved(tmp_path)
    monkeypatch.undo()
    with pytest.raises(RunError) as error:
        runs.load_state(path, {"model": model()})
    assert "has format 99, and this version reads 3" in one_line(error)


def test_a_safetensors_file_of_others_is_told_in_one_line(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(RunError) as error:
        runs.load_state(tmp_path / "other.safetensors", {"model": model()})
    assert "is not of a run: give the folder that bayesdiv train wrote" in one_line(error)


@pytest.mark.parametrize("content", [b"a text\nof two lines\n", b"\x00" * 100, b"PK\x03\x04"])
def test_a_file_that_is_no_safetensors_is_told_in_one_line(tmp_path, content):
    (tmp_path / "weights").write_bytes(content)
    with pytest.raises(RunError) as error:
        runs.load_state(tmp_path / "weights", {"model": model()})
    assert "is damaged or not a file of this library" in one_line(error)


def test_a_folder_in_the_place_of_a_file_is_told_in_one_line(tmp_path):
    with pytest.raises(RunError) as error:
        runs.load_state(tmp_path, {"model": model()})
    one_line(error)


class Trap:
    """Unpickling this would call a function."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("way", ["pickle", "torch"])
def test_a_pickle_is_refused_and_never_loaded(tmp_path, way):
    path = tmp_path / "weights.safetensors"
    if way == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    else:
        torch.save({"trap": Trap()}, path)
    for read in (runs.read_json, lambda path: runs.load_state(path, {"model": model()})):
        with pytest.raises(RunError) as error:
            read(path)
        one_line(error)


@pytest.mark.parametrize("other", [lambda: model(width=5), lambda: nn.Linear(3, 4)])
def test_weights_that_do_not_fit_are_told_in_one_line(tmp_path, other):
    with pytest.raises(RunError) as error:
        runs.load_state(saved(tmp_path), {"model": other()})
    message = one_line(error)
    assert "does not fit this model" in message
    assert len(message) < 500


def test_a_part_that_was_not_saved_is_told_in_one_line(tmp_path):
    with pytest.raises(RunError) as error:
        runs.load_state(saved(tmp_path), {"objective": bd.Gaussian()})
    assert "does not fit this objective" in one_line(error)


def test_an_optimizer_of_other_groups_is_told_in_one_line(tmp_path):
    net, _, optimizer = trained()
    path = tmp_path / "checkpoint"
    runs.save_state(path, states(model=net, optimizer=optimizer))
    few = torch.optim.Adam(net.parameters())
    with pytest.raises(RunError) as error:
        runs.load_state(path, {"model": net, "optimizer": few})
    assert "does not fit this optimizer" in one_line(error)


# History -------------------------------------------------------------------------------------


def test_history_is_read_as_it_was_appended(tmp_path):
    assert runs.read_history(tmp_path) == []
    lines = [{"epoch": k, "nll": 1 / k} for k in range(1, 5)]
    for line in lines:
        runs.append_history(tmp_path, line)
    assert runs.read_history(tmp_path) == lines
    assert runs.read_history(tmp_path, epochs=2) == lines[:2]


@pytest.mark.parametrize("rest", ['{"epoch": 3, "nl', "{", '{"epoch": 3, "note": "é', "\0\0\0"])
def test_history_survives_a_half_written_last_line(tmp_path, rest):
    lines = [{"epoch": 1}, {"epoch": 2}]
    for line in lines:
        runs.append_history(tmp_path, line)
    with (tmp_path / runs.HISTORY).open("ab") as file:
        file.write(rest.encode()[: -1 if "é" in rest else None])
    assert runs.read_history(tmp_path) == lines
    runs.start_history(tmp_path, runs.read_history(tmp_path, epochs=2))
    runs.append_history(tmp_path, {"epoch": 3})
    assert runs.read_history(tmp_path) == [*lines, {"epoch": 3}]


def test_a_history_line_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(RunError) as error:
        runs.append_history(tmp_path / "nowhere", {"epoch": 1})
    one_line(error)


def test_a_resumed_history_starts_at_the_state_that_was_saved(tmp_path):
    for epoch in (1, 2, 3):
        runs.append_history(tmp_path, {"epoch": epoch})
    runs.start_history(tmp_path, runs.read_history(tmp_path, epochs=2))
    assert runs.read_history(tmp_path) == [{"epoch": 1}, {"epoch": 2}]
    assert (tmp_path / runs.HISTORY).read_text() == '{"epoch": 1}\n{"epoch": 2}\n'


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    with runs.owned(tmp_path / "new" / "one") as folder:
        runs.write(folder / "file", b"content")
    with (
        pytest.raises(runs.RunError, match="x could not be written"),
        runs.owned(tmp_path / "new/one/file/x"),
    ):
        pass
