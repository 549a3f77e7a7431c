"""The loss: its parts, its scale, its limits and what it converges to."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.distributions import Laplace, LogNormal, Normal, kl_divergence
from torch.nn.functional import cross_entropy, softplus

import bayesdiv as bd
from bayesdiv.compute import backend, table
from bayesdiv.likelihoods import Likelihood

STANDARD = bd.Prior(Normal, loc=0.0, scale=1.0)
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(10, 3, generator=GENERATOR, dtype=torch.float64)
Y = torch.randn(10, generator=GENERATOR, dtype=torch.float64)


def network(seed=0, outputs=1):
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs)).double()
    return bd.bayesianize(module, STANDARD)


def learned(*modules):
    return [parameter for module in modules for parameter in module.parameters()]


# Its parts -----------------------------------------------------------------------------------


def test_the_total_is_the_mean_nll_plus_strength_over_data_times_the_divergence():
    net = network()
    objective = bd.Objective(bd.Gaussian(0.5), bd.JSG(0.3), num_data=50, strength=3.0, samples=4)
    weights = bd.draw_weights(net, 4)
    loss = objective.given(net, weights, X, Y)
    nll = -Normal(bd.draws(net, X, weights)[..., 0], 0.5).log_prob(Y)
    divergence = bd.JSG(0.3)(net.q(), net.p()).sum()
    assert loss.nll.item() == pytest.approx(nll.mean().item(), rel=1e-6)
    assert loss.divergence.item() == pytest.approx(divergence.item(), rel=1e-9)
    assert loss.total.item() == pytest.approx((nll.mean() + 3 / 50 * divergence).item(), rel=1e-6)


@pytest.mark.parametrize(
    "divergence", [bd.KL(), bd.JSG(0.0), bd.WeightedKL(0.0), bd.JSA(0.0)], ids=repr
)
def test_at_alpha_0_and_strength_1_every_divergence_gives_the_elbo_and_its_gradients(divergence):
    net, likelihood = network(), bd.Gaussian(0.5)
    objective = bd.Objective(likelihood, divergence, num_data=10)
    weights = bd.draw_weights(net, 6)
    total = objective.given(net, weights, X, Y).total
    # The negative ELBO by torch alone: E_q[-log p(y|w)] + KL(q ‖ p), for one of ten examples.
    each = torch.stack([net.with_weights(w, X)[:, 0] for w in weights[0]])
    log_likelihood = Normal(each, softplus(likelihood.rho)).log_prob(Y).sum(1).mean()
    scale = softplus(net.posterior.rho)
    kl = kl_divergence(Normal(net.posterior.loc, scale), Normal(0.0, 1.0)).sum()
    negative_elbo = (kl - log_likelihood) / 10
    assert total.item() == pytest.approx(negative_elbo.item(), rel=1e-6)
    ours = torch.autograd.grad(total, learned(net, likelihood), retain_graph=True)
    wanted = torch.autograd.grad(negative_elbo, learned(net, likelihood))
    for one, two in zip(ours, wanted, strict=True):
        assert torch.allclose(one, two, rtol=1e-6, atol=1e-9)


def test_a_deterministic_model_has_no_divergence():
    module = nn.Linear(3, 4)
    x, y = X.float(), torch.arange(10) % 4
    loss = bd.Objective(bd.Classes(), bd.JSA(0.3), num_data=10, samples=5)(module, x, y)
    assert loss.divergence.item() == 0
    assert loss.total.item() == pytest.approx(cross_entropy(module(x), y).item(), rel=1e-6)


def test_epoch_sum_of_batch_losses_is_the_full_loss_with_a_short_last_batch():
    net = network()
    objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=10)
    weights = bd.draw_weights(net, 3)
    full = objective.given(net, weights, X, Y).total
    parts = [
        len(x) / 10 * objective.given(net, weights, x, y).total
        for x, y in zip(X.split(4), Y.split(4), strict=True)
    ]
    assert [len(x) for x in X.split(4)] == [4, 4, 2]
    assert sum(parts).item() == pytest.approx(full.item(), rel=1e-9)
    for one, two in zip(
        torch.autograd.grad(sum(parts), learned(net), retain_graph=True),
        torch.autograd.grad(full, learned(net)),
        strict=True,
    ):
        assert torch.allclose(one, two, atol=1e-12)


def test_words_of_a_sentence_are_added_up_and_sentences_averaged():
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Embedding(6, 5), STANDARD)
    words, targets = torch.randint(6, (3, 4)), torch.randint(5, (3, 4))
    weights = bd.draw_weights(net, 2)
    loss = bd.Objective(bd.Classes(), num_data=3).given(net, weights, words, targets)
    each = [
        cross_entropy(net.with_weights(w, words).flatten(0, 1), targets.flatten(), reduction="sum")
        / 3
        for w in weights[0]
    ]
    assert loss.nll.item() == pytest.approx((sum(each) / 2).item(), rel=1e-6)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "shape"),
    [
        (bd.Gaussian(), 1, (10, 1)),
        (bd.Gaussian(), 1, (1,)),
        (bd.Gaussian(), 2, (10,)),
        (bd.Gaussian(), 2, (10, 1)),
        (bd.Classes(), 2, (10, 1)),
        (bd.Binary(), 1, (10, 1)),
        (bd.StudentTNoise(), 1, (10, 1)),
    ],
)
def test_targets_of_another_shape_raise_and_do_not_broadcast(likelihood, outputs, shape):
    objective = bd.Objective(likelihood, num_data=10)
    with pytest.raises(ValueError, match="targets must have shape"):
        objective(network(outputs=outputs), X, torch.zeros(shape))


def test_a_column_of_targets_is_to_be_squeezed():
    objective = bd.Objective(bd.Gaussian(), num_data=10)
    told = r"shape \(10,\), got \(10, 1\): squeeze them, y.squeeze\(-1\)"
    with pytest.raises(ValueError, match=told):
        objective(network(), X, torch.zeros(10, 1))
    with pytest.raises(ValueError, match=r"got \(9,\): reshape them to fit the outputs"):
        objective(network(), X, torch.zeros(9))


def test_targets_of_the_shape_of_the_prediction_are_taken():
    for outputs, shape in ((1, (10,)), (2, (10, 2))):
        loss = bd.Objective(bd.Gaussian(), num_data=10)(
            network(outputs=outputs), X, torch.zeros(shape)
        )
        assert loss.total.shape == ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_data": 0}, "num_data must be at least 1"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"strength": -1.0}, "strength must be finite and not negative"),
        ({"strength": float("nan")}, "strength must be finite and not negative"),
        ({"strength": float("inf")}, "strength must be finite and not negative"),
    ],
)
def test_settings_without_sense_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        bd.Objective(bd.Gaussian(), **{"num_data": 10, **wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"likelihood": bd.Gaussian}, "likelihood must be a module such as Gaussian"),
        ({"divergence": bd.KL}, "divergence must be a Divergence such as KL"),
        ({"estimator": "exact"}, "estimator must be an Estimator such as Exact"),
        ({"over": bd.Looped}, "over must be a way to run draws such as Looped"),
        ({"num_data": "10"}, "num_data must be at least 1, a whole number, got '10'"),
        ({"samples": 1.5}, "samples must be at least 1, a whole number, got 1.5"),
    ],
)
def test_settings_of_another_kind_are_refused(wrong, message):
    with pytest.raises((TypeError, ValueError), match=message):
        bd.Objective(**{"likelihood": bd.Gaussian(), "num_data": 10, **wrong})


LABELS = "class labels must be whole numbers from"
COUNTS = "targets must be whole numbers from 0 up"


@pytest.mark.parametrize(
    ("likelihood", "outputs", "wrong", "value"),
    [
        (bd.Classes(), 3, torch.tensor([0, 3] * 5), f"{LABELS} 0 to 2, got 3: "),
        (bd.Classes(), 3, torch.tensor([0, -1] * 5), f"{LABELS} 0 to 2, got -1: "),
        (bd.Classes(), 3, torch.full((10,), 0.5), f"{LABELS} 0 to 2, got 0.5: "),
        (bd.Binary(), 1, torch.full((10,), 2.0), "targets must be numbers from 0 to 1, got 2.0: "),
        (bd.Poisson(), 1, torch.full((10,), -2.0), f"{COUNTS}, got -2.0: "),
        (bd.Poisson(), 2, torch.full((10, 2), 0.5), f"{COUNTS}, got 0.5: "),
    ],
)
def test_targets_that_no_output_describes_are_refused(likelihood, outputs, wrong, value):
    objective = bd.Objective(likelihood, num_data=10, samples=2)
    with pytest.raises(ValueError, match=value):
        objective(network(outputs=outputs), X, wrong)


def test_shares_of_two_classes_and_labels_that_are_left_out_are_targets():
    shares, labels = torch.linspace(0, 1, 10), torch.tensor([-100, 1] * 5)
    assert bd.Objective(bd.Binary(), num_data=10)(network(), X, shares).total.isfinite()
    classes = bd.Objective(bd.Classes(ignore=-100), num_data=10)
    assert classes(network(outputs=3), X, labels).total.isfinite()


class Positive(Likelihood):
    """Targets that are positive or missing."""

    def counted(self, y):
        return ~y.isnan()

    def forward(self, outputs):
        return LogNormal(outputs.squeeze(-1), torch.ones(()), validate_args=False)


def test_a_missing_target_is_not_looked_at():
    objective = bd.Objective(Positive(), num_data=10)
    missing = torch.where(Y[2] == Y, math.nan, Y.exp())
    assert objective(network(), X, missing).total.isfinite()
    with pytest.raises(ValueError, match=r"targets of LogNormal must lie in .*, got -1"):
        objective(network(), X, missing.where(missing.isnan(), -1.0))


def test_targets_of_later_batches_are_looked_at_on_a_cpu():
    objective, net = bd.Objective(bd.Binary(), num_data=10), network()
    objective(net, X, torch.ones(10))
    with pytest.raises(ValueError, match="numbers from 0 to 1, got 7"):
        objective(net, X, torch.full((10,), 7.0))


@pytest.mark.parametrize("which", ["inputs", "targets"])
def test_arrays_in_a_loop_of_ones_own_are_refused_with_what_to_do(which):
    x, y = (X.numpy(), Y) if which == "inputs" else (X, Y.numpy())
    with pytest.raises(TypeError, match=f"{which} must be .*: .*torch.as_tensor"):
        bd.Objective(bd.Gaussian(), num_data=10)(network(), x, y)


class Annealed(nn.Module):
    """A prior of one's own whose scale is an ordinary attribute."""

    width = 1.0

    def forward(self):
        return Normal(torch.zeros(()), torch.tensor(self.width))


class Learned(nn.Module):
    """A prior of one's own whose scale may be learned."""

    def __init__(self):
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self):
        return Normal(torch.zeros(()), self.log.exp())


def moved_by_data(net):
    net.prior.scale.data.fill_(10.0)


def moved_by_attribute(net):
    net.prior.width = 10.0


def moved_to_double(net):
    net.double()


def moved_to_another_family(net):
    net.prior.family = Laplace


@pytest.mark.parametrize(
    ("prior", "move"),
    [
        (bd.FanIn(), moved_by_data),
        (Annealed(), moved_by_attribute),
        (bd.FanIn(), moved_to_double),
        (bd.FanIn(), moved_to_another_family),
    ],
)
def test_a_prior_that_was_changed_between_steps_is_the_one_that_counts(prior, move):
    net = bd.bayesianize(nn.Linear(3, 1), prior)
    objective = bd.Objective(bd.Gaussian(), num_data=10)
    objective(net, X.float(), Y.float())
    move(net)
    found = objective(net, X.to(net.dtype), Y.to(net.dtype)).divergence
    wanted = bd.KL()(net.q(), net.p()).sum()
    assert found.dtype == wanted.dtype
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)


def test_a_prior_that_is_to_learn_from_now_on_learns():
    net = bd.bayesianize(nn.Linear(3, 1), Learned())
    objective = bd.Objective(bd.Gaussian(), num_data=10)
    objective(net, X.float(), Y.float())
    net.prior.log.requires_grad_(True)
    objective(net, X.float(), Y.float()).total.backward()
    assert net.prior.log.grad != 0


@pytest.mark.parametrize("units", [1, 100])
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSA(0.3), bd.JSG(0.3)], ids=repr)
def test_what_is_kept_from_inference_mode_serves_training(divergence, samples, units, monkeypatch):
    monkeypatch.setattr(backend, "_trusted", {})
    for kept in (table.of, table.packed):
        kept.cache_clear()
    source = nn.Sequential(nn.Linear(60, units), nn.ReLU(), nn.Linear(units, 1))
    net, x = bd.bayesianize(source, bd.FanIn()), torch.randn(10, 60)
    objective = bd.Objective(bd.Gaussian(), divergence, num_data=10, samples=samples)
    with torch.inference_mode():
        objective(net, x, Y.float())
    objective(net, x, Y.float()).total.backward()
    assert net.posterior.loc.grad.isfinite().all()
    assert all(backend._trusted.values())


def test_targets_are_looked_at_again_with_another_model():
    objective = bd.Objective(bd.Classes(), num_data=10)
    objective(network(outputs=3), X, torch.full((10,), 2))
    with pytest.raises(ValueError, match="whole numbers from 0 to 1, got 2"):
        objective(network(outputs=2), X, torch.full((10,), 2))


def test_a_rule_looked_up_for_one_model_is_not_used_for_another_kind():
    objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=10)
    laplace = bd.bayesianize(nn.Linear(3, 1).double(), bd.Prior(Laplace, loc=0.0, scale=1.0))
    normal, layers = network(), nn.Sequential(network(outputs=3), nn.Tanh(), network())
    objective.prepare(normal)
    for net in (laplace, normal, layers, copy.deepcopy(normal).float()):
        x = X.float() if net.state_dict().popitem()[1].dtype == torch.float32 else X
        fresh = bd.Objective(bd.Gaussian(), bd.KL(), num_data=10)
        weights = bd.draw_weights(net, 2)
        assert (
            objective.given(net, weights, x, Y).divergence
            == fresh.given(net, weights, x, Y).divergence
        )


def test_an_objective_that_was_called_is_copied_without_the_model():
    net, objective = network(), bd.Objective(bd.Gaussian(), num_data=10)
    weights = bd.draw_weights(net, 2)
    wanted = objective.given(net, weights, X, Y).total
    for other in (copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        assert other.given(net, weights, X, Y).total == wanted
    assert len(pickle.dumps(objective)) < len(pickle.dumps([objective, net]))


# Its strength --------------------------------------------------------------------------------


def test_warm_up_rises_linearly_and_stays():
    warm = bd.WarmUp(epochs=4, strength=2.0)
    assert [warm.value(epoch) for epoch in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    for wrong in ({"epochs": 0}, {"epochs": 2, "strength": -1.0}):
        with pytest.raises(ValueError, match="epochs must be at least 1"):
            bd.WarmUp(**wrong)


def test_the_loss_takes_the_strength_of_the_epoch_it_is_told():
    net = network()
    objective = bd.Objective(bd.Gaussian(), num_data=10, strength=bd.WarmUp(4, strength=2.0))
    weights = bd.draw_weights(net, 2)
    for epoch, strength in enumerate((0.5, 1.0, 1.5, 2.0, 2.0)):
        objective.epoch = epoch
        loss = objective.given(net, weights, X, Y)
        wanted = loss.nll + strength / 10 * loss.divergence
        assert loss.total.item() == pytest.approx(wanted.item(), rel=1e-9)


def test_a_constraint_does_not_change_the_value_of_the_loss():
    net = network()
    constraint = bd.Constraint(epsilon=0.1, initial=2.0)
    objective = bd.Objective(bd.Gaussian(), num_data=10, strength=constraint)
    loss = objective(net, X, Y)
    assert loss.total.item() == pytest.approx((loss.nll + 0.2 * loss.divergence).item(), rel=1e-6)
    (slope,) = torch.autograd.grad(loss.total, constraint.log_strength)
    # A violated limit makes λ grow: descent along a negative slope.
    assert slope.item() == pytest.approx(-2.0 * (loss.divergence.item() / 21 - 0.1), rel=1e-5)
    assert slope.item() < 0


@pytest.mark.parametrize("epsilon", [0.2, 0.8])
def test_dual_ascent_brings_the_divergence_to_its_limit(epsilon):
    torch.manual_seed(0)
    x = torch.randn(40, 4)
    y = x @ torch.tensor([1.5, -1.0, 0.5, 2.0])
    net = bd.bayesianize(nn.Linear(4, 1, bias=False), STANDARD, start=0.5)
    likelihood = bd.Gaussian(0.5).requires_grad_(False)
    constraint = bd.Constraint(epsilon)
    objective = bd.Objective(likelihood, bd.JSA(0.3), num_data=40, strength=constraint, samples=8)
    optimizer = torch.optim.Adam(learned(net, constraint), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
    for _ in range(500):
        optimizer.zero_grad()
        loss = objective(net, x, y)
        loss.total.backward()
        optimizer.step()
        schedule.step()
    assert loss.divergence.item() / 4 == pytest.approx(epsilon, rel=0.1)
    assert constraint.value().item() > 0


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"epsilon": 1.0, "initial": 0.0}])
def test_a_constraint_has_a_positive_limit_and_initial_strength(wrong):
    with pytest.raises(ValueError, match="epsilon and initial must be positive"):
        bd.Constraint(**wrong)


# What it converges to ------------------------------------------------------------------------


def fitted(x, y, noise):
    """Mean and scale that a linear model with this known noise is trained to, by KL."""
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(x.shape[1], 1, bias=False).double(), STANDARD)
    likelihood = bd.Gaussian(noise).requires_grad_(False)
    objective = bd.Objective(likelihood, bd.KL(), num_data=len(x), samples=100)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 600)
    for _ in range(600):
        optimizer.zero_grad()
        objective(net, x, y).total.backward()
        optimizer.step()
        schedule.step()
    return net.q().mean.detach(), net.q().stddev.detach()


def exact(x, y, noise):
    """Mean and precision of the conjugate posterior under a standard normal prior."""
    precision = x.T @ x / noise**2 + torch.eye(x.shape[1], dtype=x.dtype)
    return torch.linalg.solve(precision, x.T @ y / noise**2), precision


def test_linear_regression_reaches_its_exact_posterior_where_inputs_are_orthogonal():
    square = torch.linalg.qr(torch.randn(12, 3, generator=GENERATOR, dtype=torch.float64)).Q
    x = square * torch.tensor([3.0, 1.0, 0.5], dtype=torch.float64)
    y = x @ torch.tensor([1.0, -2.0, 1.5], dtype=torch.float64) + 0.1
    loc, scale = fitted(x, y, noise=0.5)
    mean, precision = exact(x, y, noise=0.5)
    assert torch.allclose(loc, mean, rtol=0.02)
    assert torch.allclose(scale, precision.diagonal().rsqrt(), rtol=0.02)
    assert torch.allclose(scale, torch.linalg.inv(precision).diagonal().sqrt(), rtol=0.02)


def test_with_correlated_inputs_the_scales_are_those_of_the_diagonal_of_the_precision():
    """The known limit of independent Gaussians: right means, scales that are too small."""
    mix = torch.tensor([[1.0, 0.9, 0.0], [0.0, 0.5, 0.3], [0.0, 0.0, 1.0]], dtype=torch.float64)
    x = torch.randn(12, 3, generator=GENERATOR, dtype=torch.float64) @ mix
    y = x @ torch.tensor([1.0, -2.0, 1.5], dtype=torch.float64) + 0.1
    loc, scale = fitted(x, y, noise=0.5)
    mean, precision = exact(x, y, noise=0.5)
    assert torch.allclose(loc, mean, rtol=0.02)
    assert torch.allclose(scale, precision.diagonal().rsqrt(), rtol=0.02)
    assert (scale < 0.95 * torch.linalg.inv(precision).diagonal().sqrt()).any()


# Trials side by side -------------------------------------------------------------------------

TRIALS = 3


def trial(number):
    torch.manual_seed(10 + number)
    net = bd.bayesianize(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double(), bd.AroundStart(0.5)
    )
    return net, torch.randn(10, 3).double(), torch.randn(10).double()


def objective_with(scale):
    return bd.Objective(bd.Gaussian(scale), bd.JSA(0.3), num_data=10, samples=2).double()


def trained(net, objective, x, y, noise, steps=5):
    """Losses of training with given noise, (steps, samples, …, weights)."""
    optimizer = torch.optim.Adam(learned(net, objective), lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        weights = net.q().mean + net.q().stddev * noise[step]
        objective.given(net, (weights,), x, y).total.backward()
        optimizer.step()
    return net, objective


SCALES = [0.3, 1.0, 2.0]


@pytest.mark.parametrize("over", [bd.Vectorized(), bd.Looped(), bd.Vectorized(chunk=1)], ids=repr)
def test_a_trial_in_a_stack_has_the_gradients_it_has_alone(over):
    nets, inputs, targets = zip(*(trial(number) for number in range(TRIALS)), strict=True)
    stack = bd.stacked(nets)
    together = objective_with(torch.tensor(SCALES))
    together.over = over
    weights = bd.draw_weights(stack, 2)
    loss = together.given(stack, weights, torch.stack(inputs), torch.stack(targets))
    found = torch.autograd.grad(loss.total, learned(stack, together))
    alone = [objective_with(scale) for scale in SCALES]
    total = 0.0
    for k, (net, objective, x, y) in enumerate(zip(nets, alone, inputs, targets, strict=True)):
        noise = (weights[0][:, k] - stack.q().mean[k]) / stack.q().stddev[k]
        own = (net.q().mean + net.q().stddev * noise.detach(),)
        single = objective.given(net, own, x, y).total
        total += single.item()
        wanted = torch.autograd.grad(single, learned(net, objective))
        for one, two in zip(found, wanted, strict=True):
            assert torch.allclose(one[k], two, rtol=1e-6, atol=1e-9)
    assert loss.total.item() == pytest.approx(total, rel=1e-9)


def test_a_trial_trained_in_a_stack_ends_where_it_ends_alone():
    nets, inputs, targets = zip(*(trial(number) for number in range(TRIALS)), strict=True)
    noise = torch.randn(5, 2, TRIALS, 21, generator=GENERATOR, dtype=torch.float64)
    stack, together = trained(
        bd.stacked(nets),
        objective_with(torch.tensor(SCALES)),
        torch.stack(inputs),
        torch.stack(targets),
        noise,
    )
    for k, net in enumerate(nets):
        alone, objective = trained(
            net, objective_with(SCALES[k]), inputs[k], targets[k], noise[:, :, k]
        )
        assert torch.allclose(stack.posterior.loc[k], alone.posterior.loc, rtol=1e-6)
        assert torch.allclose(stack.posterior.rho[k], alone.posterior.rho, rtol=1e-6)
        assert torch.allclose(together.likelihood.scale[k], objective.likelihood.scale, rtol=1e-6)


# Compiled ------------------------------------------------------------------------------------

# torch's own: dynamo makes an instance of a class that it has deprecated itself.
deprecated_by_torch = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)


@deprecated_by_torch
@pytest.mark.parametrize(
    ("divergence", "samples", "width"),
    [
        pytest.param(bd.JSG(0.3), 3, 4, id="JSG"),
        pytest.param(bd.JSA(0.3), 3, 4, id="JSA by nodes"),
        pytest.param(bd.JSA(0.3), 3, 600, id="JSA by a table", marks=pytest.mark.slow),
    ],
)
def test_the_loss_compiles_into_one_graph(divergence, samples, width):
    torch._dynamo.reset()
    torch.manual_seed(0)
    net = bd.bayesianize(
        nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 1)), bd.FanIn()
    )
    objective = bd.Objective(bd.Gaussian(), divergence, num_data=10, samples=samples)
    objective.prepare(net)
    compiled = torch.compile(objective.forward, fullgraph=True, backend="aot_eager")
    results = []
    for forward in (compiled, objective):
        torch.manual_seed(1)
        loss = forward(net, X.float(), Y.float())
        results.append([loss.total, *torch.autograd.grad(loss.total, learned(net, objective))])
    for one, two in zip(*results, strict=True):
        assert torch.allclose(one, two, rtol=1e-5, atol=1e-6)


@deprecated_by_torch
def test_a_look_at_the_loss_between_steps_compiles_nothing_again():
    torch._dynamo.reset()
    net, objective = network(), bd.Objective(bd.Gaussian(), num_data=10)
    objective.prepare(net)
    compiled = torch.compile(objective.forward, fullgraph=True, backend="aot_eager")
    compiled(net, X, Y)
    objective(net, X, Y)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert compiled(net, X, Y).total.isfinite()


@deprecated_by_torch
def test_a_warm_up_is_compiled_once_for_all_epochs():
    torch._dynamo.reset()
    net = network()
    objective = bd.Objective(bd.Gaussian(), num_data=10, strength=bd.WarmUp(20))
    objective.prepare(net)
    compiled = torch.compile(objective.forward, fullgraph=True, backend="aot_eager")
    with torch.compiler.set_stance("default"):
        compiled(net, X, Y)
    with torch.compiler.set_stance("fail_on_recompile"):
        for epoch in range(20):
            objective.epoch = epoch
            loss = compiled(net, X, Y)
            wanted = loss.nll + (epoch + 1) / 200 * loss.divergence
            assert loss.total.item() == pytest.approx(wanted.item(), rel=1e-6)


def test_a_prior_that_changes_after_it_was_looked_up_counts():
    net = network()
    objective = bd.Objective(bd.Gaussian(), num_data=10)
    objective.prepare(net)
    before = objective(net, X, Y).divergence
    net.prior.scale.mul_(3.0)
    fresh = bd.Objective(bd.Gaussian(), num_data=10)
    assert objective(net, X, Y).divergence == fresh(net, X, Y).divergence != before


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.MSELoss()])
def test_a_loss_in_place_of_a_likelihood_is_refused_by_name(loss):
    with pytest.raises(TypeError, match=r"as Classes\(\) and Gaussian\(\) do, got the loss"):
        bd.Objective(loss, bd.KL(), num_data=1)


def test_another_divergence_or_estimator_is_used_from_then_on():
    net = network()
    objective = bd.Objective(bd.Gaussian(), bd.JSA(0.1), num_data=10)
    first = objective(net, X, Y).divergence
    objective.divergence = bd.KL()
    second = objective(net, X, Y).divergence
    wanted = bd.Objective(bd.Gaussian(), bd.KL(), num_data=10)(net, X, Y).divergence
    assert second == wanted != first
    objective.estimator = bd.MonteCarlo(2000)
    third = objective(net, X, Y).divergence
    assert third != second
    assert abs(third - second) < 0.1 * second
