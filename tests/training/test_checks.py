"""What trains, and not the model that was meant: `fit` says so before it begins."""

import warnings

import pytest
import torch
from torch import nn
from torch.distributions import Binomial, Laplace, Normal
from torch.utils.data import DataLoader, TensorDataset

import bayesdiv as bd
from bayesdiv.training.checks import cautions, parameter_groups
from bayesdiv.training.fit import own_draws


def problem(scale=1.0, shift=0.0, divergence=None):
    torch.manual_seed(0)
    x = torch.randn(64, 3)
    y = scale * x.sum(1) + shift
    net = bd.bayesianize(nn.Linear(3, 1), bd.Prior(Normal, loc=0.0, scale=1.0))
    objective = bd.Objective(bd.Gaussian(), divergence or bd.KL(), num_data=64)
    return net, objective, bd.Batches(x, y, 16)


def parameters(*modules):
    return [parameter for module in modules for parameter in module.parameters()]


def train(net, objective, batches, optimizer, epochs=1):
    return list(bd.fit(net, objective, batches, optimizer, epochs))


class OfTen(nn.Module):
    """How many of ten trials succeed: `trials` is no number of networks here."""

    trials = 10

    def forward(self, outputs):
        return Binomial(self.trials, logits=outputs.squeeze(-1), validate_args=False)


def test_a_likelihood_may_count_trials_of_its_own():
    net, _, batches = problem()
    objective = bd.Objective(OfTen(), num_data=64)
    counts = bd.Batches(batches.x, batches.y.sigmoid().mul(10).round(), 16)
    (epoch,) = train(net, objective, counts, torch.optim.SGD(net.parameters(), lr=1e-3))
    assert epoch.loss.nll > 0


@pytest.mark.parametrize(
    ("own", "strength", "message"),
    [
        ({"num_data": 6}, 1.0, "num_data and strength, 64 and 1.0, got 6 and 1.0"),
        ({"strength": 10.0}, 1.0, "num_data and strength, 64 and 1.0, got 64 and 10.0"),
        ({}, bd.WarmUp(3), "Natural needs a fixed strength, got a WarmUp or Constraint"),
        ({}, bd.Constraint(0.1), "Natural needs a fixed strength, got a WarmUp or Constraint"),
    ],
)
def test_a_natural_gradient_of_another_loss_is_refused(own, strength, message):
    net, _, batches = problem()
    objective = bd.Objective(bd.Gaussian(), num_data=64, strength=strength)
    optimizer = bd.Natural(net, objective, **{"num_data": 64, **own})
    with pytest.raises(ValueError, match=message):
        train(net, objective, batches, optimizer)
    objective = bd.Objective(bd.Gaussian(), num_data=64)
    train(net, objective, batches, bd.Natural(net, objective, num_data=64))


@pytest.mark.parametrize(("divergence", "slow"), [(bd.JSG(0.3), True), (bd.JSA(0.3), False)])
def test_integrals_of_many_weights_are_warned_of(divergence, slow):
    net = bd.bayesianize(nn.Linear(3, 40), bd.Prior(Laplace, loc=0.0, scale=1.0))
    objective = bd.Objective(bd.Gaussian(), divergence, num_data=64)
    batches = bd.Batches(torch.zeros(64, 3), torch.zeros(64, 40), 64)
    said = list(cautions(net, objective, batches, torch.optim.SGD(net.parameters(), lr=1e-3)))
    assert any("160 weights from a Laplace prior is integrated" in one for one in said) == slow


def test_a_divergence_without_a_bayesian_module_is_warned_of_once():
    _, objective, batches = problem()
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(parameters(net, objective), lr=1e-3)
    with pytest.warns(
        UserWarning, match=r"no Bayesian module, so that KL\(\) has no effect"
    ) as all_:
        train(net, objective, batches, optimizer, epochs=3)
    assert len(all_) == 1


def test_a_plain_network_without_a_divergence_is_not_warned_of():
    net, x = nn.Linear(3, 1), torch.randn(64, 3)
    for objective in (
        bd.Objective(bd.Gaussian(), num_data=64),
        bd.Objective(bd.Gaussian(), bd.KL(), num_data=64, strength=0.0),
    ):
        optimizer = torch.optim.SGD(parameters(net, objective), lr=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            train(net, objective, bd.Batches(x, x[:, 0], 16), optimizer)


@pytest.mark.parametrize(("scale", "shift"), [(300.0, 0.0), (1.0, 500.0)])
@pytest.mark.parametrize("loader", [False, True])
def test_targets_far_from_the_noise_that_a_likelihood_starts_with_are_warned_of(
    scale, shift, loader
):
    net, objective, batches = problem(scale, shift)
    data = DataLoader(TensorDataset(batches.x, batches.y), 16) if loader else batches
    optimizer = torch.optim.SGD(parameters(net, objective), lr=1e-7)
    with pytest.warns(UserWarning, match=r"targets are of size .*: standardise them"):
        train(net, objective, data, optimizer)


def test_num_data_is_compared_with_the_rows_of_a_loader():
    net, _, batches = problem()
    objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=5)
    optimizer = torch.optim.SGD(parameters(net, objective), lr=1e-3)
    loader = DataLoader(TensorDataset(batches.x, batches.y), batch_size=16)
    with pytest.raises(ValueError, match=r"num_data must be .* 64 in batches, got 5"):
        train(net, objective, loader, optimizer)


def test_weight_decay_on_the_scales_is_warned_of():
    net, objective, batches = problem()
    optimizer = torch.optim.AdamW(parameters(net, objective), lr=1e-3)
    with pytest.warns(UserWarning, match=r"weight decay 0.01 on the scales of the posterior"):
        train(net, objective, batches, optimizer)


def test_parameter_groups_keep_decay_away_from_scales_and_noise():
    net, objective, batches = problem()
    groups = parameter_groups(net, objective, loc={"weight_decay": 0.1}, rho={"lr": 1e-1})
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(net, objective, batches, optimizer)
    found = {
        group["name"]: (group["lr"], group["weight_decay"]) for group in optimizer.param_groups
    }
    assert found == {"loc": (1e-3, 0.1), "rho": (1e-1, 0.0), "noise": (1e-3, 0.0)}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(parameters(net, objective))


def test_decay_of_rho_moves_scales_that_a_group_of_their_own_keeps():
    """Without data, strength 0: nothing but decay moves a scale."""
    moved = {}
    for name in ("all", "groups"):
        net = problem()[0]
        objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=64, strength=0.0)
        before = net.q().stddev.detach().clone()
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        given = parameters(net) if name == "all" else parameter_groups(net, objective)[:2]
        optimizer = torch.optim.AdamW(given, lr=1e-2, weight_decay=0.1)
        for _ in range(500):
            optimizer.step()
        moved[name] = (net.q().stddev / before).median().item()
    assert moved["all"] > 1.2
    assert moved["groups"] == 1


def test_groups_tell_random_weights_from_others_and_from_factors():
    net = nn.Sequential(
        bd.bayesianize(nn.Linear(3, 4), bd.FanIn(), posterior=bd.LowRank(rank=2)), nn.Linear(4, 1)
    )
    objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=5)
    sizes = {g["name"]: len(g["params"]) for g in parameter_groups(net, objective)}
    assert sizes == {"loc": 1, "rho": 2, "noise": 1, "others": 2}


def test_seeds_of_processes_never_meet_in_a_million_epochs():
    """They met after 7,919 epochs."""
    seen = {own_draws(epoch, 0) for epoch in range(1_000_000)}
    for rank in (1, 2, 7, 63):
        assert seen.isdisjoint(own_draws(epoch, rank) for epoch in range(0, 1_000_000, 97))
        assert own_draws(7_919 * rank, 0) != own_draws(0, rank)
