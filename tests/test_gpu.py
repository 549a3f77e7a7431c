"""The same numbers on a GPU as on the CPU; run with `pytest -m gpu` where there is one."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.compute.backend import prepare
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG
from bayesdiv.divergence.gaussian import SoftplusNormal

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DIVERGENCES = [bd.KL(), bd.ReverseKL(), bd.JSG(0.3), bd.WeightedKL(0.3), bd.JSA(0.3), bd.JSA(0.9)]
DIVERGENCES = [*DIVERGENCES, UnmodifiedJSA(0.3), UnmodifiedJSG(0.3), bd.TotalVariation()]


def value_and_gradient(divergence, loc, scale):
    loc, scale = (x.clone().requires_grad_() for x in (loc, scale))
    prior = Normal(torch.zeros((), device=loc.device, dtype=loc.dtype), 1.0)
    value = bd.Exact(nodes=40)(divergence, Normal(loc, scale), prior)
    return value.detach(), *torch.autograd.grad(value.sum(), (loc, scale))


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_divergences_agree_with_the_cpu(divergence, dtype):
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(20_000, generator=generator, dtype=dtype)
    scale = torch.randn(20_000, generator=generator, dtype=dtype).exp()
    there = value_and_gradient(divergence, loc.cuda(), scale.cuda())
    tolerance = 1e-4 if dtype == torch.float32 else 1e-9
    for one, two in zip(there, value_and_gradient(divergence, loc, scale), strict=True):
        assert torch.allclose(one.cpu(), two, rtol=tolerance, atol=tolerance)


def test_the_table_serves_on_a_gpu_too():
    loc = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    q, p = Normal(loc.cuda(), 0.3), Normal(torch.zeros((), device="cuda"), 1.0)
    assert torch.allclose(bd.JSA(0.3)(q, p).cpu(), bd.JSA(0.3)(Normal(loc, 0.3), Normal(0.0, 1.0)))


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.1), bd.JSA(0.5)], ids=repr)
def test_training_on_a_gpu_lowers_the_loss_in_mixed_precision(divergence):
    from accelerate import Accelerator

    torch.manual_seed(0)
    x = torch.randn(512, 16)
    y = (x[:, 0] > 0).long()
    network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    model = bd.bayesianize(network, bd.FanIn(1.4))
    objective = bd.Objective(bd.Classes(), divergence, num_data=512, samples=4)
    optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=1e-2)
    accelerator = Accelerator(mixed_precision="bf16")
    batches = bd.Batches(x, y, size=64)
    losses = [
        epoch.loss.total
        for epoch in bd.fit(
            model, objective, batches, optimizer, 10, seed=0, accelerator=accelerator
        )
    ]
    assert losses[-1] < losses[0]


def _stack_of_two(posterior=bd.MeanField) -> tuple[bd.Bayesian, bd.Objective, torch.optim.Adam]:
    torch.manual_seed(0)
    prior = bd.Prior(Normal, loc=0.0, scale=1.0)
    nets = [
        bd.bayesianize(
            nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), prior, posterior=posterior
        )
        for _ in range(2)
    ]
    model = bd.stacked(nets).cuda()
    objective = bd.Objective(
        bd.Gaussian(torch.ones(2)), bd.JSA(0.4), num_data=20, samples=3, strength=0.1
    ).cuda()
    parameters = [*model.parameters(), *objective.parameters()]
    return model, objective, torch.optim.Adam(parameters, lr=1e-2, capturable=True)


def _trained(step, posterior=bd.MeanField) -> torch.Tensor:
    model, objective, optimizer = _stack_of_two(posterior)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 20, 3, generator=generator).cuda()
    batches = bd.Batches(x, x.sum(-1), 8, [0, 1])
    epochs = bd.fit(model, objective, batches, optimizer, 6, seed=0, step=step)
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5, 6]
    return model.loc.detach().cpu()


def test_a_recorded_step_trains_as_the_plain_one_also_with_a_short_last_batch():
    plain, recorded = _trained(bd.Eager(), bd.Point), _trained(bd.Recorded(), bd.Point)
    torch.testing.assert_close(recorded, plain, rtol=1e-4, atol=1e-5)


def test_a_recorded_step_draws_new_noise_and_repeats_with_its_seed():
    one, two = _trained(bd.Recorded()), _trained(bd.Recorded())
    torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
    assert not torch.allclose(one, _trained(bd.Recorded(), bd.Point))


def test_a_recorded_step_asks_for_an_optimizer_that_can_be_recorded():
    model, objective, _ = _stack_of_two()
    optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()])
    x = torch.randn(2, 20, 3).cuda()
    batches = bd.Batches(x, x[..., 0], 20, [0, 1])
    epochs = bd.fit(model, objective, batches, optimizer, 2, step=bd.Recorded())
    with pytest.raises(ValueError, match="capturable=True"):
        list(epochs)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_compiled_gradients_are_those_of_the_eager_pass(divergence):
    loc = torch.randn(5000, device="cuda").requires_grad_()
    rho = torch.full((5000,), -3.0, device="cuda").requires_grad_()
    prior = Normal(torch.zeros((), device="cuda"), 1.0, validate_args=False)
    compute = bd.Auto().prepare(divergence, Normal(loc, nn.functional.softplus(rho)), prior)

    def both(loc, rho):
        q = Normal(loc, nn.functional.softplus(rho), validate_args=False)
        return q.loc + q.scale, compute(q, prior, None).sum()

    gradients = []
    for run in (both, torch.compile(both)):
        # A second output with a gradient of its own: without one, a lost gradient would raise.
        weights, total = run(loc, rho)
        gradients.append(torch.autograd.grad(weights.sum() + total, (loc, rho)))
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


# The kernels ---------------------------------------------------------------------------------

KERNELS = [bd.KL(), bd.ReverseKL(), bd.WeightedKL(0.3), bd.JSG(0.3), bd.JSA(0.3), bd.JSA(0.97)]


def posterior(count, device="cuda"):
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(count, generator=generator)
    rho = torch.randn(count, generator=generator) - 2
    return SoftplusNormal(*(x.to(device).requires_grad_() for x in (loc, rho)))


def summed(divergence, q, p):
    compute = prepare(bd.Auto(), divergence, q, p).total
    q = SoftplusNormal(q.loc, q.rho)
    value = compute(q, p, None)
    if q.loc.is_cuda:
        assert q.known_scale is None  # so it was a kernel that went from rho to the sum
    return value, *torch.autograd.grad(value, (q.loc, q.rho))


@pytest.mark.parametrize("divergence", KERNELS, ids=repr)
@pytest.mark.parametrize("each", [False, True])
def test_the_sum_by_a_kernel_is_that_of_the_cpu(divergence, each):
    pytest.importorskip("triton")
    count = 100_003
    scale = torch.linspace(0.3, 2.0, count) if each else torch.tensor(0.7)
    q, there = posterior(count), posterior(count, "cpu")
    ours = summed(divergence, q, Normal(torch.zeros((), device="cuda"), scale.cuda()))
    wanted = summed(divergence, there, Normal(torch.zeros(()), scale))
    torch.testing.assert_close(ours[0].cpu(), wanted[0], rtol=1e-5, atol=1e-2)
    for one, two in zip(ours[1:], wanted[1:], strict=True):
        torch.testing.assert_close(one.cpu(), two, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=repr)
def test_a_sum_over_ten_million_weights_is_that_of_doubles(divergence):
    q = posterior(10_000_000)
    p = Normal(torch.zeros((), device="cuda"), torch.ones((), device="cuda"), validate_args=False)
    with torch.no_grad():
        value = prepare(bd.Auto(), divergence, q, p).total(q, p)
        wide = Normal(q.loc.double(), nn.functional.softplus(q.rho.double()), validate_args=False)
        parts = zip(wide.loc.split(1_000_000), wide.scale.split(1_000_000), strict=True)
        exact = bd.Exact(nodes=40)
        right = sum(exact(divergence, Normal(*part), p).sum().item() for part in parts)
    assert value.item() == pytest.approx(right, rel=2e-6)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=repr)
def test_a_sum_needs_little_memory_beside_parameters_and_gradients(divergence):
    pytest.importorskip("triton")
    q = posterior(10_000_000)
    p = Normal(torch.zeros((), device="cuda"), torch.ones((), device="cuda"), validate_args=False)
    compute = prepare(bd.Auto(), divergence, q, p).total
    compute(q, p, None).backward()
    q.loc.grad = q.rho.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    compute(q, p, None).backward()
    size = q.loc.nbytes + q.rho.nbytes
    assert torch.cuda.max_memory_allocated() - before < 1.1 * size  # the gradients, and a tenth


def test_draws_by_the_kernel_have_moments_repeat_and_lead_gradients_back():
    pytest.importorskip("triton")
    posterior_of_one = bd.MeanField(torch.full((1000,), 2.0), torch.full((1000,), 0.5)).cuda()
    torch.manual_seed(0)
    drawn = posterior_of_one.rsample(5000)
    torch.manual_seed(0)
    assert torch.equal(drawn, posterior_of_one.rsample(5000))
    assert abs(drawn.mean().item() - 2) < 5 * 0.5 / 5_000_000**0.5
    assert drawn.std().item() == pytest.approx(0.5, rel=2e-3)
    # Finite differences with the same noise: a draw is linear in loc and smooth in rho.
    parameters = [posterior_of_one.loc, posterior_of_one.rho]
    weights = torch.randn(drawn.shape, device="cuda")
    gradients = torch.autograd.grad((drawn * weights).sum(), parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        sums = []
        for step in (0.05, -0.05):
            with torch.no_grad():
                parameter += step
                torch.manual_seed(0)
                sums.append((posterior_of_one.rsample(5000).double() * weights).sum(0))
                parameter -= step
        slope = (sums[0] - sums[1]) / 0.1
        torch.testing.assert_close(gradient.double(), slope, rtol=1e-2, atol=0.2)


def test_kernels_run_inside_a_cuda_graph_and_draw_anew_in_each_replay():
    pytest.importorskip("triton")
    module = bd.MeanField(torch.zeros(5000), torch.full((5000,), 0.5)).cuda()
    p = Normal(torch.zeros((), device="cuda"), torch.ones((), device="cuda"), validate_args=False)
    compute = prepare(bd.Auto(), bd.JSA(0.3), module.distribution(), p).total

    def run():
        q = module.distribution()
        return module.rsample(2).detach(), compute(q, p, None).detach()

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn, value = run()
    graph.replay()
    first, wanted = drawn.clone(), value.clone()
    graph.replay()
    assert not torch.equal(drawn, first)
    torch.testing.assert_close(value, wanted)
    torch.testing.assert_close(value, run()[1])


POSTERIORS = [bd.LowRank(rank=2), bd.FullRank(), bd.Ensemble(members=3)]


@pytest.mark.parametrize("family", POSTERIORS, ids=repr)
@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.2)], ids=repr)
def test_posteriors_with_structure_have_the_losses_of_the_cpu(family, divergence):
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(4, 2), bd.FanIn(), posterior=family)
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    weights = bd.draw_weights(net, 3)
    objective = bd.Objective(bd.Gaussian(), divergence, num_data=6, samples=3)
    wanted = objective.given(net, weights, x, y)
    moved = [part.to("cuda") for part in (net, objective, x, y)]
    on_card, objective, x, y = moved
    found = objective.given(on_card, tuple(w.detach().cuda() for w in weights), x, y)
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), two, rtol=1e-4, atol=1e-4)
    seed = torch.tensor(5, device="cuda")
    drawn = [on_card.posterior.rsample(3, seed=seed) for _ in range(2)]
    assert torch.equal(*drawn)


@pytest.mark.parametrize("family", POSTERIORS, ids=repr)
def test_posteriors_with_structure_train_by_recorded_steps(family):
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(4, 1), bd.FanIn(), posterior=family).cuda()
    x = torch.randn(60, 4, device="cuda")
    objective = bd.Objective(bd.Gaussian(), num_data=60, samples=3).cuda()
    parameters = [*net.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2, capturable=True)
    batches = bd.Batches(x, x.sum(-1), 20)
    epochs = bd.fit(net, objective, batches, optimizer, 30, step=bd.Recorded(), seed=0)
    losses = [epoch.loss.total for epoch in epochs]
    assert losses[-1] < losses[0]


def test_a_network_on_two_devices_has_a_posterior_on_each():
    class Parted(nn.Module):
        def __init__(self):
            super().__init__()
            self.near, self.far = nn.Linear(4, 8), nn.Linear(8, 3).cuda()

        def forward(self, x):
            return self.far(self.near(x).tanh().cuda())

    torch.manual_seed(0)
    module = Parted()
    with pytest.raises(ValueError, match="give by=, one posterior per device"):
        bd.bayesianize(module, bd.FanIn())
    net = bd.bayesianize(module, bd.FanIn(), by=lambda name: name.partition(".")[0])
    one = bd.bayesianize(bd.plain(net).cpu(), bd.FanIn(), by=lambda name: name.partition(".")[0])
    one.module.forward = lambda x: one.module.far(one.module.near(x).tanh())
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    weights = bd.draw_weights(net, 3)
    for over in (bd.Looped(), bd.Vectorized()):
        objective = bd.Objective(bd.Classes(), bd.JSA(0.3), num_data=6, over=over)
        found = objective.given(net, weights, x, y.cuda())
        wanted = objective.given(one, tuple(w.cpu() for w in weights), x, y)
        torch.testing.assert_close(found.total.cpu(), wanted.total, rtol=1e-4, atol=1e-4)
    several = bd.Objective(bd.Classes(), num_data=6, samples=2, over=bd.Looped())
    several(net, x, y.cuda()).total.backward()
    assert all(p.grad is not None and p.grad.device == p.device for p in net.parameters())
