"""One file for a model and what it is trained with: it comes back exactly, or it is refused."""

import json
import os
import stat
import struct

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.distributions import Categorical, Laplace, Normal
from torch.nn.utils import parametrizations, spectral_norm
from torch.optim import lr_scheduler

import bayesdiv as bd
from bayesdiv import calibration, outliers
from bayesdiv.saving import SavingError, replace
from bayesdiv.training.best import Best

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = X[:, 0] - X[:, 1]
SCHEDULES = {
    "steps": lambda o: lr_scheduler.MultiStepLR(o, [2, 5, 9], 0.5),
    "cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=40),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
}


def problem(kind="steps", seed=0):
    """A model with batch norm and a frozen part, a constrained objective, optimizer, schedule."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1))
    module[0].requires_grad_(False)
    net = bd.bayesianize(module, bd.FanIn(), where=lambda name, p: name.startswith("3"))
    objective = bd.Objective(bd.Gaussian(), num_data=24, strength=bd.Constraint(0.2))
    parameters = [p for p in [*net.parameters(), *objective.parameters()] if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    return net, objective, optimizer, SCHEDULES[kind](optimizer)


def train(parts, epochs, first=0):
    net, objective, optimizer, scheduler = parts
    batches = bd.Batches(X, Y, 8)
    list(
        bd.fit(net, objective, batches, optimizer, epochs, first=first, seed=1, schedule=scheduler)
    )
    return {**net.state_dict(), **objective.state_dict()}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_resumed_run_ends_exactly_where_it_would_have_ended(kind, tmp_path):
    wanted = train(problem(kind), 6)
    parts = problem(kind)
    train(parts, 3)
    bd.save(tmp_path / "run.safetensors", *parts)
    net, objective, optimizer, scheduler = other = problem(kind, seed=9)
    bd.load(tmp_path / "run.safetensors", net, objective, optimizer, scheduler)
    assert objective.epoch == 2
    found = train(other, 6, first=objective.epoch + 1)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(4, 4), spectral_norm(nn.Linear(4, 3))),
        lambda: parametrizations.orthogonal(nn.Linear(4, 3)),
        lambda: parametrizations.weight_norm(nn.Linear(4, 3)),
        lambda: nn.Conv2d(4, 3, 3).to(memory_format=torch.channels_last),
    ],
    ids=["spectral norm", "orthogonal", "weight norm", "channels last"],
)
@pytest.mark.parametrize(
    "posterior",
    [bd.MeanField, bd.LowRank(2), bd.Ensemble(2)],
    ids=["mean field", "low rank", "ensemble"],
)
def test_modules_and_posteriors_of_every_kind_come_back(make, posterior, tmp_path):
    net, other = (bd.bayesianize(make(), bd.AroundStart(), posterior=posterior) for _ in range(2))
    bd.save(tmp_path / "net", net)
    bd.load(tmp_path / "net", into=other)
    for one, two in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(one, two)


def test_the_best_weights_of_a_module_with_an_old_spectral_norm_are_put_back():
    net = bd.bayesianize(spectral_norm(nn.Linear(4, 3)), bd.FanIn())
    best = Best(model=net)
    assert best.restore() == 0


def test_weights_with_two_names_are_written_once(tmp_path):
    model = nn.Sequential(nn.Linear(50, 50), nn.Linear(50, 50))
    model[1].weight = model[0].weight
    bd.save(tmp_path / "tied", model)
    assert (tmp_path / "tied").stat().st_size < 1.5 * 50 * 50 * 4
    with torch.no_grad():
        model[0].weight.zero_()
    again = nn.Sequential(nn.Linear(50, 50), nn.Linear(50, 50))
    bd.load(tmp_path / "tied", into=again)
    assert torch.equal(again[0].weight, again[1].weight)
    assert again[0].weight.any()


def test_a_square_and_its_transposed_view_are_two(tmp_path):
    model, other = (nn.Linear(3, 3) for _ in range(2))
    for one in (model, other):
        one.register_buffer("turned", one.weight.detach().T)
    bd.save(tmp_path / "net", model)
    bd.load(tmp_path / "net", into=other)
    assert torch.equal(other.turned, model.turned)


def test_a_part_of_a_larger_tensor_is_written_alone(tmp_path):
    module = nn.Linear(4, 3)
    module.weight = nn.Parameter(torch.zeros(1000, 4)[:3])
    bd.save(tmp_path / "part", module)
    assert (tmp_path / "part").stat().st_size < 2000


def test_the_header_can_be_read_without_the_library(tmp_path):
    net, objective, *_ = problem()
    bd.save(tmp_path / "net", net, objective)
    with safe_open(tmp_path / "net", "pt") as file:
        head = json.loads(file.metadata()["bayesdiv"])
        assert torch.equal(file.get_tensor("model/posterior.loc"), net.loc)
    assert head["version"] == bd.__version__
    assert head["layout"] == [[["3.weight"], [1, 6], []], [["3.bias"], [1], []]]
    assert head["prior"] == ["Prior of Normal"]
    assert head["likelihood"] == "Gaussian"
    assert stat.S_IMODE((tmp_path / "net").stat().st_mode) & stat.S_IRUSR


# What is refused ---------------------------------------------------------------------------------


def refused(match, path, *parts):
    """The error, of one sentence, after which nothing has changed."""
    before = {key: value.clone() for key, value in parts[0].state_dict().items()}
    with pytest.raises(SavingError, match=match) as told:
        bd.load(path, *parts)
    assert "\n" not in str(told.value)
    assert all(torch.equal(value, before[key]) for key, value in parts[0].state_dict().items())


def test_another_model_is_refused_by_what_differs(tmp_path):
    path = tmp_path / "net"
    prior = bd.Prior(Normal, loc=0.0, scale=1.0)
    bd.save(path, bd.bayesianize(nn.Linear(4, 3), prior), bd.Objective(bd.Gaussian(), num_data=4))
    other = bd.bayesianize(nn.Linear(4, 2), prior)
    shapes = r"weight of shape \(3, 4\) in place of weight of shape \(2, 4\)"
    refused(f"another layout, {shapes}: make the model as", path, other)
    refused(r"another layout, weight of shape \(3, 4\) in place of nothing", path, nn.Linear(4, 3))
    heavy = bd.bayesianize(nn.Linear(4, 3), bd.Prior(Laplace, loc=0.0, scale=1.0))
    refused("another prior, Prior of Normal in place of Prior of Laplace", path, heavy)
    point = bd.bayesianize(nn.Linear(4, 3), prior, posterior=bd.Point)
    refused("another posterior, MeanField in place of Point", path, point)
    like, objective = bd.bayesianize(nn.Linear(4, 3), prior), bd.Objective(bd.Classes(), num_data=4)
    refused("another likelihood, Gaussian in place of Classes", path, like, objective)
    double = bd.bayesianize(nn.Linear(4, 3), prior).double()
    refused(r"posterior.loc is float32 of shape \(15,\) in the file and float64", path, double)


def test_a_state_that_is_not_there_or_does_not_fit_is_refused(tmp_path):
    net, objective, optimizer, scheduler = problem()
    bd.save(tmp_path / "alone", net)
    refused("holds no state of the optimizer", tmp_path / "alone", net, None, optimizer)
    bd.save(tmp_path / "net", net, objective, optimizer, scheduler)
    fewer = torch.optim.Adam(list(net.posterior.parameters()))
    refused(
        r"groups of \[6\] parameters in the file, of \[2\] here", tmp_path / "net", net, None, fewer
    )
    other = torch.optim.SGD(optimizer.param_groups[0]["params"], lr=0.1)
    kind = type(optimizer).__name__
    told = f"another optimizer, {kind} in place of SGD: make the optimizer as"
    refused(told, tmp_path / "net", net, None, other)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda content: content[:-5], "is damaged"),
        (lambda content: b"", "is damaged"),
        (lambda content: b"no tensors, but text", "is damaged"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "its checksum is wrong"),
        (lambda content: struct.pack("<Q", 1 << 40) + content[8:], "is damaged"),
    ],
)
def test_a_damaged_file_is_refused(damage, match, tmp_path):
    net, path = problem()[0], tmp_path / "net"
    bd.save(path, net)
    path.write_bytes(damage(path.read_bytes()))
    refused(match, path, net)


def test_files_that_are_missing_foreign_or_of_another_version_are_refused(tmp_path):
    net, path = problem()[0], tmp_path / "net"
    refused("does not exist", path, net)
    refused("is damaged or no safetensors file", tmp_path, net)
    save_file({"a": torch.ones(1)}, path)
    refused("was not written by bd.save", path, net)
    head = {"bayesdiv": json.dumps({"format": 99, "version": "9.0.0"})}
    save_file({"a": torch.ones(1)}, path, head)
    refused("was written by bayesdiv 9.0.0 in format 99", path, net)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    net, path = problem()[0], tmp_path / "net"
    bd.save(path, net)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SavingError, match=r"could not be written: .*No space left"):
        bd.save(path, net)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["net"]


def test_what_only_pickle_could_hold_is_refused(tmp_path):
    class Odd:
        def state_dict(self):
            return {"hook": print}

    with pytest.raises(SavingError, match="scheduler/hook is a builtin_function_or_method"):
        bd.save(tmp_path / "net", nn.Linear(2, 1), scheduler=Odd())
    assert not os.listdir(tmp_path)


def fitted(seed=0):
    """One of each kind of calibration, by numbers that no default has."""
    generator = torch.Generator().manual_seed(seed)
    numbers = bd.Predictive(Normal(torch.randn(3, 40, generator=generator), 0.7))
    classes = bd.Predictive(Categorical(logits=torch.randn(3, 40, 4, generator=generator)))
    y, label = torch.randn(40, generator=generator), torch.arange(40) % 4
    return (
        calibration.Spread(0.6),
        calibration.Temperature.fit(classes, label),
        calibration.Intervals.fit(numbers, y, 0.8, score=calibration.Quantiles()),
        calibration.Intervals.fit(numbers, y, 0.99),  # an infinite threshold
        calibration.Sets.fit(classes, label, groups=label),
        outliers.Threshold.fit(torch.rand(40, generator=generator)),
    )


def test_a_calibration_comes_back_with_its_model(tmp_path):
    net = problem()[0]
    bd.save(tmp_path / "net", net, calibration=fitted())
    again = bd.load(tmp_path / "net", into=problem()[0])
    assert [saved.state() for saved in again] == [saved.state() for saved in fitted()]
    new = bd.Predictive(Normal(torch.linspace(-1, 1, 5).expand(2, 5), 0.3))
    for one, two in zip(again[2:4], fitted()[2:4], strict=True):
        assert all(map(torch.equal, one(new), two(new)))
    bd.save(tmp_path / "bare", net)
    assert bd.load(tmp_path / "bare", into=problem()[0]) == ()


def test_a_changed_digit_of_a_calibration_is_noticed(tmp_path):
    path = tmp_path / "net"
    bd.save(path, problem()[0], calibration=[calibration.Temperature(1.25)])
    content = path.read_bytes()
    assert content.count(b"1.25") == 1
    path.write_bytes(content.replace(b"1.25", b"1.75"))
    with pytest.raises(SavingError, match="its checksum is wrong"):
        bd.load(path, into=problem()[0])


def test_a_failed_write_leaves_the_earlier_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "net.pt2"
    path.write_bytes(b"earlier")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bayesdiv.saving.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace(path, b"later")
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_written_through_a_link_that_waits_for_it(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".net.part").symlink_to(victim)
    (tmp_path / "net").symlink_to(victim)
    bd.save(tmp_path / "net", problem()[0])
    assert victim.read_text() == "mine"
    assert not (tmp_path / "net").is_symlink()
