"""From a trained model to its predictions."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader, TensorDataset

import bayesdiv as bd
from bayesdiv import prediction
from bayesdiv.training.batches import labelled

draws_module = import_module("bayesdiv.draws")  # whose name a function has in the package
STANDARD = bd.Prior(Normal, loc=0.0, scale=1.0)
X = torch.randn(11, 3, generator=torch.Generator().manual_seed(0))


def network(outputs=1):
    torch.manual_seed(0)
    return bd.bayesianize(
        nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs)), STANDARD
    )


@pytest.mark.parametrize("batch_size", [1, 4, 11, 100])
@pytest.mark.parametrize("over", [bd.Vectorized(), bd.Looped(), bd.Vectorized(chunk=3)], ids=repr)
def test_rows_a_few_at_a_time_give_the_same_prediction(batch_size, over):
    net, likelihood = network(), bd.Gaussian(0.3)
    weights = bd.draw_weights(net, 7)
    whole = bd.predict_at(net, likelihood, X, weights)
    parts = bd.predict_at(net, likelihood, X, weights, over=over, batch_size=batch_size)
    assert torch.allclose(whole.conditional.mean, parts.conditional.mean, atol=1e-6)
    torch.manual_seed(3)
    one = bd.predict(net, likelihood, X, samples=7)
    torch.manual_seed(3)
    two = bd.predict(net, likelihood, X, samples=7, batch_size=batch_size)
    assert torch.allclose(one.conditional.mean, two.conditional.mean, atol=1e-6)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batches_of_no_rows_are_refused(batch_size):
    with pytest.raises(ValueError, match=f"batch_size must be at least 1, got {batch_size}"):
        bd.predict(network(), bd.Gaussian(), X, batch_size=batch_size)


def test_a_seed_may_be_a_number_of_numpy():
    ones, others = (bd.predict(network(), bd.Gaussian(), X, seed=s) for s in (4, np.int64(4)))
    assert torch.equal(ones.mean, others.mean)


@pytest.mark.parametrize("batch_size", [None, 1])
def test_all_rows_are_predicted_with_the_same_weights(batch_size):
    net = network()
    twice = X[:1].expand(6, 3)
    outputs = bd.predict(net, bd.Gaussian(), twice, 5, batch_size=batch_size).conditional.mean
    assert torch.allclose(outputs, outputs[:, :1].expand(5, 6), atol=1e-6)
    assert outputs[:, 0].unique().numel() == 5


def test_weights_drawn_before_serve_any_number_of_calls():
    net, likelihood = network(outputs=3), bd.Classes()
    weights = bd.draw_weights(net, 4)
    first = bd.predict_at(net, likelihood, X, weights).probabilities
    assert torch.equal(first, bd.predict_at(net, likelihood, X, weights).probabilities)
    assert torch.allclose(first[2:5], bd.predict_at(net, likelihood, X[2:5], weights).probabilities)


def test_outputs_are_those_of_the_network_for_each_draw():
    net = network(outputs=3)
    weights = bd.draw_weights(net, 4)
    predictive = bd.predict_at(net, bd.Classes(), X, weights)
    each = torch.stack([net.with_weights(w, X).softmax(-1) for w in weights[0]])
    assert torch.allclose(predictive.probabilities, each.mean(0), atol=1e-6)


class Counting(bd.MeanField):
    """A posterior that notes how many draws it is asked for at a time."""

    asked: list[int]

    def rsample(self, samples, dtype=None, seed=None):
        self.asked.append(samples)
        return super().rsample(samples, dtype, seed)


class Trunk(nn.Linear):
    """A layer that notes how often it runs."""

    runs = 0

    def forward(self, x):
        Trunk.runs += 1
        return super().forward(x)


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ({}, [20]),
        ({"CACHE": 9 * 26}, [9, 9, 2]),
        ({"CACHE": 7 * 26}, [1] * 20),
        ({"CACHE": 1}, [1] * 20),
        ({"BUSY": 10}, [20]),
    ],
    ids=str,
)
def test_weights_that_exceed_the_cache_are_drawn_a_few_at_a_time(limits, asked, monkeypatch):
    for name, limit in limits.items():
        monkeypatch.setattr(draws_module if name == "BUSY" else prediction, name, limit)
    module = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))  # 26 weights
    net = bd.bayesianize(module, STANDARD, posterior=Counting)
    net.posterior.asked = []
    predictive = bd.predict(net, bd.Gaussian(), X, samples=20, batch_size=4)
    assert net.posterior.asked == asked
    assert predictive.conditional.mean.shape == (20, 11)
    assert predictive.conditional.mean[:, 0].unique().numel() == 20


@pytest.mark.parametrize("cache", [1 << 21, 300, 1])  # all draws at once, ten, one
def test_a_row_has_the_same_prediction_among_few_rows_and_among_many(cache, monkeypatch):
    monkeypatch.setattr(prediction, "CACHE", cache)
    module = nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 1))  # 31 weights
    net = bd.bayesianize(module.double(), STANDARD)
    x = torch.randn(draws_module.BUSY // 8 + 5, 8, dtype=torch.float64)
    found = []
    for rows in (1, 20, draws_module.BUSY // 8, len(x)):
        for batch_size in (None, 7) if rows == 20 else (None,):
            torch.manual_seed(0)
            predictive = bd.predict(net, bd.Gaussian(), x[:rows], 12, batch_size=batch_size)
            found.append(predictive.conditional.mean[:, 0])
    for one in found[1:]:
        torch.testing.assert_close(one, found[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 11])
def test_draws_kept_in_half_precision_predict_nearly_the_same_in_the_dtype_of_the_inputs(rows):
    net = bd.bayesianize(nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 2)), STANDARD)
    weights = bd.draw_weights(net, 10)
    short = tuple(drawn.bfloat16() for drawn in weights)
    whole = bd.predict_at(net, bd.Classes(), X[:rows], weights).probabilities
    found = bd.predict_at(net, bd.Classes(), X[:rows], short).probabilities
    assert found.dtype == torch.float32
    assert not torch.equal(found, whole)
    torch.testing.assert_close(found, whole, rtol=0, atol=0.02)


def test_threads_that_predict_with_one_network_get_the_numbers_of_one():
    net = bd.bayesianize(nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 1)), STANDARD)
    net.train()
    weights = bd.draw_weights(net, 10)
    wanted = bd.predict_at(net, bd.Gaussian(), X, weights).mean
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(bd.predict_at, net, bd.Gaussian(), X, weights) for _ in range(80)]
        found = [call.result().mean for call in calls]
    assert all(torch.equal(one, wanted) for one in found)
    assert net.training


def test_draws_a_few_at_a_time_follow_the_posterior(monkeypatch):
    monkeypatch.setattr(prediction, "CACHE", 300)
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(1, 1, bias=False), STANDARD, start=0.3)
    outputs = bd.predict(net, bd.Gaussian(), torch.ones(1, 1), 20_000).conditional.mean[:, 0]
    loc = net.loc.item()
    assert outputs.mean().item() == pytest.approx(loc, abs=5 * 0.3 / 20_000**0.5)
    assert outputs.std().item() == pytest.approx(0.3, abs=5 * 0.3 / 40_000**0.5)
    shift = (outputs[1:] - loc) * (outputs[:-1] - loc)  # neighbours of one group or of two
    assert shift.mean().item() == pytest.approx(0, abs=5 * 0.09 / 20_000**0.5)


@pytest.mark.parametrize("busy", [0, 1 << 13])
@pytest.mark.parametrize("build", ["one", "layers", "trials"])
def test_kept_draws_predict_the_same_one_by_one_as_all_at_once(build, busy, monkeypatch):
    x = X
    if build == "one":
        net = network(outputs=3)
    elif build == "layers":
        parts = [bd.bayesianize(part, STANDARD) for part in (nn.Linear(3, 5), nn.Linear(5, 3))]
        net = nn.Sequential(parts[0], nn.Tanh(), parts[1])
    else:
        net, x = bd.stacked([network(outputs=3) for _ in range(4)]), X.expand(4, 11, 3)
    weights = bd.draw_weights(net, 6)
    monkeypatch.setattr(draws_module, "BUSY", busy)
    predictive = bd.predict_at(net, bd.Classes(), x, weights, batch_size=5)
    wanted = bd.draws(net, x, weights, bd.Looped()).softmax(-1).mean(0)
    assert torch.allclose(predictive.probabilities, wanted, atol=1e-6)


def test_a_deterministic_trunk_runs_once_for_all_draws_however_many_rows(monkeypatch):
    monkeypatch.setattr(draws_module, "BUSY", 0)
    monkeypatch.setattr(prediction, "CACHE", 1)
    module = nn.Sequential(Trunk(3, 5), nn.Tanh(), nn.Linear(5, 1))
    net = bd.bayesianize(module, STANDARD, where=lambda name, _: name.startswith("2."))
    for predict in (
        lambda: bd.predict(net, bd.Gaussian(), X, samples=9),
        lambda: bd.predict_at(net, bd.Gaussian(), X, bd.draw_weights(net, 9)),
    ):
        Trunk.runs = 0
        assert predict().samples == 9
        assert Trunk.runs == 1


def test_weights_beside_a_deterministic_trunk_are_held_up_to_the_room_there_is(monkeypatch):
    monkeypatch.setattr(prediction, "ROOM", 4 * 6)
    module = nn.Sequential(Trunk(3, 5), nn.Tanh(), nn.Linear(5, 1))  # 6 weights are random
    net = bd.bayesianize(
        module, STANDARD, where=lambda name, _: name.startswith("2."), posterior=Counting
    )
    net.posterior.asked = []
    assert bd.predict(net, bd.Gaussian(), X, samples=9).samples == 9
    assert net.posterior.asked == [4, 4, 1]


class NoDropout(nn.Module):
    def forward(self, x):
        assert not self.training
        return x


@pytest.mark.parametrize("training", [True, False])
def test_prediction_is_in_evaluation_mode_and_every_mode_is_restored(training):
    module = nn.Sequential(nn.Linear(3, 5), NoDropout(), nn.BatchNorm1d(5), nn.Linear(5, 1))
    net = bd.bayesianize(module, STANDARD).train(training)
    net.module[2].eval()  # such as a frozen batch norm
    before = {name: part.training for name, part in net.named_modules()}
    running = net.module[2].running_mean.clone()
    bd.predict(net, bd.Gaussian(), X, samples=3)
    assert {name: part.training for name, part in net.named_modules()} == before
    assert torch.equal(net.module[2].running_mean, running)


def test_the_mode_is_restored_after_an_error():
    net = network()
    with pytest.raises(RuntimeError):
        bd.predict(net, bd.Gaussian(), torch.zeros(2, 99), samples=2)
    assert net.training


def test_no_graph_is_kept():
    predictive = bd.predict(network(), bd.Gaussian(), X, samples=3)
    assert not predictive.mean.requires_grad
    assert not predictive.variance.requires_grad


def test_a_deterministic_model_predicts_with_a_single_draw():
    module = nn.Linear(3, 1)
    predictive = bd.predict(module, bd.Gaussian(0.5), X, samples=100, batch_size=4)
    assert predictive.samples == 1
    assert torch.allclose(predictive.mean, module(X)[:, 0], atol=1e-6)
    assert torch.allclose(predictive.variance, torch.full((11,), 0.25))


def test_layers_of_their_own_are_drawn_together():
    net = nn.Sequential(
        bd.bayesianize(nn.Linear(3, 5), STANDARD),
        nn.Tanh(),
        bd.bayesianize(nn.Linear(5, 1), STANDARD),
    )
    weights = bd.draw_weights(net, 6)
    whole, parts = (
        bd.predict_at(net, bd.Gaussian(), X, weights, batch_size=size) for size in (None, 4)
    )
    assert whole.samples == 6
    assert torch.allclose(whole.mean, parts.mean, atol=1e-6)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_trials_are_predicted_side_by_side(batch_size):
    nets = [network() for _ in range(4)]
    with torch.no_grad():
        for number, net in enumerate(nets):
            net.posterior.loc += number
    stack, x = bd.stacked(nets), torch.randn(4, 7, 3)
    weights = bd.draw_weights(stack, 5)
    likelihood = bd.Gaussian(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    together = bd.predict_at(stack, likelihood, x, weights, batch_size=batch_size)
    assert together.mean.shape == (4, 7)
    for k, net in enumerate(nets):
        alone = bd.predict_at(net, bd.Gaussian(0.1 * (k + 1)), x[k], (weights[0][:, k],))
        assert torch.allclose(together.mean[k], alone.mean, atol=1e-5)
        assert torch.allclose(together.variance[k], alone.variance, atol=1e-5)


def test_predictions_of_a_trained_line_are_sure_near_the_data_and_unsure_far_from_it():
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 40).unsqueeze(1)
    net = bd.bayesianize(nn.Linear(1, 1), STANDARD)
    objective = bd.Objective(bd.Gaussian(0.1), bd.KL(), num_data=40, samples=8)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.05)
    for _ in bd.fit(net, objective, [(x, 2 * x[:, 0])], optimizer, 300, seed=0):
        pass
    predictive = bd.predict(net, objective.likelihood, torch.tensor([[0.0], [10.0]]), 500)
    assert predictive.mean.tolist() == pytest.approx([0.0, 20.0], abs=0.5)
    assert predictive.epistemic[1] > 10 * predictive.epistemic[0]


def test_without_rows_there_is_nothing_to_predict():
    with pytest.raises(ValueError, match="at least one row to predict, got 0"):
        bd.predict(network(), bd.Gaussian(), X[:0])
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        bd.predict(network(), bd.Gaussian(), X, samples=0)


# Gradients, arrays and loaders -------------------------------------------------------------------


def small_network():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    return bd.bayesianize(module, bd.FanIn()), torch.randn(5, 3, dtype=torch.float64)


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("over", [None, bd.Looped()], ids=str)
def test_a_prediction_can_be_differentiated_by_inputs_that_ask_for_it(over, batch_size):
    net, x = small_network()
    likelihood, options = bd.Gaussian(0.3).double(), {"over": over, "batch_size": batch_size}
    weights = bd.draw_weights(net, 4)

    def variance(x):
        found = bd.predict_at(net, likelihood, x, weights, **options)
        return found.variance + found.mean

    assert torch.autograd.gradcheck(variance, x.clone().requires_grad_())
    asked = bd.predict(net, likelihood, x.clone().requires_grad_(), 4, **options)
    asked.mean.sum().backward()
    assert net.posterior.loc.grad is None
    plain = bd.predict(net, likelihood, x, 4, **options).mean
    assert not plain.requires_grad
    with torch.no_grad():
        quiet = bd.predict(net, likelihood, x.clone().requires_grad_(), 4, **options).mean
    assert not quiet.requires_grad


def test_arrays_and_loaders_are_predicted_as_tensors_are():
    torch.manual_seed(0)
    net, x = bd.bayesianize(nn.Linear(3, 2), bd.FanIn()), torch.randn(7, 3)
    y, weights = torch.zeros(7), bd.draw_weights(net, 4)
    wanted = bd.predict_at(net, bd.Classes(), x, weights).probabilities
    rows = [{"input": row, "label": label} for row, label in zip(x, y, strict=True)]
    for given, options in [
        (x.double().numpy(), {}),
        ((x.numpy(),), {}),
        ({"input": x.numpy()}, {}),
        (DataLoader(TensorDataset(x), 3), {}),
        (DataLoader(TensorDataset(x, y), 3), {}),
        (DataLoader(rows, 3), {"unpack": labelled("label")}),
    ]:
        found = bd.predict_at(net, bd.Classes(), given, weights, **options).probabilities
        torch.testing.assert_close(found, wanted)
        assert bd.predict(net, bd.Classes(), given, 3, **options).probabilities.shape == (7, 2)
    with pytest.raises(ValueError, match="at least one row to predict, got 0"):
        bd.predict(net, bd.Classes(), x.numpy()[:0])


@pytest.mark.parametrize(
    "weights",
    [
        *((), torch.zeros(3, 4), (torch.zeros(3, 5),), (torch.zeros(3, 2, 4),)),
        *(None, [1.0], (torch.zeros(4),)),
    ],
)
def test_weights_of_another_model_are_refused(weights):
    net = bd.bayesianize(nn.Linear(3, 1), STANDARD)
    with pytest.raises(ValueError, match=r"draw_weights gives .* shapes \[\('samples', 4\)\]"):
        bd.predict_at(net, bd.Gaussian(), X, weights)


def test_weights_of_a_single_model_are_refused_by_a_stack():
    nets = [bd.bayesianize(nn.Linear(3, 1), STANDARD) for _ in range(2)]
    with pytest.raises(ValueError, match=r"shapes \[\('samples', 2, 4\)\]"):
        bd.predict_at(bd.stacked(nets), bd.Gaussian(), X, bd.draw_weights(nets[0], 3))


def test_rows_that_are_no_tensor_are_refused():
    net = bd.bayesianize(nn.Linear(3, 1), STANDARD)
    with pytest.raises(TypeError, match="must be a tensor, an array"):
        bd.predict(net, bd.Gaussian(), X.tolist())
