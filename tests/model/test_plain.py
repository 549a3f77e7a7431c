"""The way back from a Bayesian module to an ordinary one, and what stands in it in between."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm
from torch.nn.utils.parametrizations import weight_norm

import bayesdiv as bd

ROWS, WORDS = torch.randn(5, 4), torch.tensor([[0, 3, 6], [1, 1, 5]])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x))


class WritesItsOwnState(nn.Linear):
    """As layers of PyG do."""

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination[prefix + "weight"] = self.weight if keep_vars else self.weight.data
        destination[prefix + "bias"] = self.bias if keep_vars else self.bias.detach()


MODULES = {
    "linear": (nn.Linear(4, 3), ROWS),
    "half": (nn.Linear(4, 3).bfloat16(), ROWS.bfloat16()),
    "tied": (Tied(), WORDS),
    "parametrised": (weight_norm(nn.Linear(4, 3)), ROWS),
    "orthogonal": (parametrizations.orthogonal(nn.Linear(4, 3)), ROWS),
    "hooked": (spectral_norm(nn.Linear(4, 3)), ROWS),
    "own state": (nn.Sequential(WritesItsOwnState(4, 3)), ROWS),
    "buffers": (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), ROWS),
    "lstm": (nn.LSTM(4, 3), ROWS),
}
every_module = pytest.mark.parametrize("name", MODULES)


def made(name):
    torch.manual_seed(0)
    module, x = MODULES[name]
    module = copy.deepcopy(module).eval()
    return module, bd.bayesianize(module, bd.FanIn()).eval(), x


def output(module, x):
    found = module(x)
    return found[0] if isinstance(found, tuple) else found


@every_module
def test_the_plain_module_is_the_one_that_it_was_made_of(name):
    module, net, x = made(name)
    back = bd.plain(net)
    assert type(back) is type(module) or "Parametrized" in type(back).__name__
    assert list(back.state_dict()) == list(module.state_dict())
    assert all(torch.equal(back.state_dict()[k], v) for k, v in module.state_dict().items())
    assert torch.equal(output(back, x), output(module, x))
    module.load_state_dict(back.state_dict())


@every_module
def test_a_draw_in_place_gives_what_the_network_gives_for_it(name):
    _, net, x = made(name)
    weights = bd.draw_weights(net, 1)
    wanted = output(lambda x: net.with_weights(weights[0][0], x), x)
    assert torch.allclose(output(bd.plain(net, weights), x), wanted, atol=1e-6)
    assert torch.allclose(output(bd.plain(net, weights[0][0]), x), wanted, atol=1e-6)


def test_a_plain_module_shares_nothing_and_keeps_ties_and_frozen_weights():
    _, net, _ = made("tied")
    back = bd.plain(net)
    assert back.head.weight is back.embed.weight
    with torch.no_grad():
        back.head.weight.zero_()
    assert net.loc.any()
    source = nn.Sequential(nn.Linear(4, 3).requires_grad_(False), nn.Linear(3, 1))
    net = bd.bayesianize(source, bd.FanIn())
    back = bd.plain(net)
    assert [p.requires_grad for p in back.parameters()] == [False, False, True, True]
    with torch.no_grad():
        back[0].weight.zero_()
    assert source[0].weight.any()


def test_every_bayesian_module_of_a_larger_one_is_replaced():
    model = nn.Sequential(
        bd.bayesianize(nn.Linear(4, 3), bd.FanIn()),
        nn.Tanh(),
        bd.bayesianize(nn.Linear(3, 1), bd.FanIn()),
    )
    back = bd.plain(model)
    assert [type(part) for part in back] == [nn.Linear, nn.Tanh, nn.Linear]
    with bd.at_mean(model):
        assert torch.equal(back(ROWS), model(ROWS))
    with pytest.raises(ValueError, match="one tensor per Bayesian module, 2, got 1"):
        bd.plain(model, torch.zeros(15))


def test_several_draws_and_stacks_have_no_single_plain_module():
    nets = [bd.bayesianize(nn.Linear(4, 3), bd.FanIn()) for _ in range(2)]
    draws, stack = bd.draw_weights(nets[0], 2), bd.stacked(nets)
    told = r"one draw of 15 weights, got shape \(2, 15\): pass a single draw, such as"
    with pytest.raises(ValueError, match=rf"{told} \[w\[:1\] for w in weights\]"):
        bd.plain(nets[0], draws)
    with pytest.raises(ValueError, match=rf"{told} weights\[:1\]"):
        bd.plain(nets[0], draws[0])
    with pytest.raises(ValueError, match=rf"{told} model.loc\[:1\]"):
        bd.plain(stack)
    for net, weights in ((nets[0], [w[:1] for w in draws]), (nets[0], draws[0][:1])):
        assert bd.plain(net, weights).weight.shape == (3, 4)
    assert torch.equal(bd.plain(stack, stack.loc[:1]).weight, bd.plain(nets[0]).weight)


def test_a_plain_module_is_exported_and_learns():
    module, net, x = made("linear")
    back = bd.plain(net)
    assert torch.equal(torch.export.export(back, (x,)).module()(x), module(x))
    back(x).sum().backward()
    assert back.weight.grad.any()


# In between --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda net: net.module(ROWS),
        lambda net: net.module.weight @ torch.ones(4),
        lambda net: 2 * net.module.weight,
        lambda net: net.module.weight.shape,
        lambda net: torch.nn.init.zeros_(net.module.weight),
    ],
)
def test_a_weight_that_is_not_there_advises_plain(use):
    _, net, _ = made("linear")
    with pytest.raises(AttributeError, match=r"take bd.plain\(net\), an ordinary module"):
        use(net)


def test_half_a_state_is_refused_with_the_same_advice():
    _, net, _ = made("linear")
    with pytest.raises(RuntimeError, match=r"take bd.plain\(net\).state_dict\(\)"):
        net.module.state_dict()
    assert "weight" in bd.plain(net).state_dict()


@every_module
def test_the_state_of_a_bayesian_module_can_be_loaded_again(name):
    _, net, x = made(name)
    state = net.state_dict()
    other = made(name)[1]
    with torch.no_grad():
        other.posterior.loc += 1.0
    other.load_state_dict(state)
    inside = nn.Sequential(other)
    inside.load_state_dict(inside.state_dict())
    with bd.at_mean(net), bd.at_mean(other):
        assert torch.equal(output(net, x), output(other, x))


def test_a_bayesian_module_can_be_pickled_and_converted():
    _, net, _ = made("linear")
    again = pickle.loads(pickle.dumps(net))
    with bd.at_mean(net), bd.at_mean(again):
        assert torch.equal(net(ROWS), again(ROWS))
    assert net.double()(ROWS.double()).dtype == torch.float64
    assert bd.plain(net).weight.dtype == torch.float64


def test_config_device_and_dtype_are_those_of_the_module():
    source = nn.Linear(4, 3).bfloat16()
    source.config = {"hidden": 4}
    net = bd.bayesianize(source, bd.FanIn())
    assert net.config == {"hidden": 4}
    assert net.dtype == torch.bfloat16
    assert net.device == torch.device("cpu")
    assert net.double().dtype == torch.float64
    assert not hasattr(bd.bayesianize(nn.Linear(4, 3), bd.FanIn()), "config")


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.filterwarnings("ignore:.*performance drop.*_weight_norm")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_weights_that_an_old_hook_has_computed_are_left_out(norm):
    layer = norm(nn.Linear(4, 3))
    layer(torch.ones(2, 4))
    net = bd.bayesianize(nn.Sequential(layer, nn.ReLU(), nn.Linear(3, 1)), bd.FanIn())
    x = torch.randn(5, 4)
    found = bd.predict(net, bd.Gaussian(), x, samples=3)
    assert found.samples == 3
    net.eval()
    with bd.at_mean(net):
        torch.testing.assert_close(bd.plain(net)(x), net(x))
