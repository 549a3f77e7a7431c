"""Trials as one program: every trial is what it would be alone."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.compute import blocks
from bayesdiv.training.steps import Recorded
from reproduction.evidence import Evidence, RenyiVI

TRIALS, ROWS, INPUTS, EPOCHS = 3, 20, 4, 4


def alone(seed: int) -> bd.Bayesian:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(INPUTS, 5), nn.ReLU(), nn.Linear(5, 1))
    return bd.bayesianize(net, bd.Prior(Normal, loc=0.0, scale=1.0), start=0.1)


def made(trials: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(trials, ROWS, INPUTS, generator=generator)
    return x, x.sum(-1) + 0.1 * torch.randn(trials, ROWS, generator=generator)


def trained(models, objective, x, y, seeds, epochs=EPOCHS):
    stack = bd.stacked(models)
    optimizer = torch.optim.Adam([*stack.parameters(), *objective.parameters()], lr=1e-2)
    batches = bd.Batches(x, y, 8, list(seeds))
    epochs = bd.fit(stack, objective, batches, optimizer, epochs, seed=0)
    return stack, [epoch.trials for epoch in epochs]


class Noise:
    """Stands for the noise of the posterior: a stream a trial, read by a lone one too."""

    def __init__(self, trial: int | None) -> None:
        self.streams = [torch.Generator().manual_seed(100 + k) for k in range(TRIALS)]
        self.trial = trial

    def drawn(self, shape, like, seed):
        samples, trials, weights = shape if len(shape) == 3 else (None, *shape)
        chosen = self.streams if self.trial is None else [self.streams[self.trial]]
        assert len(chosen) == trials
        size = (weights,) if samples is None else (samples, weights)
        return torch.stack([torch.randn(size, generator=g) for g in chosen], -2)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.2), bd.JSA(0.4)], ids=repr)
@pytest.mark.parametrize("samples", [1, 3])
def test_a_trial_of_a_stack_is_what_it_is_alone_with_the_same_seed_and_noise(
    divergence, samples, monkeypatch
):
    x, y = made(TRIALS)

    def objective(trials: int) -> bd.Objective:
        return bd.Objective(
            bd.Gaussian(torch.ones(trials)), divergence, num_data=ROWS, samples=samples
        )

    def using(trial: int | None) -> None:
        monkeypatch.setattr(blocks, "standard_normal", Noise(trial).drawn)

    models = [alone(k) for k in range(TRIALS)]
    using(None)
    stack, told = trained(models, objective(TRIALS), x, y, range(TRIALS))
    for k in range(TRIALS):
        using(k)
        single, own = trained([models[k]], objective(1), x[k : k + 1], y[k : k + 1], [k])
        torch.testing.assert_close(stack.loc[k], single.loc[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(told[-1].nll[k], own[-1].nll[0], rtol=1e-4, atol=1e-5)


def test_the_order_of_rows_depends_on_the_trial_s_own_seed_alone():
    x, y = made(2)
    same = x[:1].repeat(2, 1, 1), y[:1].repeat(2, 1)
    objective = bd.Objective(bd.Gaussian(torch.ones(2)), num_data=ROWS, strength=0.0)
    model = bd.bayesianize(
        nn.Linear(INPUTS, 1), bd.Prior(Normal, loc=0.0, scale=1.0), posterior=bd.Point, start=1.0
    )
    one, _ = trained([model, model], objective, *same, [7, 7])
    torch.testing.assert_close(one.loc[0], one.loc[1], rtol=1e-4, atol=1e-4)
    two, _ = trained([model, model], objective, *same, [7, 8])
    assert (two.loc[0] - two.loc[1]).abs().max() > 1e-3
    torch.testing.assert_close(one.loc[0], two.loc[0], rtol=1e-4, atol=1e-4)


def test_each_trial_may_have_its_own_strength_and_alpha():
    x, y = made(2)
    torch.manual_seed(0)
    strength, alpha = torch.tensor([0.5, 4.0]), torch.tensor([[0.2], [0.7]])
    models = [alone(0), alone(1)]
    stack = bd.stacked(models)
    weights = bd.draw_weights(stack, 2)
    objective = bd.Objective(
        bd.Gaussian(torch.ones(2)), bd.JSG(alpha), num_data=ROWS, strength=strength, samples=2
    )
    each = objective.each(stack, weights, x, y)
    for k in range(2):
        single = bd.Objective(
            bd.Gaussian(1.0),
            bd.JSG(alpha[k].item()),
            num_data=ROWS,
            strength=strength[k].item(),
            samples=2,
        )
        own = single.each(models[k], (weights[0][:, k],), x[k], y[k])
        torch.testing.assert_close(each.total[k], own.total)
        torch.testing.assert_close(each.divergence[k], own.divergence)


def test_a_trial_that_diverges_leaves_the_others_alone():
    x, y = made(2)
    models = [alone(0), alone(1)]

    def objective() -> bd.Objective:
        return bd.Objective(bd.Gaussian(torch.ones(2)), num_data=ROWS)

    torch.manual_seed(0)
    good, told = trained(models, objective(), x, y, [0, 1])
    broken = x.clone()
    broken[1, 3, 0] = float("inf")
    bad, ill = trained(models, objective(), broken, y, [0, 1])
    torch.testing.assert_close(bad.loc[0], good.loc[0])
    torch.testing.assert_close(ill[-1].nll[0], told[-1].nll[0])
    assert not bool(ill[-1].nll[1].isfinite())


def test_shapes_that_do_not_fit_the_stack_are_refused():
    x, y = made(2)
    objective = bd.Objective(bd.Gaussian(torch.ones(2)), num_data=ROWS)
    stack = bd.stacked([alone(0), alone(1)])
    optimizer = torch.optim.Adam([*stack.parameters(), *objective.parameters()])
    for args, seeds, rule in (
        ((x[:1], y[:1]), [0], r"stack of 2, .* got x of \(1, 20, 4\)"),
        ((x, y), [0], "one per trial, 2, got 1"),
        ((x[:, :5], y[:, :5]), [0, 1], "5 in batches, got 20"),
        ((x[0], y[0]), 0, r"one seed per trial of a stack of 2, .* got x of \(20, 4\)"),
    ):
        with pytest.raises(ValueError, match=rule):
            next(bd.fit(stack, objective, bd.Batches(*args, 4, seeds), optimizer, 1))


def test_noise_for_another_number_of_trials_is_refused():
    objective = bd.Objective(bd.Gaussian(torch.ones(3)), num_data=ROWS)
    stack = bd.stacked([alone(0), alone(1)])
    optimizer = torch.optim.Adam([*stack.parameters(), *objective.parameters()])
    with pytest.raises(ValueError, match=r"one per trial for \(2,\) trials, got \(3,\)"):
        next(bd.fit(stack, objective, bd.Batches(*made(2), 4, [0, 1]), optimizer, 1))


def test_a_recorded_step_on_a_cpu_is_the_plain_one():
    x, y = made(2)
    found = []
    for step in (bd.Eager(), Recorded()):
        objective = bd.Objective(bd.Gaussian(torch.ones(2)), num_data=ROWS)
        stack = bd.stacked([alone(0), alone(1)])
        optimizer = torch.optim.Adam([*stack.parameters(), *objective.parameters()], lr=1e-2)
        batches = bd.Batches(x, y, 8, [0, 1])
        for _ in bd.fit(stack, objective, batches, optimizer, 2, seed=0, step=step):
            pass
        found.append(stack.loc.detach())
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def test_a_point_posterior_with_kl_is_weight_decay():
    loc = torch.tensor([0.3, -1.2])
    prior = bd.Prior(Normal, loc=0.0, scale=0.5)
    net = bd.bayesianize(nn.Linear(2, 1, bias=False), prior, posterior=bd.Point, start=1.0)
    with torch.no_grad():
        net.posterior.loc.copy_(loc)
    decay = (loc.square() / (2 * 0.25)).sum()
    torch.testing.assert_close(bd.KL()(net.q(), net.p()).sum(), decay)
    out = net(torch.ones(1, 2))
    torch.testing.assert_close(out, torch.tensor([[-0.9]]))


def test_what_would_train_another_model_than_was_meant_is_refused():
    x, y = made(2)
    stack = bd.stacked([alone(0), alone(1)])

    def begun(batch_size=4, divergence=None, strength=1.0, all_of_it=True):
        objective = bd.Objective(
            bd.Gaussian(torch.ones(2)), divergence, num_data=ROWS, strength=strength
        )
        more = objective.parameters() if all_of_it else []
        optimizer = torch.optim.Adam([*stack.parameters(), *more])
        batches = bd.Batches(x, y, batch_size, [0, 1])
        return next(bd.fit(stack, objective, batches, optimizer, 1))

    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        begun(batch_size=0)
    with pytest.raises(ValueError, match=r"strength .* shape \(2,\), one per trial, got \(3,\)"):
        begun(strength=torch.ones(3))
    with pytest.raises(ValueError, match=r"alpha .* shape \(2, 1\), one per trial, got \(2,\)"):
        begun(divergence=bd.JSG(torch.tensor([0.2, 0.3])))
    with pytest.raises(ValueError, match=r"lacks likelihood\.rho"):
        begun(all_of_it=False)
    with pytest.raises(ValueError, match="at least one model"):
        bd.stacked([])


def test_an_objective_and_a_bound_are_not_taken_for_each_other():
    with pytest.raises(TypeError, match="divergence must be a Divergence such as KL"):
        bd.Objective(bd.Gaussian(), RenyiVI(0.5), num_data=3)
    with pytest.raises(TypeError, match="method must be a Method such as RenyiVI"):
        Evidence(bd.Gaussian(), bd.KL(), num_data=3)
