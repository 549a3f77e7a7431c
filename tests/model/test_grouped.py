"""One posterior per group of tensors: the same losses and gradients as with one vector for all."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.utils.checkpoint import checkpoint

import bayesdiv as bd
from bayesdiv.model.bayesian import bayesian_modules

X, Y = torch.randn(6, 4), torch.tensor([0, 2, 1, 1, 0, 2])


class Net(nn.Module):
    """Tied weights, a norm, an ordinary parameter and a part that is recomputed."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 3)
        self.shift = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        x = checkpoint(self.first, x, use_reentrant=False).tanh()
        return self.head(self.norm(self.second(x))) + self.shift


BY = {"tensor": str, "layer": lambda name: name.partition(".")[0], "all": lambda name: "all"}
every_way = pytest.mark.parametrize("by", BY.values(), ids=BY)


def made(by=None, prior=None):
    torch.manual_seed(0)
    where = lambda name, _: name != "shift"  # noqa: E731
    return bd.bayesianize(Net(), prior or bd.FanIn(1.4), where=where, by=by)


def without_checkpoint(net, x):
    return net.head(net.norm(net.second(net.first(x).tanh()))) + net.shift


def as_one_vector(grouped, one, weights):
    """The draws of a grouped network in the order of one vector."""
    tensors = {}
    for part, own in zip(bayesian_modules(grouped), weights, strict=True):
        cut = own.split(part.layout.sizes, -1)
        tensors |= {e.names[0]: p for e, p in zip(part.layout.entries, cut, strict=True)}
    return torch.cat([tensors[entry.names[0]] for entry in one.layout.entries], -1)


def by_tensor(net, attribute):
    found = {}
    for part in bayesian_modules(net):
        flat = getattr(part.posterior, attribute).grad.flatten()
        found |= part.layout.unflatten(flat)
    return found


@every_way
@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=str)
@pytest.mark.parametrize("over", [bd.Looped(), bd.Vectorized()], ids=str)
def test_losses_and_gradients_are_those_of_one_vector(by, divergence, over):
    grouped, one = made(by), made()
    if over == bd.Vectorized():  # which cannot recompute
        for net in (grouped, one):
            net.module.forward = partial(without_checkpoint, net.module)
    objective = bd.Objective(bd.Classes(), divergence, num_data=6, over=over)
    torch.manual_seed(1)
    weights = bd.draw_weights(grouped, 3)
    flat = as_one_vector(grouped, one, weights)
    with torch.no_grad():  # leaves, so that the gradients by the draws can be compared
        given, whole = [w.clone().requires_grad_() for w in weights], flat.clone().requires_grad_()
    found = objective.given(grouped, tuple(given), X, Y)
    wanted = objective.given(one, (whole,), X, Y)
    torch.testing.assert_close(found, wanted)
    found.total.backward()
    wanted.total.backward()
    torch.testing.assert_close(as_one_vector(grouped, one, [g.grad for g in given]), whole.grad)
    torch.testing.assert_close(grouped.module.shift.grad, one.module.shift.grad)
    for attribute in ("loc", "rho"):
        ours, theirs = by_tensor(grouped, attribute), by_tensor(one, attribute)
        assert ours.keys() == theirs.keys()
        for name in theirs:
            torch.testing.assert_close(ours[name], theirs[name])


@every_way
@pytest.mark.parametrize("samples", [1, 3])
def test_a_grouped_network_trains_predicts_and_is_saved(by, samples, tmp_path):
    net = made(by, bd.AroundStart())
    objective = bd.Objective(bd.Classes(), num_data=6, samples=samples)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.05)
    losses = [e.loss.nll for e in bd.fit(net, objective, bd.Batches(X, Y, 6), optimizer, 20)]
    assert losses[-1] < losses[0]
    assert bd.predict(net, objective.likelihood, X, 5).samples == 5
    bd.save(tmp_path / "net", net, objective, optimizer)
    again = made(by, bd.AroundStart())
    bd.load(tmp_path / "net", into=again)
    copied = copy.deepcopy(net)
    with bd.at_mean(net), bd.at_mean(again), bd.at_mean(copied):
        assert torch.equal(net(X), again(X))
        assert torch.equal(net(X), copied(X))
    assert not torch.equal(net(X), net(X))


@every_way
def test_its_plain_module_is_the_original_s_kind(by):
    net = made(by)
    back = bd.plain(net)
    assert type(back) is Net
    assert back.second.weight is back.first.weight
    torch.manual_seed(0)
    assert list(back.state_dict()) == list(Net().state_dict())
    with bd.at_mean(net):
        assert torch.equal(net(X), back(X))
    weights = bd.draw_weights(net, 1)
    wanted = bd.draws(net, X, weights)[0]
    torch.testing.assert_close(bd.plain(net, weights)(X), wanted)


def test_gaussians_of_one_tensor_have_its_shape_for_optimizers_that_look_at_it():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    net = bd.bayesianize(module, bd.FanIn(), by=str)
    shapes = {name: tuple(part.posterior.loc.shape) for name, part in net.groups.items()}
    assert shapes == {"0/weight": (8, 4), "0/bias": (8,), "2/weight": (3, 8), "2/bias": (3,)}
    matrices = [p for p in net.parameters() if p.dim() == 2]
    muon = torch.optim.Muon(matrices, lr=0.02)
    rest = torch.optim.Adafactor([p for p in net.parameters() if p.dim() < 2], lr=0.02)
    objective = bd.Objective(bd.Classes(), num_data=6, strength=0.1)
    before = objective(net, X, Y).total.item()
    for _ in range(30):
        net.zero_grad()
        objective(net, X, Y).total.backward()
        muon.step()
        rest.step()
    assert objective(net, X, Y).total.item() < before


class Odd(nn.Module):
    """A weight without an axis, and one without numbers."""

    def __init__(self):
        super().__init__()
        self.layer, self.factor = nn.Linear(4, 1), nn.Parameter(torch.tensor(2.0))
        self.empty = nn.Parameter(torch.zeros(0, 3))

    def forward(self, x):
        return self.factor * self.layer(x)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSA(0.3), bd.JSG(0.3)], ids=repr)
def test_a_weight_without_an_axis_or_without_numbers_is_a_group_too(divergence):
    net = bd.bayesianize(Odd(), bd.FanIn(), by=str)
    with bd.at_mean(net):
        assert torch.equal(net(X), 2 * (X @ net.groups["layer/weight"].loc[:, None] + bias(net)))
    loss = bd.Objective(bd.Gaussian(), divergence, num_data=6)(net, X, torch.zeros(6))
    whole = [part for part in net.groups.values() if part.loc.numel()]
    wanted = sum(divergence(part.q(), part.p()).sum().item() for part in whole)
    assert loss.divergence.item() == pytest.approx(wanted, rel=1e-5)
    loss.total.backward()
    assert net.groups["factor"].posterior.loc.grad.isfinite().all()


def bias(net):
    return net.groups["layer/bias"].loc


def test_a_filter_with_channels_last_keeps_its_order():
    torch.manual_seed(0)
    conv, x = nn.Conv2d(3, 2, 3).to(memory_format=torch.channels_last), torch.randn(2, 3, 5, 5)
    net = bd.bayesianize(conv, bd.FanIn(), by=str)
    assert net.groups["weight"].posterior.loc.shape == (2, 3, 3, 3)
    with bd.at_mean(net):
        assert torch.equal(net(x), conv(x))


def test_a_prior_for_all_weights_cannot_be_parted():
    with pytest.raises(ValueError, match="one number for all or one per weight, 16, got 43"):
        made(str, bd.Prior(Normal, loc=0.0, scale=torch.ones(43)))


def test_grouped_networks_are_not_stacked():
    with pytest.raises(ValueError, match="make them without by="):
        bd.stacked([made(str), made(str)])
    with pytest.raises(ValueError, match="must not be Bayesian already"):
        bd.bayesianize(made(str), bd.FanIn())


def test_a_group_takes_the_dtype_of_its_weights():
    net = made(lambda name: name.partition(".")[0]).double()
    assert net(X.double()).dtype == net.dtype == torch.float64
    assert net.device == torch.device("cpu")
