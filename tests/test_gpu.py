"""The same numbers on a GPU as on the CPU; run with `pytest -m gpu` where there is one."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DIVERGENCES = [bd.KL(), bd.ReverseKL(), bd.JSG(0.3), bd.WeightedKL(0.3), bd.JSA(0.3), bd.JSA(0.9)]
DIVERGENCES = [*DIVERGENCES, bd.UnmodifiedJSA(0.3), bd.UnmodifiedJSG(0.3), bd.TotalVariation()]


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
    epochs = bd.fit_trials(
        model, objective, x, x.sum(-1), optimizer, 6, batch_size=8, seeds=[0, 1], step=step
    )
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5, 6]
    return model.loc.detach().cpu()


def test_a_recorded_step_trains_as_the_plain_one_also_with_a_short_last_batch():
    plain, recorded = _trained(bd.step, bd.Point), _trained(bd.Graphed(), bd.Point)
    torch.testing.assert_close(recorded, plain, rtol=1e-4, atol=1e-5)


def test_a_recorded_step_draws_new_noise_and_repeats_with_its_seed():
    one, two = _trained(bd.Graphed()), _trained(bd.Graphed())
    torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
    assert not torch.allclose(one, _trained(bd.Graphed(), bd.Point))


def test_a_recorded_step_asks_for_an_optimizer_that_can_be_recorded():
    model, objective, _ = _stack_of_two()
    optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()])
    x = torch.randn(2, 20, 3).cuda()
    epochs = bd.fit_trials(
        model, objective, x, x[..., 0], optimizer, 2, batch_size=20, seeds=[0, 1], step=bd.Graphed()
    )
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
