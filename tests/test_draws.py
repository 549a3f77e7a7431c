"""Several weight draws in one call, and what runs once for all of them."""

import copy
import logging
from functools import partial
from importlib import import_module

import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn.utils.parametrizations import spectral_norm

import bayesdiv as bd
from bayesdiv.model.layout import everything

draws_module = import_module("bayesdiv.draws")  # whose name a function has in the package

STANDARD = bd.Prior(Normal, loc=0.0, scale=1.0)
X = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
WAYS = [bd.Vectorized(), bd.Looped(), bd.Vectorized(chunk=2), bd.Vectorized(chunk=100)]


def network():
    torch.manual_seed(0)
    return bd.bayesianize(
        nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)).double(), STANDARD
    )


def layers():
    torch.manual_seed(0)
    parts = [bd.bayesianize(module, STANDARD) for module in (nn.Linear(4, 5), nn.Linear(5, 2))]
    return nn.Sequential(parts[0], nn.Tanh(), parts[1]).double()


def by_hand(weights):
    """Outputs of each draw by the formula: one flat vector of 37 weights, or two of 25 and 12."""
    flat = torch.cat(weights, -1)
    w1, b1, w2, b2 = flat.split([20, 5, 10, 2], -1)
    hidden = (X @ w1.reshape(-1, 5, 4).mT + b1.unsqueeze(1)).tanh()
    return hidden @ w2.reshape(-1, 2, 5).mT + b2.unsqueeze(1)


@pytest.mark.parametrize("build", [network, layers])
@pytest.mark.parametrize("over", WAYS, ids=repr)
def test_every_way_gives_the_outputs_of_each_draw_in_order_and_their_gradients(build, over):
    net = build()
    weights = bd.draw_weights(net, 5)
    outputs, wanted = bd.draws(net, X, weights, over), by_hand(weights)
    assert torch.allclose(outputs, wanted)
    parameters = list(net.parameters())
    ours = torch.autograd.grad(outputs.pow(3).sum(), parameters, retain_graph=True)
    theirs = torch.autograd.grad(wanted.pow(3).sum(), parameters)
    for one, two in zip(ours, theirs, strict=True):
        assert torch.allclose(one, two)


@pytest.mark.parametrize("build", [network, layers])
@pytest.mark.parametrize("over", WAYS, ids=repr)
def test_several_draws_in_one_backward_give_the_mean_of_separate_gradients(build, over):
    net = build()
    y = torch.randn(6, 2, dtype=torch.float64)
    # By samples, so that the divergence too is a mean over the draws.
    objective = bd.Objective(
        bd.Gaussian(), bd.JSA(0.3), num_data=6, over=over, estimator=bd.MonteCarlo()
    ).double()
    weights = bd.draw_weights(net, 5)

    def gradients(chosen):
        loss = objective.given(net, chosen, X, y)
        return torch.autograd.grad(loss.total, list(net.parameters()), retain_graph=True)

    together = gradients(weights)
    separate = [gradients(tuple(w[k : k + 1] for w in weights)) for k in range(5)]
    for one, many in zip(together, zip(*separate, strict=True), strict=True):
        assert torch.allclose(one, torch.stack(many).mean(0), rtol=1e-10, atol=1e-12)


class Trunk(nn.Module):
    """A deterministic part that notes how often and with what shapes it runs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.seen = []

    def forward(self, x):
        out = self.linear(x)
        batched = torch._C._functorch.is_batchedtensor(out)
        self.seen.append((tuple(out.shape), batched))
        return out


@pytest.mark.parametrize("last_only", ["where", "layer"])
def test_a_deterministic_trunk_runs_once_for_all_draws(last_only):
    module = nn.Sequential(Trunk(), nn.Linear(5, 2)).double()
    if last_only == "where":
        net = bd.bayesianize(module, STANDARD, where=lambda name, _: name.startswith("1."))
        trunk = net.module[0]
    else:
        net = nn.Sequential(module[0], bd.bayesianize(module[1], STANDARD))
        trunk = module[0]
    outputs = bd.draws(net, X, bd.draw_weights(net, 7))
    assert outputs.shape == (7, 6, 2)
    assert trunk.seen == [((6, 5), False)]
    outputs.sum().backward()
    assert trunk.linear.weight.grad.any()


def test_the_same_trunk_with_random_weights_runs_on_a_batch_of_them():
    net = bd.bayesianize(nn.Sequential(Trunk(), nn.Linear(5, 2)).double(), STANDARD)
    bd.draws(net, X, bd.draw_weights(net, 7))
    assert net.module[0].seen == [((6, 5), True)]


def test_one_draw_calls_the_network_directly():
    net = bd.bayesianize(nn.Sequential(Trunk(), nn.Linear(5, 2)).double(), STANDARD)
    assert bd.draws(net, X, bd.draw_weights(net, 1)).shape == (1, 6, 2)
    assert net.module[0].seen == [((6, 5), False)]


def test_a_deterministic_model_gives_a_single_draw():
    module = nn.Linear(4, 2).double()
    assert bd.draw_weights(module, 10) == ()
    assert torch.equal(bd.draws(module, X, ()), module(X).unsqueeze(0))


def test_dropout_differs_from_draw_to_draw():
    net = bd.bayesianize(nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5)).double(), STANDARD)
    weights = (net.loc.expand(4, -1),)
    outputs = bd.draws(net, X, weights)
    assert len({tuple(draw.flatten().eq(0).tolist()) for draw in outputs}) == 4


def test_trials_and_draws_are_axes_of_their_own():
    stack = bd.stacked([network() for _ in range(3)])
    weights = bd.draw_weights(stack, 4)
    assert weights[0].shape == (4, 3, stack.layout.size)
    x = X.expand(3, 6, 4)
    for over in WAYS:
        outputs = bd.draws(stack, x, weights, over)
        assert outputs.shape == (4, 3, 6, 2)
        assert torch.allclose(outputs[2, 1], network().with_weights(weights[0][2, 1], X))


def test_attention_settings_are_as_before_after_several_draws():
    attention = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    net = bd.bayesianize(attention, STANDARD)
    kernels = torch.backends.cuda.flash_sdp_enabled(), torch.backends.mha.get_fastpath_enabled()
    bd.draws(net, torch.randn(2, 3, 4), bd.draw_weights(net, 2))
    after = torch.backends.cuda.flash_sdp_enabled(), torch.backends.mha.get_fastpath_enabled()
    assert after == kernels == (True, True)


@pytest.mark.parametrize("samples", [0, -1])
def test_at_least_one_sample_is_needed(samples):
    with pytest.raises(ValueError, match=f"samples must be at least 1, got {samples}"):
        bd.draw_weights(network(), samples)


def test_a_chunk_holds_at_least_one_draw():
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        bd.Vectorized(chunk=0)


class Noted(nn.Module):
    """Hands its input on and notes whether it came for all draws at once."""

    def __init__(self):
        super().__init__()
        self.at_once = []

    def forward(self, x):
        self.at_once.append(torch._C._functorch.is_batchedtensor(x))
        return x


def convolutional(where=everything):
    torch.manual_seed(0)
    parts = (nn.Conv2d(1, 2, 3), nn.Flatten(), Noted(), nn.Linear(2 * 30 * 30, 2))
    return bd.bayesianize(nn.Sequential(*parts), STANDARD, where=where)


@pytest.mark.parametrize(
    ("build", "shape", "at_once"),
    [
        pytest.param(convolutional, (16, 1, 32, 32), [False] * 3, id="convolution"),
        pytest.param(convolutional, (2, 1, 32, 32), [True], id="few rows"),
        pytest.param(
            partial(convolutional, where=lambda name, _: name.startswith("3.")),
            (16, 1, 32, 32),
            [False],
            id="deterministic trunk, which runs once",
        ),
        pytest.param(
            lambda: bd.bayesianize(nn.Sequential(nn.Linear(32, 2), Noted()), STANDARD),
            (1000, 32),
            [True],
            id="no convolution",
        ),
    ],
)
def test_by_default_a_cpu_runs_convolutions_draw_by_draw_and_all_else_at_once(
    build, shape, at_once
):
    net = build()
    noted = next(module for module in net.modules() if isinstance(module, Noted))
    x, weights = torch.randn(shape), bd.draw_weights(net, 3)
    found = bd.draws(net, x, weights)
    assert noted.at_once == at_once
    for over in (bd.Looped(), bd.Vectorized()):
        torch.testing.assert_close(found, bd.draws(net, x, weights, over), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("memory_format", "wanted"),
    [(torch.channels_last, bd.Looped()), (torch.contiguous_format, None)],
)
def test_by_default_a_gpu_runs_convolutions_over_channels_last_draw_by_draw(
    memory_format, wanted, monkeypatch
):
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 4, 2))
    net = bd.bayesianize(network, STANDARD)
    x = torch.randn(2, 3, 4, 4).to(memory_format=memory_format)
    assert draws_module.way(net, x, single=True) is None  # few rows on a CPU
    monkeypatch.setattr(draws_module, "on_gpu", lambda _: True)
    monkeypatch.setattr(draws_module, "on_cpu", lambda _: False)
    assert draws_module.way(net, x, single=True) == wanted
    linear = bd.bayesianize(nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), STANDARD)
    assert draws_module.way(linear, x, single=True) is None


def test_the_default_way_of_objective_and_prediction_is_that_of_draws():
    x = torch.randn(16, 1, 32, 32)
    net = convolutional()
    noted = net.module[2]
    bd.Objective(bd.Classes(), num_data=16, samples=3)(net, x, torch.arange(16) % 2)
    assert noted.at_once == [False] * 3
    bd.predict_at(net, bd.Classes(), x, bd.draw_weights(net, 2))
    assert noted.at_once == [False] * 5


# Networks that torch.vmap has no rule for ----------------------------------------------------


class Last(nn.Module):
    """Dropout and a recurrent layer, of which the outputs alone are handed on."""

    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.recurrent = kind(4, 3)

    def forward(self, x):
        return self.recurrent(self.dropout(x))[0]


WITHOUT_A_RULE = {
    "lstm": Last,
    "gru": partial(Last, nn.GRU),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3)),
    "spectral norm": lambda: spectral_norm(nn.Linear(4, 3)),
}
without_a_rule = pytest.mark.parametrize("build", WITHOUT_A_RULE.values(), ids=WITHOUT_A_RULE)


@without_a_rule
def test_by_default_they_are_run_draw_by_draw_as_if_nothing_else_had_been_tried(build, caplog):
    torch.manual_seed(0)
    net = bd.bayesianize(build(), STANDARD)
    other = copy.deepcopy(net)
    x, weights = torch.randn(5, 4), bd.draw_weights(net, 3)
    with caplog.at_level(logging.INFO, logger="bayesdiv.draws"):
        for _ in range(2):
            torch.manual_seed(1)
            found = bd.draws(net, x, weights)
            torch.manual_seed(1)
            assert torch.equal(found, bd.draws(other, x, weights, bd.Looped()))
    left, wanted = net.state_dict(), other.state_dict()
    assert all(torch.equal(left[key], wanted[key]) for key in wanted)
    assert [record.getMessage()[:32] for record in caplog.records] == [
        "Bayesian is run draw by draw, be"
    ]


def test_a_first_layer_that_works_in_place_is_run():
    net = bd.bayesianize(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 1)), STANDARD)
    weights = bd.draw_weights(net, 5)
    found = bd.draws(net, X.float(), weights)
    torch.testing.assert_close(found, bd.draws(net, X.float(), weights, bd.Looped()))


@without_a_rule
def test_asked_for_at_once_they_are_refused_with_a_hint(build):
    net = bd.bayesianize(build(), STANDARD)
    weights = bd.draw_weights(net, 3)
    for over in (bd.Vectorized(), bd.Vectorized(chunk=2)):
        with pytest.raises(RuntimeError, match=r"no rule .* give over=bayesdiv.Looped"):
            bd.draws(net, torch.randn(5, 4), weights, over)


def test_batch_norm_is_run_at_once_where_it_does_not_train():
    net = bd.bayesianize(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), Noted()), STANDARD)
    x, weights = torch.randn(5, 4), bd.draw_weights(net, 3)
    bd.draws(net, x, weights)
    bd.draws(net.eval(), x, weights)
    assert net.module[2].at_once == [False] * 3 + [True]


def test_objective_and_prediction_take_an_lstm_as_it_is():
    net = bd.bayesianize(Last(), STANDARD)
    x = torch.randn(5, 4)
    loss = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=5, samples=3)(net, x, x[:, :3])
    loss.total.backward()
    assert net.posterior.loc.grad.any()
    assert bd.predict(net, bd.Gaussian(), x, samples=3).mean.shape == (5, 3)


def test_other_errors_of_a_network_are_its_own():
    net = network()
    with pytest.raises(RuntimeError, match=r"Expected size|cannot be multiplied"):
        bd.draws(net, torch.randn(6, 3).double(), bd.draw_weights(net, 3))


class Wrapped(nn.Module):
    """A network that returns something around its output."""

    def __init__(self, around):
        super().__init__()
        self.linear = nn.Linear(4, 2).double()
        self.around = around

    def forward(self, x):
        return self.around(self.linear(x))


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("over", [None, bd.Looped(), bd.Vectorized()], ids=repr)
@pytest.mark.parametrize(
    ("around", "kind"), [(lambda y: {"out": y}, "dict"), (lambda y: (y, y), "tuple")]
)
def test_a_network_that_returns_no_tensor_is_refused(around, kind, over, samples):
    told = f"the network must return one tensor, got {kind}"
    whole = bd.bayesianize(Wrapped(around), STANDARD)
    layer = Wrapped(around)
    layer.linear = bd.bayesianize(layer.linear, STANDARD)
    for net in (whole, layer):
        with pytest.raises(TypeError, match=told):
            bd.draws(net, X, bd.draw_weights(net, samples), over)
    with pytest.raises(TypeError, match=told):
        bd.draws(Wrapped(around), X, ())
