"""Priors: any family, mixtures, and those made for the weights of a module."""

import copy
import math

import pytest
import torch
from scipy import stats
from torch import nn
from torch.distributions import Cauchy, Gamma, Laplace, Normal, StudentT, Uniform

import bayesdiv as bd
from bayesdiv.model.priors import prior_scale

FAMILIES = {
    "normal": (bd.Prior(Normal, loc=0.1, scale=0.5), stats.norm(0.1, 0.5), 0.5),
    "laplace": (bd.Prior(Laplace, loc=0.0, scale=0.3), stats.laplace(0.0, 0.3), 0.3),
    "student": (bd.Prior(StudentT, df=3, loc=0.0, scale=0.4), stats.t(3, 0.0, 0.4), 0.4),
    "uniform": (
        bd.Prior(Uniform, low=-2.0, high=2.0),
        stats.uniform(-2.0, 4.0),
        4.0 / math.sqrt(12),
    ),
    "cauchy": (bd.Prior(Cauchy, loc=0.0, scale=0.2), stats.cauchy(0.0, 0.2), 0.2),
}
families = pytest.mark.parametrize(
    ("prior", "oracle", "scale"), FAMILIES.values(), ids=list(FAMILIES)
)


@families
def test_a_prior_of_any_family_has_its_density(prior, oracle, scale):
    points = torch.tensor([-1.0, 0.0, 0.3])
    wanted = torch.from_numpy(oracle.logpdf(points.numpy())).float()
    assert torch.allclose(prior().log_prob(points), wanted, atol=1e-5)


@families
def test_the_posterior_starts_at_a_fraction_of_the_prior_s_scale(prior, oracle, scale):
    for start in (0.1, 0.5):
        net = bd.bayesianize(nn.Linear(3, 2), prior, start=start)
        assert net.q().stddev.tolist() == pytest.approx([start * scale] * 8, rel=1e-5)


def loss_against(prior, divergence):
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(2, 1), prior)
    objective = bd.Objective(bd.Gaussian(), divergence, num_data=4)
    loss = objective(net, torch.ones(4, 2), torch.ones(4))
    loss.total.backward()
    return loss.divergence.item(), [parameter.grad for parameter in net.parameters()]


@families
def test_js_a_holds_the_posterior_near_a_prior_of_any_family(prior, oracle, scale):
    value, gradients = loss_against(prior, bd.JSA(0.3))
    assert 0 < value < 3 * bd.JSA(0.3).bound
    assert all((gradient.isfinite() & (gradient != 0)).all() for gradient in gradients)


@pytest.mark.parametrize(
    ("name", "divergence"),
    [
        *((name, bd.KL()) for name in ("normal", "laplace", "student", "cauchy")),
        *((name, bd.WeightedKL(0.3)) for name in ("normal", "laplace", "student")),
    ],
    ids=str,
)
def test_the_other_divergences_take_families_without_an_edge(name, divergence):
    value, gradients = loss_against(FAMILIES[name][0], divergence)
    assert math.isfinite(value)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_reverse_kl_against_a_prior_without_a_variance_is_infinite():
    """E_p[-log q] grows with the variance of p, which a Cauchy prior lacks."""
    assert loss_against(FAMILIES["cauchy"][0], bd.WeightedKL(0.3))[0] == math.inf


def test_parameters_of_a_prior_move_with_it_and_are_not_trained():
    prior = bd.Prior(Normal, loc=0.0, scale=torch.tensor([0.1, 0.2]))
    assert not list(prior.parameters())
    assert set(prior.state_dict()) == {"loc", "scale"}
    assert prior.double()().scale.dtype == torch.float64


@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        (Normal, {"loc": 0.0, "scale": -1.0}),
        (Uniform, {"low": 1.0, "high": 0.0}),
        (Laplace, {"loc": 0.0, "scale": torch.tensor([1.0, 0.0])}),
    ],
)
def test_a_bad_parameter_is_told_at_once(family, parameters):
    with pytest.raises(ValueError, match=r"scale|low|high"):
        bd.Prior(family, **parameters)


# Mixture -------------------------------------------------------------------------------------


def test_scale_mixture_has_the_density_of_two_gaussians():
    points = torch.tensor([-2.0, 0.0, 0.05, 1.0])
    wanted = 0.25 * stats.norm(0, 1.0).pdf(points) + 0.75 * stats.norm(0, 0.1).pdf(points)
    ours = bd.ScaleMixture(share=0.25, wide=1.0, narrow=0.1)().log_prob(points).exp()
    assert torch.allclose(ours, torch.as_tensor(wanted).float(), rtol=1e-5)


@pytest.mark.parametrize(
    ("share", "wide", "narrow"), [(0.0, 1.0, 0.1), (1.0, 1.0, 0.1), (0.5, 0.1, 1.0), (0.5, 1.0, 0)]
)
def test_scale_mixture_refuses_what_is_no_mixture(share, wide, narrow):
    with pytest.raises(ValueError, match="must"):
        bd.ScaleMixture(share, wide, narrow)


def mixture_loss(divergence, estimator, samples=1):
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(2, 1), bd.ScaleMixture(0.5, 1.0, 0.05), start=0.3)
    objective = bd.Objective(
        bd.Gaussian(), divergence, num_data=4, estimator=estimator, samples=samples
    )
    torch.manual_seed(1)
    loss = objective(net, torch.ones(4, 2), torch.ones(4))
    return loss.divergence, torch.autograd.grad(loss.divergence, list(net.parameters()))


@pytest.mark.parametrize("divergence", [bd.JSA(0.3), bd.KL()], ids=repr)
def test_scale_mixture_by_samples_agrees_with_dense_integration(divergence):
    sampled, gradients = mixture_loss(divergence, bd.MonteCarlo(), samples=20_000)
    dense, wanted = mixture_loss(divergence, bd.Quadrature())
    assert sampled.item() == pytest.approx(dense.item(), rel=0.02)
    for one, two in zip(gradients, wanted, strict=True):
        assert torch.allclose(one, two, rtol=0.05, atol=0.02)


def test_auto_takes_the_draws_of_the_forward_pass_for_a_mixture():
    by_default, _ = mixture_loss(bd.JSA(0.3), None, samples=5)
    by_samples, _ = mixture_loss(bd.JSA(0.3), bd.MonteCarlo(), samples=5)
    assert torch.equal(by_default, by_samples)


# Made for a module ---------------------------------------------------------------------------


def test_fan_in_scales_each_layer_by_its_inputs():
    module = nn.Sequential(nn.Conv2d(3, 4, 5), nn.Linear(16, 2, bias=False))
    net = bd.bayesianize(module, bd.FanIn(gain=2.0))
    scales = net.layout.unflatten(net.p().scale)
    assert scales["0.weight"].unique().item() == pytest.approx(2 / math.sqrt(75))
    assert scales["0.bias"].unique().item() == pytest.approx(2.0)
    assert scales["1.weight"].unique().item() == pytest.approx(0.5)
    assert torch.allclose(net.q().stddev, 0.1 * net.p().scale)


def test_a_scale_per_tensor_is_stored_once_per_tensor():
    net = bd.bayesianize(nn.Sequential(nn.Linear(300, 200), nn.Linear(200, 10)), bd.FanIn())
    stored = net.prior.state_dict()
    assert {name: value.numel() for name, value in stored.items()} == {"loc": 1, "scale": 4}
    before = {id(tensor) for tensor in net.prior.buffers()}
    assert net.p().scale.shape == (62_210,)
    assert {id(tensor) for tensor in net.prior.buffers()} == before
    assert not [value for value in vars(net.prior).values() if isinstance(value, torch.Tensor)]


def test_any_parameter_may_be_given_per_tensor():
    layer = nn.Linear(3, 2)

    def prior(layout, weights):
        return bd.Prior(
            StudentT, layout=layout, df=torch.tensor([3.0, 5.0]), loc=weights, scale=0.5
        )

    net = bd.bayesianize(layer, prior)
    assert net.p().df.tolist() == [3.0] * 6 + [5.0] * 2
    assert torch.equal(net.p().loc[:6], layer.weight.flatten())
    copied = bd.bayesianize(nn.Linear(3, 2), prior)
    copied.load_state_dict(net.state_dict())
    assert torch.equal(copied.p().loc, net.p().loc)
    assert net.double().p().df.dtype == torch.float64


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSA(0.3)], ids=repr)
def test_stacks_store_as_little_as_their_models(divergence):
    module = nn.Linear(3, 2)
    nets = [bd.bayesianize(module, bd.FanIn(gain)) for gain in (1.0, 2.0)]
    stack = bd.stacked(nets)
    assert stack.prior.scale.shape == (2, 2)
    assert stack.p().scale.shape == (2, 8)
    each = divergence(stack.q(), stack.p()).sum(-1)
    apart = [divergence(net.q(), net.p()).sum() for net in nets]
    assert torch.allclose(each, torch.stack(apart))


def test_numbers_of_a_stack_stay_numbers_and_mixed_forms_are_expanded():
    module = nn.Linear(3, 2)
    plain = [bd.bayesianize(module, bd.Prior(Normal, loc=0.0, scale=s)) for s in (0.5, 1.0)]
    assert bd.stacked(plain).p().scale.tolist() == [[0.5], [1.0]]
    mixed = bd.stacked([plain[0], bd.bayesianize(module, bd.FanIn())])
    assert torch.equal(mixed.p().scale[0], torch.full((8,), 0.5))
    assert torch.equal(mixed.p().scale[1], bd.bayesianize(module, bd.FanIn()).p().scale)


def test_fan_in_takes_other_families():
    net = bd.bayesianize(nn.Linear(4, 2), bd.FanIn(family=Laplace))
    assert isinstance(net.p(), Laplace)
    assert net.p().scale[0].item() == pytest.approx(0.5)


def test_around_start_puts_pretrained_weights_as_the_prior_mean():
    module = nn.Linear(3, 2)
    before = copy.deepcopy(module.state_dict())
    net = bd.bayesianize(module, bd.AroundStart(scale=0.2), start=1.0)
    means = net.layout.unflatten(net.p().mean)
    assert all(torch.equal(means[name], before[name]) for name in before)
    assert net.p().stddev.unique().item() == pytest.approx(0.2)
    assert bd.KL()(net.q(), net.p()).abs().max() < 1e-6
    with torch.no_grad():
        net.posterior.loc += 1.0
    assert all(torch.equal(means[name], before[name]) for name in before)


def test_a_function_of_layout_and_weights_is_a_prior_too():
    def last_layer_wider(layout, weights):
        scales = {e.names[0]: 2.0 if "1" in e.names[0] else 1.0 for e in layout.entries}
        flat = layout.flatten({name: torch.tensor(scale) for name, scale in scales.items()})
        return bd.Prior(Normal, loc=torch.tensor(0.0), scale=flat)

    net = bd.bayesianize(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), last_layer_wider)
    assert net.p().scale.tolist() == [1.0] * 6 + [2.0] * 3


class Learned(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(0.0))

    def forward(self):
        return Normal(torch.zeros_like(self.log_scale), self.log_scale.exp())


def test_a_module_of_one_s_own_may_learn_the_prior():
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(20, 5), Learned(), start=0.1)
    objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=1)
    optimizer = torch.optim.Adam([net.prior.log_scale], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        objective(net, torch.zeros(1, 20), torch.zeros(1, 5)).divergence.backward()
        optimizer.step()
    # KL by the prior's scale has its minimum at the root mean square of the weights.
    wanted = (net.q().variance + net.q().mean.square()).mean().sqrt()
    assert net.prior.log_scale.exp().item() == pytest.approx(wanted.item(), rel=0.01)


def test_a_prior_without_a_finite_scale_cannot_start_the_posterior():
    with pytest.raises(ValueError, match="give the posterior yourself"):
        prior_scale(StandardGamma())


class StandardGamma(Gamma):
    def __init__(self):
        super().__init__(1.0, 1.0)

    @property
    def variance(self):
        return torch.tensor(math.inf)


@pytest.mark.parametrize("gain", [-1.0, 0.0, float("inf"), float("nan")])
def test_a_gain_that_is_not_positive_is_refused(gain):
    with pytest.raises(ValueError, match=f"gain must be positive and finite, got {gain}"):
        bd.FanIn(gain)
