"""Any module turned Bayesian: what it computes, what it keeps, what it leaves alone."""

import copy
import itertools
import re

import pytest
import torch
from torch import nn
from torch.distributions import Laplace, Normal
from torch.nn.utils.parametrizations import weight_norm

import bayesdiv as bd
from bayesdiv.model.bayesian import bayesian_modules, using
from bayesdiv.model.layout import everything

STANDARD = bd.Prior(Normal, loc=0.0, scale=1.0)


class FirstOf(nn.Module):
    """Recurrent layers and attention return more than their output."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


class Attention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class UsedTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first

    def forward(self, x):
        return self.second(self.first(x).tanh())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x))


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.factors = nn.ParameterList([torch.randn(4), torch.randn(4)])

    def forward(self, x):
        return x * self.factors[0] + self.factors[1]


WORDS = torch.tensor([[0, 3, 6], [1, 1, 5]])
ROWS, SEQUENCES, IMAGES = torch.randn(5, 4), torch.randn(2, 5, 4), torch.randn(2, 2, 6, 6)
# A module and its input; the last two have no rule for several draws at once while training.
MODULES = {
    "linear": (nn.Linear(4, 3), ROWS),
    "float64": (nn.Sequential(nn.Linear(4, 3), nn.Tanh()).double(), ROWS.double()),
    "subclass of linear": (Doubled(4, 3), ROWS),
    "circular convolution": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), IMAGES),
    "transposed convolution": (nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), IMAGES),
    "embedding": (nn.Embedding(7, 4), WORDS),
    "layer norm": (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), ROWS),
    "attention": (Attention(4, 2, batch_first=True), SEQUENCES),
    "transformer": (nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), SEQUENCES),
    "parameter list": (Listed(), ROWS),
    "used twice": (UsedTwice(), ROWS),
    "tied": (Tied(), WORDS),
    "lstm": (FirstOf(nn.LSTM(4, 3, num_layers=2, bidirectional=True)), SEQUENCES),
    "gru": (FirstOf(nn.GRU(4, 3, batch_first=True)), SEQUENCES),
    "weight norm": (weight_norm(nn.Linear(4, 3)), ROWS),
    "batch norm": (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), ROWS),
}
WITHOUT_A_RULE = {"lstm", "gru", "weight norm"}
every_module = pytest.mark.parametrize("name", MODULES)
both_modes = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def made(name, training=True):
    """A fresh copy of a module, the Bayesian one made of it, and an input."""
    module, x = MODULES[name]
    module = copy.deepcopy(module).train(training)
    return module, bd.bayesianize(module, STANDARD).train(training), x


@both_modes
@every_module
def test_at_its_mean_a_network_is_the_one_it_was_made_of(name, training):
    module, net, x = made(name, training)
    with bd.at_mean(net):
        assert torch.equal(net(x), module(x))
        assert net(x).dtype == module(x).dtype


@both_modes
@every_module
def test_a_bayesian_forward_draws_anew_each_time(name, training):
    torch.manual_seed(0)
    module, net, x = made(name, training)
    first, second = net(x), net(x)
    assert first.shape == module(x).shape
    assert not torch.allclose(first, module(x))
    assert not torch.allclose(first, second)


@both_modes
@every_module
def test_gradients_reach_mean_and_scale_of_every_weight(name, training):
    torch.manual_seed(0)
    _, net, x = made(name, training)
    no_rule = name in WITHOUT_A_RULE or (name == "batch norm" and training)
    ways = [bd.Looped()] if no_rule else [bd.Looped(), bd.Vectorized(), bd.Vectorized(chunk=2)]
    weights = bd.draw_weights(net, 3)
    for over in ways:
        outputs = bd.draws(net, x, weights, over)
        # The sum of squares of a normalised output is a constant, hence the cube.
        found = torch.autograd.grad(
            outputs.pow(3).sum(), list(net.posterior.parameters()), retain_graph=True
        )
        assert outputs.shape == (3, *net(x).shape)
        for gradient in found:
            pieces = net.layout.unflatten(gradient)
            assert all(piece.isfinite().all() and piece.any() for piece in pieces.values())


@every_module
def test_predictions_of_every_network_are_the_same_one_by_one_and_at_once(name):
    torch.manual_seed(0)
    _, net, x = made(name, training=False)
    weights = bd.draw_weights(net, 3)
    with torch.no_grad():
        one_by_one = bd.draws(net, x, weights, bd.Looped())
        if name != "weight norm":  # whose rule warns that it is slow
            assert torch.allclose(bd.draws(net, x, weights), one_by_one, atol=1e-5)
    each = torch.stack([net.with_weights(w, x) for w in weights[0]])
    assert torch.allclose(one_by_one, each, atol=1e-5)


@every_module
def test_a_network_that_has_run_can_be_copied(name):
    _, net, x = made(name)
    net(x).sum().backward()
    copied = copy.deepcopy(net)
    with bd.at_mean(net), bd.at_mean(copied):
        assert torch.equal(net.eval()(x), copied.eval()(x))
    with torch.no_grad():
        copied.posterior.loc += 1.0
    assert not torch.equal(net.loc, copied.loc)


@every_module
def test_the_source_module_is_untouched(name):
    module, x = MODULES[name]
    before = copy.deepcopy(module.state_dict())
    kinds = {key: type(parameter) for key, parameter in module.named_parameters()}
    net = bd.bayesianize(module, STANDARD)
    net(x).sum().backward()
    with torch.no_grad():
        net.posterior.loc.zero_()
    assert {key: type(parameter) for key, parameter in module.named_parameters()} == kinds
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(torch.equal(value, module.state_dict()[key]) for key, value in before.items())


# What is random ------------------------------------------------------------------------------


def test_a_module_used_twice_is_one_set_of_weights():
    net = bd.bayesianize(UsedTwice(), STANDARD)
    assert net.layout.size == 20
    assert net.layout.entries[0].names == ("first.weight",)
    alone = bd.bayesianize(net_of(net.layout.unflatten(net.loc)), STANDARD)
    assert bd.KL()(net.q(), net.p()).sum() == bd.KL()(alone.q(), alone.p()).sum()


def net_of(tensors):
    module = nn.Linear(4, 4)
    module.load_state_dict({"weight": tensors["first.weight"], "bias": tensors["first.bias"]})
    return module


def test_tied_weights_stay_tied_and_their_divergence_is_counted_once():
    net = bd.bayesianize(Tied(), STANDARD)
    assert net.layout.size == 7 * 4 + 7
    likelihood = bd.Classes()
    loss = bd.Objective(likelihood, bd.KL(), num_data=1)(net, WORDS, torch.zeros_like(WORDS))
    kl = torch.distributions.kl_divergence(net.q(), Normal(0.0, 1.0))
    assert loss.divergence.item() == pytest.approx(kl.sum().item())
    assert kl.shape == (35,)


def test_tied_weights_are_random_under_all_names_as_soon_as_one_is_picked():
    net = bd.bayesianize(Tied(), STANDARD, where=lambda name, _: name == "head.weight")
    assert net.layout.entries[0].names == ("embed.weight", "head.weight")
    assert [name for name, _ in net.module.named_parameters()] == ["head.bias"]


def test_where_picks_the_last_layer_and_the_rest_stay_ordinary_parameters_that_train():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    net = bd.bayesianize(module, STANDARD, where=lambda name, _: name.startswith("2."))
    assert net.layout.size == 9
    assert {name for name, _ in net.named_parameters()} == {
        "module.0.weight",
        "module.0.bias",
        "posterior.loc",
        "posterior.rho",
    }
    before = net.module[0].weight.detach().clone()
    objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=5, samples=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    objective(net, ROWS, ROWS[:, 0]).total.backward()
    optimizer.step()
    assert not torch.equal(net.module[0].weight, before)


def test_where_sees_the_parameter_too():
    net = bd.bayesianize(nn.Linear(4, 3), STANDARD, where=lambda _, weight: weight.dim() > 1)
    assert [entry.names for entry in net.layout.entries] == [("weight",)]


def test_where_that_picks_nothing_is_refused():
    with pytest.raises(ValueError, match="where picked none of Linear's"):
        bd.bayesianize(nn.Linear(2, 1), STANDARD, where=lambda name, _: False)
    with pytest.raises(ValueError, match="ReLU has no weights that could be random"):
        bd.bayesianize(nn.ReLU(), STANDARD)


def test_frozen_weights_stay_as_they_are():
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    module[0].requires_grad_(False)
    net = bd.bayesianize(module, STANDARD)
    assert [entry.names for entry in net.layout.entries] == [("2.weight",), ("2.bias",)]
    assert torch.equal(net.module[0].weight, module[0].weight)
    assert not net.module[0].weight.requires_grad
    assert bd.bayesianize(module, STANDARD, where=everything).layout.size == 49


def test_a_module_that_is_frozen_altogether_is_refused_with_a_hint():
    module = nn.Linear(2, 1).requires_grad_(False)
    with pytest.raises(ValueError, match=r"none of Linear's, all frozen: .*layout.everything"):
        bd.bayesianize(module, STANDARD)
    assert bd.bayesianize(module, STANDARD, where=everything).layout.size == 3


def test_weights_on_several_devices_are_refused_by_name():
    apart = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2, device="meta"))
    with pytest.raises(ValueError, match=r"got 0.weight on cpu and 1.weight on meta"):
        bd.bayesianize(apart, STANDARD)


class To(nn.Module):
    """Rounds what passes."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_draws_of_each_tensor_have_its_own_dtype(dtype):
    mixed = nn.Sequential(nn.Linear(4, 3), To(dtype), nn.Linear(3, 2).to(dtype))
    net = bd.bayesianize(mixed, STANDARD)
    assert net.loc.dtype == torch.promote_types(dtype, torch.float32)
    assert net(ROWS).dtype == dtype
    with bd.at_mean(net):
        assert torch.equal(net(ROWS), mixed(ROWS))
    net(ROWS).float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())


def test_draws_in_double_precision_stay_so_for_a_network_in_single():
    net = bd.bayesianize(nn.Linear(4, 2), STANDARD)
    weights = tuple(drawn.double() for drawn in bd.draw_weights(net, 3))
    assert bd.draws(net, ROWS.double(), weights).dtype == torch.float64


def test_a_module_in_half_precision_has_a_posterior_that_learns():
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(4, 1).to(torch.bfloat16), bd.FanIn())
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}
    before = net.posterior.rho.detach().clone()
    objective = bd.Objective(bd.Gaussian(), num_data=8)
    optimizer = torch.optim.AdamW([*net.parameters(), *objective.parameters()], lr=1e-4)
    for _ in range(20):
        optimizer.zero_grad()
        objective(net, ROWS.to(torch.bfloat16), ROWS.sum(-1)).total.backward()
        optimizer.step()
    assert (net.posterior.rho != before).all()


def test_a_module_in_half_precision_may_be_widened_later():
    net = bd.bayesianize(nn.Linear(4, 1).to(torch.bfloat16), STANDARD).float()
    assert net(ROWS).dtype == torch.float32


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        (torch.complex64, "complex weights have no Gaussian posterior, got 0 of torch.complex64"),
        (torch.int64, "integer weights have no Gaussian posterior, got 0 of torch.int64"),
    ],
)
def test_weights_that_are_no_real_numbers_are_refused(dtype, told):
    weight = nn.Parameter(torch.ones(3, dtype=dtype), requires_grad=False)
    with pytest.raises(ValueError, match=told):
        bd.bayesianize(nn.ParameterList([weight]), STANDARD, where=everything)


def test_weights_without_a_shape_are_refused():
    net = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(ValueError, match=r"got 0.weight without one: run the network once on a"):
        bd.bayesianize(net, STANDARD)
    net(ROWS)
    assert bd.bayesianize(net, STANDARD).layout.size == 15


@pytest.mark.parametrize("prior", [Normal(0.0, 1.0), 1.0, bd.FanIn, None], ids=repr)
def test_a_prior_that_is_none_is_refused(prior):
    told = rf"prior must be a Prior such as .*, got {re.escape(repr(prior))}"
    with pytest.raises(TypeError, match=told):
        bd.bayesianize(nn.Linear(2, 1), prior)


@pytest.mark.parametrize("posterior", [bd.LowRank, bd.FullRank, bd.Ensemble])
def test_a_posterior_that_was_not_made_is_refused(posterior):
    told = f"posterior must be a choice such as LowRank.*, got .*{posterior.__name__}"
    with pytest.raises(TypeError, match=told):
        bd.bayesianize(nn.Linear(2, 1), STANDARD, posterior=posterior)


def test_what_cannot_become_bayesian_is_refused_in_one_sentence():
    ready = bd.MeanField(torch.zeros(3), torch.ones(3))
    with pytest.raises(
        TypeError, match=r"posterior must be a choice such as .*, got MeanField\(\)"
    ):
        bd.bayesianize(nn.Linear(2, 1), STANDARD, posterior=ready)
    with pytest.raises(TypeError, match="got one that is traced or scripted"):
        bd.bayesianize(torch.jit.ScriptModule(), STANDARD)


@pytest.mark.parametrize("start", [0.0, -1.0, float("nan"), float("inf")])
def test_a_start_that_is_not_positive_is_refused(start):
    with pytest.raises(ValueError, match="start must be positive"):
        bd.bayesianize(nn.Linear(2, 1), STANDARD, start=start)


def test_pretrained_weights_are_the_posterior_mean():
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.arange(6.0).reshape(2, 3))
        module.bias.copy_(torch.tensor([-1.0, -2.0]))
    net = bd.bayesianize(module, STANDARD)
    assert net.loc.tolist() == [0, 1, 2, 3, 4, 5, -1, -2]


def test_layers_with_priors_of_their_own_make_a_network():
    torch.manual_seed(0)
    net = nn.Sequential(
        bd.bayesianize(nn.Linear(4, 8), bd.Prior(Laplace, loc=0.0, scale=1.0)),
        nn.Tanh(),
        nn.Linear(8, 8),
        bd.bayesianize(nn.Linear(8, 1), bd.FanIn()),
    )
    assert [module.layout.size for module in bayesian_modules(net)] == [40, 9]
    objective = bd.Objective(bd.Gaussian(), bd.JSG(0.3), num_data=5, samples=3)
    loss = objective(net, ROWS, torch.zeros(5))
    parts = [bd.JSG(0.3)(m.q(), m.p()).sum() for m in bayesian_modules(net)]
    assert loss.divergence.item() == pytest.approx(sum(parts).item(), rel=1e-5)
    loss.total.backward()
    assert all(parameter.grad.any() for parameter in net.parameters())
    with bd.at_mean(net):
        assert torch.equal(net(ROWS), net(ROWS))


def test_one_bayesian_layer_used_twice_is_found_once():
    layer = bd.bayesianize(nn.Linear(4, 4), STANDARD)
    assert bayesian_modules(nn.Sequential(layer, nn.Tanh(), layer)) == [layer]
    assert bayesian_modules(nn.Linear(2, 2)) == []


def test_named_inputs_are_handed_on():
    class Scaled(nn.Linear):
        def forward(self, x, *, by):
            return by * super().forward(x)

    net = bd.bayesianize(Scaled(4, 3), STANDARD)
    with bd.at_mean(net):
        assert torch.allclose(net(ROWS, by=torch.tensor(3.0)), 3 * net(ROWS, by=torch.tensor(1.0)))
    stack = bd.stacked([net, net])
    with bd.at_mean(stack):
        factors = torch.tensor([1.0, 3.0])
        one, three = stack(torch.stack([ROWS, ROWS]), by=factors)
    assert torch.allclose(3 * one, three)


def test_what_is_random_and_what_is_not_is_shown():
    module = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    net = bd.bayesianize(module, STANDARD, where=lambda name, _: not name.startswith("0"))
    assert "random: 60 weights in 1.weight, 1.bias, 2.weight, 2.bias, … (6 tensors)" in repr(net)
    assert "not random: 20 weights in 0.weight, 0.bias" in repr(net)
    whole = bd.bayesianize(nn.Linear(4, 4), STANDARD)
    assert "trials: (2,)" in repr(bd.stacked([whole, whole]))


# Contexts ------------------------------------------------------------------------------------


def test_contexts_nest_and_are_left_behind_by_an_error():
    net = bd.bayesianize(nn.Linear(4, 3), STANDARD)
    zeros = torch.zeros(15)
    with bd.at_mean(net):
        with using(net, [zeros]):
            assert net(ROWS).eq(0).all()
        assert net(ROWS).ne(0).any()
    with pytest.raises(RuntimeError, match="stop"), bd.at_mean(net):
        raise RuntimeError("stop")
    assert not torch.equal(net(ROWS), net(ROWS))


def test_running_at_the_mean_registers_no_parameter():
    net = bd.bayesianize(nn.Linear(4, 3), STANDARD)
    before = [name for name, _ in net.named_parameters()], list(net.state_dict())
    with bd.at_mean(net):
        net(ROWS)
        assert ([name for name, _ in net.named_parameters()], list(net.state_dict())) == before
    assert ([name for name, _ in net.named_parameters()], list(net.state_dict())) == before


def test_a_wrong_number_of_weights_leaves_no_trace():
    net = nn.Sequential(*(bd.bayesianize(nn.Linear(4, 4), STANDARD) for _ in range(2)))
    with pytest.raises(ValueError, match="shorter"), using(net, [torch.zeros(20)]):
        pass
    assert not torch.equal(net(ROWS), net(ROWS))


# Saving, moving, exporting -------------------------------------------------------------------


def test_state_dict_restores_posterior_prior_and_ordinary_parameters():
    def build():
        module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        return bd.bayesianize(
            module, bd.AroundStart(), where=lambda name, _: not name.startswith("0")
        )

    torch.manual_seed(0)
    net, other = build(), build()
    net(ROWS)
    assert not torch.equal(net.p().mean, other.p().mean)
    other.load_state_dict(net.state_dict())
    assert torch.equal(net.p().mean, other.p().mean)
    assert torch.equal(net.q().stddev, other.q().stddev)
    with bd.at_mean(net.eval()), bd.at_mean(other.eval()):
        assert torch.equal(net(ROWS), other(ROWS))


def test_random_weights_are_not_saved_twice():
    net = bd.bayesianize(nn.Linear(4, 3), bd.FanIn())
    assert set(net.state_dict()) == {"posterior.loc", "posterior.rho", "prior.loc", "prior.scale"}


def test_a_change_of_dtype_reaches_posterior_prior_and_network():
    net = bd.bayesianize(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), bd.FanIn()).double()
    assert net(ROWS.double()).dtype == torch.float64
    assert net.p().scale.dtype == net.q().mean.dtype == torch.float64


def test_a_prior_can_serve_several_networks_of_different_dtypes():
    prior = bd.Prior(Normal, loc=0.0, scale=1.0)
    small = bd.bayesianize(nn.Linear(4, 3), prior)
    large = bd.bayesianize(nn.Linear(4, 3).double(), prior)
    assert prior().scale.dtype == small.p().scale.dtype == torch.float32
    assert large.p().scale.dtype == torch.float64


def test_the_network_at_its_mean_can_be_exported():
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    net = bd.bayesianize(module, STANDARD)
    with bd.at_mean(net):
        exported = torch.export.export(net, (ROWS,))
    assert torch.equal(exported.module()(ROWS), module(ROWS))


def test_weights_on_the_meta_device_are_refused_unless_they_are_frozen():
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    with pytest.raises(ValueError, match=r"got 0.weight on the meta device: load the module's"):
        bd.bayesianize(module, STANDARD)
    module[0].requires_grad_(False)
    module[1].to_empty(device="cpu")
    assert bd.bayesianize(module, STANDARD).layout.size == 4


def test_what_a_prior_has_per_weight_can_be_sharded_and_is_not_learned():
    net = bd.bayesianize(nn.Linear(4, 3), bd.AroundStart())
    keys, before = list(net.state_dict()), net.p().mean.clone()
    module = bd.LossModule(net, bd.Objective(bd.Classes(), num_data=5))
    assert "model.prior.loc" in dict(module.named_parameters())
    assert not net.prior.loc.requires_grad
    assert sorted(net.state_dict()) == sorted(keys)
    module(ROWS, torch.zeros(5, dtype=torch.long)).total.backward()
    assert net.prior.loc.grad is None
    assert torch.equal(net.p().mean, before)


class FourBits(nn.Module):
    """As layers of bitsandbytes: packed integers, frozen."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, 1, dtype=torch.uint8), requires_grad=False)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("where", [None, everything])
def test_quantised_weights_are_refused_with_what_to_do(where):
    options = {} if where is None else {"where": where}
    packed = torch.ao.nn.quantized.Linear(4, 3)
    with pytest.raises(ValueError, match=r"are quantised, .* before it is quantised, or give it"):
        bd.bayesianize(nn.Sequential(packed), STANDARD, **options)
    told = "are quantised" if where is None else "integer weights .*uint8: leave it out by where="
    with pytest.raises(ValueError, match=told):
        bd.bayesianize(nn.Sequential(FourBits()), STANDARD, **options)
    adapted = nn.Sequential(FourBits(), nn.Linear(4, 3))
    assert bd.bayesianize(adapted, STANDARD).layout.size == 15


# Stacks --------------------------------------------------------------------------------------


def test_a_stack_runs_each_trial_on_its_own_inputs():
    torch.manual_seed(0)
    nets = [bd.bayesianize(nn.Linear(4, 3), STANDARD) for _ in range(3)]
    stack = bd.stacked(nets)
    x = torch.randn(3, 5, 4)
    assert stack(x).shape == (3, 5, 3)
    with bd.at_mean(stack):
        together = stack(x)
    for net, inputs, outputs in zip(nets, x, together, strict=True):
        with bd.at_mean(net):
            assert torch.allclose(net(inputs), outputs, atol=1e-6)


def test_a_stack_keeps_each_trial_s_prior():
    torch.manual_seed(0)
    nets = [bd.bayesianize(nn.Linear(4, 3), bd.AroundStart(s)) for s in (0.1, 0.2)]
    stack = bd.stacked(nets)
    for trial, net in enumerate(nets):
        assert torch.equal(stack.p().mean[trial], net.p().mean)
        assert torch.equal(bd.JSA(0.3)(stack.q(), stack.p())[trial], bd.JSA(0.3)(net.q(), net.p()))
    shared = bd.stacked([bd.bayesianize(nn.Linear(4, 3), STANDARD) for _ in range(2)])
    assert shared.p().batch_shape == ()


@pytest.mark.parametrize("posterior", [bd.Point, bd.MeanField, bd.LowRank(2)])
def test_a_stack_with_other_priors_has_the_divergence_of_each_trial_alone(posterior):
    priors = [bd.FanIn(0.5), bd.FanIn(2.0)]
    nets = [bd.bayesianize(nn.Linear(4, 1), prior, posterior=posterior) for prior in priors]
    y = torch.zeros(len(ROWS))
    alone = [bd.Objective(bd.Gaussian(), num_data=9)(net, ROWS, y).divergence for net in nets]
    assert abs(alone[0] - alone[1]) > 1e-3
    objective = bd.Objective(bd.Gaussian(), num_data=9)
    found = objective.terms(bd.stacked(nets), ROWS.expand(2, -1, -1), y.expand(2, -1)).divergence
    torch.testing.assert_close(found, torch.stack(alone))


def test_a_stack_of_unlike_models_is_refused():
    def stacked(*modules, prior=STANDARD):
        return bd.stacked([bd.bayesianize(module, prior) for module in modules])

    with pytest.raises(ValueError, match="same layout"):
        stacked(nn.Linear(4, 3), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="no weights that are not random"):
        bd.stacked([bd.bayesianize(nn.Linear(4, 3), STANDARD, where=lambda n, _: n == "bias")] * 2)
    trained = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    trained(ROWS)
    with pytest.raises(ValueError, match="same buffers"):
        stacked(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), trained)
    one = bd.bayesianize(nn.Linear(4, 3), STANDARD)
    for prior in (bd.ScaleMixture(0.5, 1.0, 0.1), bd.Prior(Laplace, loc=0.0, scale=1.0)):
        with pytest.raises(ValueError, match="priors of one stack"):
            bd.stacked([one, bd.bayesianize(nn.Linear(4, 3), prior)])
    for layers in ((nn.ReLU(), nn.Tanh()), (nn.Dropout(0.1), nn.Dropout(0.9))):
        with pytest.raises(ValueError, match="the same layers"):
            stacked(*(nn.Sequential(nn.Linear(4, 3), layer) for layer in layers))
    kinds = (bd.MeanField, bd.LowRank(2), bd.LowRank(3), bd.Ensemble(2), bd.Ensemble(3))
    nets = [bd.bayesianize(nn.Linear(4, 3), STANDARD, posterior=kind) for kind in kinds]
    for pair in itertools.permutations(nets, 2):
        with pytest.raises(ValueError, match="posteriors of one kind and rank"):
            bd.stacked(pair)
    mixtures = [bd.ScaleMixture(0.5, 1.0, narrow) for narrow in (0.1, 0.2)]
    with pytest.raises(ValueError, match="priors of one stack"):
        bd.stacked([bd.bayesianize(nn.Linear(4, 3), prior) for prior in mixtures])


def test_a_network_with_channels_last_filters_has_the_outputs_of_its_source():
    torch.manual_seed(0)
    source = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 2))
    x = torch.randn(2, 3, 6, 6)
    wanted = source(x)
    source.to(memory_format=torch.channels_last)
    net = bd.bayesianize(source, bd.FanIn())
    with bd.at_mean(net):
        found = net(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(found, wanted)
    plain = bd.bayesianize(
        copy.deepcopy(source).to(memory_format=torch.contiguous_format), STANDARD
    )
    with pytest.raises(RuntimeError, match="channels_last"):
        plain.load_state_dict(net.state_dict())


def test_a_frozen_trunk_is_shared_and_stays_where_it_was():
    source = nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 1))
    net = bd.bayesianize(source, STANDARD)
    assert net.module[0].weight.data_ptr() == source[0].weight.data_ptr()
    net.double()
    assert source[0].weight.dtype == torch.float32
