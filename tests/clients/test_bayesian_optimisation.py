"""The adapter of the page for BoTorch: what it returns, and gradients by the inputs."""

import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from pages import ROOT, code_of


@pytest.fixture(scope="module")
def adapter():
    code = code_of(ROOT / "docs/howto/botorch.md").partition("from botorch.acquisition")[0]
    names = {"__name__": "page"}
    exec(compile(code, "botorch.md", "exec"), names)
    return names["Draws"]


def test_its_posterior_has_the_mean_and_the_spread_of_the_draws(adapter):
    net = bd.bayesianize(nn.Linear(2, 1), bd.Prior(Normal, loc=0.0, scale=1.0), start=0.5)
    model = adapter(net, samples=20_000)
    x = torch.tensor([[[1.0, 2.0], [0.0, 3.0]]])  # one batch of two rows
    posterior = model.posterior(x)
    # Of a linear layer: the mean by the means, the variance by the squares of inputs and bias.
    with bd.at_mean(net):
        torch.testing.assert_close(posterior.mean, net(x).detach(), atol=0.05, rtol=0.0)
    wanted = 0.25 * (x.square().sum(-1, keepdim=True) + 1)
    torch.testing.assert_close(posterior.variance, wanted, rtol=0.05, atol=0.0)


def test_an_acquisition_function_has_a_gradient_by_its_inputs(adapter):
    network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    net = bd.bayesianize(network, bd.Prior(Normal, loc=0.0, scale=1.0))
    model = adapter(net, samples=16)
    x = torch.rand(3, 2, 2, requires_grad=True)  # three batches of two rows
    qUpperConfidenceBound(model, beta=1.0)(x).sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.any()
