"""Normalisation layers, and batch statistics estimated anew over draws."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.app.nets.images import FilterResponseNorm, Norm, estimate_statistics


def test_filter_response_norm_is_its_formula():
    torch.manual_seed(0)
    norm = FilterResponseNorm(3, epsilon=0.1)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = torch.randn(2, 3, 5, 4)
    numbers, gamma, beta = (t.detach().double().numpy() for t in (x, norm.weight, norm.bias))
    root = np.sqrt((numbers**2).mean((2, 3), keepdims=True) + 0.1)
    wanted = gamma[:, None, None] * numbers / root + beta[:, None, None]
    assert np.allclose(norm(x).detach().numpy(), wanted, atol=1e-6)


def test_filter_response_norm_keeps_bfloat16_images_in_bfloat16():
    assert FilterResponseNorm(2)(torch.ones(1, 2, 3, 3).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("norm", list(Norm))
def test_every_norm_has_a_layer_and_an_activation_for_images(norm):
    images = torch.randn(4, 6, 8, 8)
    assert norm.activation()(norm.layer(6)(images)).shape == images.shape


def test_statistics_are_the_plain_mean_over_batches_and_the_mode_is_kept():
    torch.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5)).eval()
    batches = [2 + 3 * torch.randn(8, 3, 5, 5) for _ in range(4)]
    estimate_statistics(net, batches)
    means = torch.stack([batch.mean((0, 2, 3)) for batch in batches])
    variances = torch.stack([batch.transpose(0, 1).flatten(1).var(1) for batch in batches])
    assert torch.allclose(net[0].running_mean, means.mean(0), atol=1e-5)
    assert torch.allclose(net[0].running_var, variances.mean(0), atol=1e-4)
    assert not any(module.training for module in net.modules())
    assert net[0].momentum == 0.1
    once = iter(batches)
    estimate_statistics(net, once)
    assert torch.allclose(net[0].running_mean, means.mean(0), atol=1e-5)
    with pytest.raises(ValueError, match="batches must hold one or more, got none"):
        estimate_statistics(net, once)
    assert torch.allclose(net[0].running_mean, means.mean(0), atol=1e-5)


def test_statistics_over_draws_hold_the_noise_of_the_weights_and_those_at_the_mean_do_not():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 1, bias=False), nn.BatchNorm1d(1, affine=False))
    nn.init.constant_(layers[0].weight, 1.0)
    model = bd.bayesianize(layers, bd.Prior(Normal, loc=0.0, scale=1.0), start=1.0)
    batches = [torch.randn(512, 4) for _ in range(200)]
    with bd.at_mean(model):
        estimate_statistics(model, batches)
    at_mean = model.module[1].running_var.item()
    estimate_statistics(model, batches)
    over_draws = model.module[1].running_var.item()
    # The variance of w·x for standard x is |w|²: 4 at the mean, 4 + 4 over draws of scale 1.
    assert at_mean == pytest.approx(4, rel=0.05)
    assert over_draws == pytest.approx(8, rel=0.25)
