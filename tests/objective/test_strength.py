"""The strength before the divergence: fixed, rising, and the multiplier of a constraint."""

import pytest
import torch
from scipy.optimize import brentq
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd

NOISE, ROWS, STEPS = 0.5, 30, 2500
PRIOR = bd.Prior(Normal, loc=0.0, scale=1.0)


def data():
    """Orthogonal inputs, for which independent Gaussians hold the exact posterior."""
    generator = torch.Generator().manual_seed(0)
    square = torch.linalg.qr(torch.randn(ROWS, 3, generator=generator)).Q
    x = square * torch.tensor([3.0, 1.0, 0.5])
    return x, x @ torch.tensor([1.0, -2.0, 1.5])


def divergence_at(strength):
    """KL per weight of the conjugate posterior whose prior counts `strength` times."""
    x, y = (side.double() for side in data())
    precision, pull = x.square().sum(0) / NOISE**2, x.T @ y / NOISE**2
    variance, loc = strength / (precision + strength), pull / (precision + strength)
    return float((0.5 * (variance + loc.square() - 1 - variance.log())).mean())


def multiplier(epsilon):
    return brentq(lambda strength: divergence_at(strength) - epsilon, 1e-4, 1e4)


def trained(constraint, trials=None):
    torch.manual_seed(0)
    x, y = data()
    net = bd.bayesianize(nn.Linear(3, 1, bias=False), PRIOR)
    noise = NOISE
    if trials:
        net = bd.stacked([net] * trials)
        x, y = (side.expand(trials, *side.shape) for side in (x, y))
        noise = torch.full((trials,), NOISE)
    likelihood = bd.Gaussian(noise).requires_grad_(False)
    objective = bd.Objective(likelihood, num_data=ROWS, strength=constraint, samples=16)
    optimizer = torch.optim.Adam([*net.parameters(), *constraint.parameters()], lr=2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in bd.fit(
        net,
        objective,
        bd.Batches(x, y, ROWS, [0] * trials if trials else 0),
        optimizer,
        STEPS,
        schedule=schedule,
    ):
        pass
    return constraint.value()


@pytest.mark.parametrize("initial", [100.0, 1.0, 1e-3])
def test_the_multiplier_reaches_its_closed_form_from_any_start(initial):
    epsilon = divergence_at(0.45)
    assert multiplier(epsilon) == pytest.approx(0.45)
    found = trained(bd.Constraint(epsilon, initial=initial))
    assert found.item() == pytest.approx(0.45, rel=0.05)


def test_each_trial_of_a_stack_has_its_own_multiplier():
    epsilon = divergence_at(0.45)
    found = trained(bd.Constraint(epsilon, initial=torch.tensor([100.0, 1.0, 0.1])), trials=3)
    assert found.tolist() == pytest.approx([0.45] * 3, rel=0.05)


def test_a_constraint_with_one_multiplier_for_a_stack_is_refused():
    stack = bd.stacked([bd.bayesianize(nn.Linear(3, 1), PRIOR) for _ in range(2)])
    objective = bd.Objective(
        bd.Gaussian(torch.ones(2)), num_data=4, strength=bd.Constraint(epsilon=0.1)
    )
    optimizer = torch.optim.Adam([*stack.parameters(), *objective.parameters()])
    batches = bd.Batches(torch.zeros(2, 4, 3), torch.zeros(2, 4), 2, [0, 1])
    with pytest.raises(ValueError, match=r"one multiplier per trial, shape \(2,\), got \(\)"):
        next(bd.fit(stack, objective, batches, optimizer, 1))


def test_every_strength_reports_what_the_loss_takes():
    each = [2.0, torch.tensor([1.0, 3.0]), bd.WarmUp(4, 8.0), bd.Constraint(0.1, initial=2.0)]
    for given in each:
        strength = bd.Objective(bd.Gaussian(), num_data=1, strength=given).strength
        strength.begin(0)
        value = torch.as_tensor(strength.value()).mean().item()
        assert strength.report() == pytest.approx(value) == pytest.approx(2.0)


def test_multiplier_and_weights_do_not_chase_each_other():
    torch.manual_seed(0)
    x = torch.randn(200, 3)
    y = x[:, 0] + 0.1 * torch.randn(200)
    net = bd.bayesianize(nn.Linear(3, 1), PRIOR)
    limit = bd.Constraint(epsilon=0.5)
    objective = bd.Objective(bd.Gaussian(), num_data=200, strength=limit)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=2e-2)
    epochs = bd.fit(net, objective, bd.Batches(x, y, 50), optimizer, 400, seed=0)
    each = [epoch.loss.divergence / 4 for epoch in epochs][-150:]
    assert 0.4 < min(each) < max(each) < 0.65  # undamped, it swings from 0.3 to 0.8
