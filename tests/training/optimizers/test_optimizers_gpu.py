"""Optimizers and augmentation inside a recorded step; run with `pytest -m gpu` on a GPU."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import bayesdiv as bd
from bayesdiv.training.augmentation import Crop, Cutout, Flip
from bayesdiv.training.optimizers.natural import Natural
from benchmarks.field.several import Several

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def natural(net: bd.Bayesian) -> torch.optim.Optimizer:
    rate = torch.tensor(0.1, device="cuda")
    return Natural(net, num_data=50, strength=0.5, lr=rate, memory=3.0, clip=1.0)


def several(net: bd.Bayesian) -> torch.optim.Optimizer:
    rate = torch.tensor(0.1, device="cuda")
    sgd = torch.optim.SGD([net.posterior.loc], rate, momentum=0.9, nesterov=True, fused=True)
    adam = torch.optim.Adam([net.posterior.rho], torch.tensor(0.01).cuda(), capturable=True)
    return Several(sgd, adam)


@pytest.mark.parametrize("made", [natural, several])
def test_a_recorded_step_follows_the_schedule_and_equals_the_plain_one(made):
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(40, 10), bd.FanIn()).cuda()
    other = copy.deepcopy(net)
    gradients = [(p, torch.randn_like(p)) for p in net.parameters()]
    for (p, gradient), own in zip(gradients, other.parameters(), strict=True):
        p.grad, own.grad = gradient.clone(), gradient.clone()
    plain, recorded = made(other), made(net)
    schedules = [LambdaLR(optimizer, lambda step: 0.9**step) for optimizer in (plain, recorded)]
    recorded.step()  # makes the state
    graph = torch.cuda.CUDAGraph()
    for _ in range(6):
        plain.step()
        schedules[0].step()
    schedules[1].step()
    with torch.cuda.graph(graph):
        recorded.step()
    for _ in range(5):
        graph.replay()
        schedules[1].step()
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, two, rtol=1e-5, atol=1e-7)


def test_a_recorded_augmentation_draws_anew_in_each_replay():
    images = torch.rand(64, 3, 32, 32, device="cuda")
    for change in (Crop(4), Flip(), Cutout(8)):
        change(images)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = change(images)
        graph.replay()
        first = out.clone()
        graph.replay()
        assert not torch.equal(first, out)
