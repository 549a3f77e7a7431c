"""Chains of linear layers over draws and trials: what each network by itself would give."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

import bayesdiv as bd
from bayesdiv.draws import chained
from bayesdiv.model.bayesian import stacked


def network(bias: bool = True) -> nn.Sequential:
    bend, again = nn.Tanh(), nn.Linear(5, 5)  # which stand there twice
    return nn.Sequential(
        nn.Linear(3, 5, bias=bias), bend, again, bend, again, nn.Linear(5, 2), nn.Softplus()
    )


def one_by_one(model: bd.Bayesian, source: nn.Module, weights, x):
    """Each network of torch by itself, (draws · trials, rows, outputs)."""
    rows = x.expand(len(weights), *x.shape).reshape(-1, *x.shape[-2:])
    flat = weights.reshape(-1, weights.shape[-1])
    outputs = []
    for own, part in zip(flat, rows, strict=True):
        tensors = model.layout.unflatten(own)
        once = {entry.names[0]: tensors[entry.names[0]] for entry in model.layout.entries}
        outputs.append(functional_call(source, once, (part,)))
    return torch.stack(outputs)


@pytest.mark.parametrize("trials", [(), (3,)])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_those_of_each_network_by_itself(trials, bias):
    torch.manual_seed(0)
    source = network(bias).double()
    models = [bd.bayesianize(source, bd.FanIn()) for _ in range(3)]
    model = stacked(models) if trials else models[0]
    x = torch.randn(*trials, 7, 3).double()
    weights = torch.randn(4, *trials, model.layout.size).double().requires_grad_()
    found = chained(model, weights, x)
    wanted = one_by_one(model, source, weights, x)
    assert found is not None
    assert found.shape == (4, *trials, 7, 2)
    torch.testing.assert_close(found.reshape(wanted.shape), wanted)
    slopes = [torch.autograd.grad(out.square().sum(), weights)[0] for out in (found, wanted)]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize(
    "source",
    [
        nn.Linear(3, 2),
        nn.Sequential(nn.Linear(3, 5), nn.Dropout(), nn.Linear(5, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.Softmax(0)),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))),
    ],
)
def test_other_networks_are_left_to_vmap(source):
    model = bd.bayesianize(source, bd.FanIn())
    assert chained(model, model.draw(4), torch.ones(7, 3)) is None


def test_hooks_fixed_weights_and_foreign_rows_are_left_to_vmap():
    source, x = network(), torch.ones(7, 3)
    hooked = bd.bayesianize(source, bd.FanIn())
    hooked.module[0].register_forward_hook(lambda *_: None)
    source[0].weight.requires_grad_(False)
    partly = bd.bayesianize(source, bd.FanIn())
    assert chained(hooked, hooked.draw(4), x) is None
    assert chained(partly, partly.draw(4), x) is None
    whole = bd.bayesianize(network(), bd.FanIn())
    for rows in (x.double(), x.unsqueeze(0), {"input": x}):
        assert chained(whole, whole.draw(4), rows) is None
