"""Natural gradients: the step itself, what it converges to, and what it survives."""

import copy
import importlib.util
import io
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm
from torch import nn
from torch.distributions import Normal
from torch.nn.functional import softplus

import bayesdiv as bd
from bayesdiv.model.priors import matrices
from bayesdiv.training.optimizers.natural import Natural

# Each with its strength and the smallest rate of its precision: JS-A fades, and is given more.
DIVERGENCES = {
    "kl": (bd.KL(), 1.0, 0.005),
    "jsg": (bd.JSG(0.3), 1.0, 0.005),
    "jsa": (bd.JSA(0.5), 20.0, 0.03),
}


def dense(name: str, m: float, scale: float, prior: float) -> float:
    """A divergence between N(m, scale²) and N(0, prior²) by integration over a dense grid."""
    wide = np.linspace(-10 * prior, 10 * prior, 4001)
    narrow = m + scale * np.linspace(-10, 10, 4001)
    x = np.unique(np.concatenate([wide, narrow]))
    log_q, log_p = norm.logpdf(x, m, scale), norm.logpdf(x, 0, prior)

    def mean(log_density, values):
        return np.trapezoid(np.exp(log_density) * values, x)

    if name == "kl":
        return mean(log_q, log_q - log_p)
    if name == "jsa":
        log_middle = np.logaddexp(log_q + math.log(0.5), log_p + math.log(0.5))
        return 0.5 * mean(log_q, log_q - log_middle) + 0.5 * mean(log_p, log_p - log_middle)
    log_middle = 0.3 * log_q + 0.7 * log_p
    log_middle -= math.log(np.trapezoid(np.exp(log_middle), x))
    return 0.7 * mean(log_q, log_q - log_middle) + 0.3 * mean(log_p, log_p - log_middle)


def train(net, objective, x, y, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        objective(net, x, y).total.backward()
        optimizer.step()
    return net.posterior.loc.detach().numpy(), net.posterior.scale.detach().numpy()


def layer(weights: int) -> nn.Module:
    made = nn.Linear(weights, 1, bias=False).double()
    nn.init.zeros_(made.weight)
    return made


@pytest.mark.parametrize("name", DIVERGENCES)
def test_linear_regression_reaches_the_optimum_found_by_brute_force(name):
    divergence, strength, rate = DIVERGENCES[name]
    torch.manual_seed(0)
    # Orthogonal columns: the weights do not depend on each other, so each has its own optimum.
    columns = torch.linalg.qr(torch.randn(100, 3, dtype=torch.float64)).Q * 10
    columns = columns * torch.tensor([1.0, 0.4, 0.1], dtype=torch.float64)
    truth = torch.tensor([0.8, -0.5, 0.3], dtype=torch.float64)
    y = columns @ truth + 0.5 * torch.randn(100, dtype=torch.float64)
    squares = (columns**2).sum(0).numpy() / 0.25  # curvature of the summed nll, noise of scale .5
    best = (columns.T @ y / (columns**2).sum(0)).numpy()

    def loss(place: np.ndarray, weight: int) -> float:
        m, scale = place[0], math.exp(place[1])
        nll = 0.5 * squares[weight] * ((m - best[weight]) ** 2 + scale**2)
        return nll + strength * dense(name, m, scale, 1.0)

    optima = [
        minimize(loss, [best[weight], -2.0], (weight,), method="Nelder-Mead") for weight in range(3)
    ]
    net = bd.bayesianize(layer(3), bd.Prior(Normal, loc=0.0, scale=1.0), start=0.1)
    likelihood = bd.Gaussian(0.5).double().requires_grad_(False)
    objective = bd.Objective(likelihood, divergence, num_data=100, strength=strength, samples=16)
    optimizer = Natural(net, num_data=100, strength=strength, lr=0.05, memory=20, rate=rate)
    m, scale = train(net, objective, columns, y, optimizer, 900)
    for weight, optimum in enumerate(optima):
        ours = loss(np.array([m[weight], math.log(scale[weight])]), weight)
        assert ours < optimum.fun + 0.02 * strength
        assert scale[weight] == pytest.approx(math.exp(optimum.x[1]), rel=0.12)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_logistic_regression_reaches_the_optimum_found_by_brute_force(name):
    divergence, strength, rate = DIVERGENCES[name]
    torch.manual_seed(1)
    x = torch.randn(80, 2, dtype=torch.float64)
    chance = (x @ torch.tensor([1.0, -0.5], dtype=torch.float64)).sigmoid()
    y = torch.bernoulli(chance)
    nodes, shares = np.polynomial.hermite_e.hermegauss(40)
    shares = shares / shares.sum()
    rows, sign = x.numpy(), 1 - 2 * y.numpy()

    def loss(place: np.ndarray) -> float:
        m, scale = place[:2], np.exp(place[2:])
        logits = (rows @ m)[:, None] + np.sqrt(rows**2 @ scale**2)[:, None] * nodes
        nll = (np.logaddexp(0, sign[:, None] * logits) @ shares).sum()
        parts = [dense(name, *pair, 1.0) for pair in zip(m, scale, strict=True)]
        return nll + strength * sum(parts)

    start = np.array([0.5, -0.3, -1.5, -1.5])
    optimum = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-4})
    net = bd.bayesianize(layer(2), bd.Prior(Normal, loc=0.0, scale=1.0), start=0.1)
    objective = bd.Objective(bd.Binary(), divergence, num_data=80, strength=strength, samples=16)
    optimizer = Natural(net, num_data=80, strength=strength, lr=0.05, memory=20, rate=rate)
    m, scale = train(net, objective, x, y, optimizer, 900)
    assert loss(np.concatenate([m, np.log(scale)])) < optimum.fun + 0.02 * strength
    assert scale == pytest.approx(np.exp(optimum.x[2:]), rel=0.12)


def by_hand(loc, rho, gradients, n, strength, lr, momentum, rate, memory, damping, clip):
    """The formulas with plain numbers, one weight at a time."""
    s, mean = 1 / math.log1p(math.exp(rho)) ** 2, 0.0
    for step, (by_loc, by_rho) in enumerate(gradients, start=1):
        sigma = 1 / math.sqrt(s)
        by_scale = by_rho / (1 - math.exp(-sigma))  # softplus'(rho) = 1 - e^-σ
        lacking = n / strength * by_scale / sigma
        own_rate = max(rate, 1 / (memory + step))
        s *= 1 + min(max(own_rate * lacking / s, -0.5), 1.0)
        mean = momentum * mean + (1 - momentum) * by_loc
        move = mean / (1 - momentum**step) / (strength * s / n + damping)
        loc -= lr * min(max(move, -clip), clip)
    return loc, 1 / math.sqrt(s)


def test_steps_are_those_of_the_formulas():
    torch.manual_seed(0)
    net = bd.bayesianize(layer(4), bd.Prior(Normal, loc=0.0, scale=1.0))
    posterior = net.posterior
    before = posterior.loc.tolist(), posterior.rho.tolist()
    choice = {"lr": 0.3, "momentum": 0.8, "rate": 0.01, "memory": 3.0, "damping": 0.2, "clip": 0.4}
    optimizer = Natural(net, num_data=50, strength=0.7, **choice)
    gradients = 0.05 * torch.randn(5, 2, 4, dtype=torch.float64)
    for by_loc, by_rho in gradients:
        posterior.loc.grad, posterior.rho.grad = by_loc.clone(), by_rho.clone()
        optimizer.step()
    for weight in range(4):
        own = gradients[:, :, weight].tolist()
        loc, scale = by_hand(before[0][weight], before[1][weight], own, 50, 0.7, **choice)
        assert posterior.loc[weight].item() == pytest.approx(loc, rel=1e-12)
        assert posterior.scale[weight].item() == pytest.approx(scale, rel=1e-10)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30, math.inf])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_scale_stays_positive_and_finite_for_any_gradient(size, sign):
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
    optimizer = Natural(net, num_data=10, memory=0.0)
    for _ in range(300):
        net.posterior.loc.grad = torch.zeros_like(net.posterior.loc)
        net.posterior.rho.grad = torch.full_like(net.posterior.rho, sign * size)
        optimizer.step()
    scale = softplus(net.posterior.rho.detach())
    assert bool((scale > 0).all())
    assert bool(scale.isfinite().all())
    assert bool(net.posterior.loc.isfinite().all())


def test_no_scale_grows_beyond_the_widest():
    net = bd.bayesianize(nn.Linear(3, 1), bd.Prior(Normal, loc=0.0, scale=0.2))
    optimizer = Natural(net, num_data=10, memory=0.0, widest=0.2)
    for _ in range(50):
        net.posterior.loc.grad = torch.zeros_like(net.posterior.loc)
        net.posterior.rho.grad = torch.full_like(net.posterior.rho, -1.0)
        optimizer.step()
    assert torch.allclose(net.posterior.scale, torch.tensor(0.2))


def test_noise_in_the_curvature_does_not_move_the_mean_precision():
    # Many copies of one weight: gradients of variance h/256 about h (w - m), KL at strength .1.
    torch.manual_seed(0)
    examples, h, decay = 50_000 / 0.1, 1e-3, 5e-4  # 1/σ_p² = examples · decay
    wanted = examples * (h + decay)
    net = bd.bayesianize(nn.Linear(2000, 1, bias=False), bd.FanIn())
    net.posterior.rho.data.fill_(math.log(math.expm1(wanted**-0.5)))
    optimizer = Natural(net, num_data=50_000, strength=0.1, memory=1000.0, rate=1e-3)
    noise, means = torch.empty(2, 2000), []
    for step in range(4000):
        noise.normal_()
        scale = net.posterior.scale.detach()
        gradient = math.sqrt(h / 256) * noise[0] + h * scale * noise[1]
        by_scale = gradient * noise[1] + decay * scale - 1 / (examples * scale)
        net.posterior.loc.grad = torch.zeros_like(scale)
        net.posterior.rho.grad = by_scale * net.posterior.rho.detach().sigmoid()
        optimizer.step()
        means += [scale.pow(-2).mean().item()] if step >= 3000 else []
    assert sum(means) / len(means) == pytest.approx(wanted, rel=0.05)


def regression() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    x = torch.randn(40, 3)
    return x, x.sum(1) + 0.1 * torch.randn(40)


def fitted(model, objective, optimizer, x, y, steps):
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        objective(model, x, y).total.backward()
        optimizer.step()


def test_a_run_goes_on_from_its_state_as_if_it_had_not_stopped():
    x, y = regression()
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
    objective = bd.Objective(bd.Gaussian(), num_data=40)
    optimizer = Natural(net, objective, num_data=40, lr=torch.tensor(0.02))
    fitted(net, objective, optimizer, x, y, 5)
    other, again = copy.deepcopy(net), copy.deepcopy(objective)
    resumed = Natural(other, again, num_data=40, lr=torch.tensor(0.02))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file))
    fitted(net, objective, optimizer, x, y, 5)
    fitted(other, again, resumed, x, y, 5)
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    assert torch.equal(objective.likelihood.rho, again.likelihood.rho)


def test_a_compiled_step_is_one_graph_and_the_same_step():
    compiled = partial(torch.compile, backend="aot_eager", fullgraph=True)
    x, y = regression()
    ends = []
    for transform in (None, compiled):
        torch.manual_seed(0)
        net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        objective = bd.Objective(bd.Gaussian(), num_data=40)
        optimizer = Natural(net, objective, num_data=40, lr=0.02, clip=0.5, transform=transform)
        fitted(net, objective, optimizer, x, y, 4)
        ends.append([p.detach() for p in net.parameters()])
    assert all(torch.allclose(*pair) for pair in zip(*ends, strict=True))


def test_a_copy_of_the_optimizer_goes_on_with_copies_of_the_parameters():
    x, y = regression()
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
    objective = bd.Objective(bd.Gaussian(), num_data=40)
    optimizer = Natural(net, objective, num_data=40)
    whole = net, objective, optimizer
    fitted(*whole, x, y, 2)
    again = copy.deepcopy(whole)
    fitted(*whole, x, y, 2)
    fitted(*again, x, y, 2)
    assert torch.equal(net.posterior.rho, again[0].posterior.rho)


def test_trials_with_strengths_of_their_own_learn_as_each_would_alone():
    torch.manual_seed(0)
    gradients = torch.randn(4, 2, 2, 3)  # steps, loc and rho, trials, weights
    strengths = torch.tensor([0.5, 2.0])
    nets = [bd.bayesianize(nn.Linear(3, 1, bias=False), bd.FanIn()) for _ in range(2)]
    together = bd.stacked(nets)
    every = [(together, Natural(together, num_data=9, strength=strengths), ...)]
    for trial, net in enumerate(nets):
        own = Natural(net, num_data=9, strength=strengths[trial].item())
        every.append((net, own, trial))
    for step in gradients:
        for net, optimizer, trial in every:
            net.posterior.loc.grad = step[0][trial].clone()
            net.posterior.rho.grad = step[1][trial].clone()
            optimizer.step()
    for trial, net in enumerate(nets):
        assert torch.allclose(together.posterior.loc[trial], net.posterior.loc, rtol=1e-5)
        assert torch.allclose(together.posterior.rho[trial], net.posterior.rho, rtol=1e-5)


def test_other_parameters_learn_like_sgd_with_momentum_once_it_is_under_way():
    torch.manual_seed(0)
    net = nn.Sequential(bd.bayesianize(nn.Linear(2, 2), bd.FanIn()), nn.Linear(2, 1))
    plain = copy.deepcopy(net[1])
    optimizer = Natural(net, num_data=10, others_lr=0.01)
    sgd = torch.optim.SGD(plain.parameters(), lr=0.01, momentum=0.9)
    for _ in range(100):
        before = [net[1].weight.detach().clone(), plain.weight.detach().clone()]
        for parameter in (*net[1].parameters(), *plain.parameters()):
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        sgd.step()
    assert torch.allclose(net[1].weight - before[0], plain.weight - before[1], rtol=1e-3)


def test_other_parameters_decay_by_themselves():
    net = nn.Sequential(bd.bayesianize(nn.Linear(2, 2), bd.FanIn()), nn.Linear(2, 1))
    optimizer = Natural(net, num_data=10, momentum=0.0, others_lr=0.1, others_decay=0.5)
    before = net[1].weight.detach().clone()
    net[1].weight.grad = torch.zeros_like(before)
    optimizer.step()
    assert torch.allclose(net[1].weight, 0.95 * before)


def test_fit_trains_every_parameter_by_it_and_a_schedule_reaches_every_group():
    x, y = regression()
    hidden = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    net = bd.bayesianize(hidden, bd.FanIn(), where=matrices, start=0.1)
    objective = bd.Objective(bd.Gaussian(), bd.JSG(0.1), num_data=40, strength=0.1)
    rate = torch.tensor(0.03)
    optimizer = Natural(net, objective, num_data=40, strength=0.1, lr=rate, damping=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    losses = []
    for epoch in bd.fit(net, objective, bd.Batches(x, y, 20), optimizer, 60, seed=0):
        losses.append(epoch.loss.nll)
        if epoch.number == 50:
            schedule.step()
    assert losses[-1] < 0.6 * losses[0]
    assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.015] * 2)
    after = net.state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before if "prior" not in name)


def test_every_group_has_a_rate_of_its_own():
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn(), by=str)
    optimizer = Natural(net, nn.Linear(1, 1), num_data=10, lr=torch.tensor(0.5))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
    for _ in range(2):
        plateau.step(1.0)
    assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.05] * 3)


@pytest.mark.parametrize("strength", [0.0, torch.tensor([1.0, 0.0])])
def test_a_strength_of_zero_is_refused(strength):
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
    with pytest.raises(ValueError, match="strength must be positive"):
        Natural(net, num_data=10, strength=strength)


def test_a_model_without_a_gaussian_posterior_is_refused():
    with pytest.raises(ValueError, match="needs a module with a MeanField"):
        Natural(nn.Linear(3, 1), num_data=10)


@pytest.mark.parametrize(
    "bad",
    [
        {"num_data": 0},
        {"momentum": 1.0},
        {"rate": 1.0},
        {"memory": -1.0},
        {"memory": math.nan},
        {"damping": -1.0},
        {"lr": -1.0},
        {"lr": torch.tensor(math.nan)},
        {"others_lr": -1.0},
        {"others_decay": math.nan},
        {"clip": 0.0},
        {"widest": 0.0},
    ],
)
def test_impossible_settings_are_refused(bad):
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
    with pytest.raises(ValueError, match="must"):
        Natural(net, **{"num_data": 10} | bad)


def test_parameters_in_the_place_of_modules_are_refused():
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
    with pytest.raises(TypeError, match=r"takes modules, not their parameters.*got generator"):
        Natural(net.parameters(), num_data=10)


@pytest.mark.parametrize("name", ["loc", "rho"])
def test_a_posterior_that_is_frozen_by_half_is_refused_and_not_left_alone(name):
    x, y = regression()
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
    objective = bd.Objective(bd.Gaussian(), num_data=40)
    optimizer = Natural(net, objective, num_data=40)
    net.posterior.get_parameter(name).requires_grad_(False)
    objective(net, x, y).total.backward()
    with pytest.raises(ValueError, match="freeze neither or both"):
        optimizer.step()


def test_a_group_that_is_added_later_learns_as_the_other_parameters_do():
    net, later = bd.bayesianize(nn.Linear(3, 1), bd.FanIn()), nn.Linear(2, 1)
    optimizer = Natural(net, num_data=40, lr=0.1)
    optimizer.add_param_group({"params": later.parameters()})
    before = later.weight.detach().clone()
    later(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    # As torch's SGD with momentum after many such steps: 1/(1 - 0.9) of the rate.
    torch.testing.assert_close(before - later.weight, torch.full((1, 2), 1.0))


def test_two_processes_train_as_one_with_the_whole_batch(tmp_path):
    script = Path(__file__).parent / "natural_ranks.py"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    command = [*launcher, "--master_port=0", "--standalone", script, tmp_path]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command, env=environment, check=False, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    spec = importlib.util.spec_from_file_location("natural_ranks", script)
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    for name, value in alone.trained().items():
        assert torch.equal(ranks[0][name], ranks[1][name])
        assert torch.allclose(ranks[0][name], value, atol=1e-5)
