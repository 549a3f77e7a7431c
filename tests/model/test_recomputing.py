"""Gradient checkpointing: what is recomputed in the backward pass finds the weights of its draw."""

import copy
import gc
import logging
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import bayesdiv as bd


class Blocks(nn.Module):
    """Two blocks that may be checkpointed, between layers that are not; dropout in the middle."""

    def __init__(self, use=None, dropout=0.0):
        super().__init__()
        self.use, self.dropout = use, nn.Dropout(dropout)
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.inner = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4, bias=False)])
        self.inner[1].weight = self.inner[0].weight  # tied over two regions
        self.scale = nn.Parameter(torch.ones(4))

    def block(self, x, layer):
        return self.dropout(layer(x).tanh()) * self.scale

    def forward(self, x):
        x = self.first(x)
        for layer in self.inner:
            if self.use is None:
                x = self.block(x, layer)
            else:
                x = checkpoint(self.block, x, layer, use_reentrant=self.use)
        return {"logits": self.last(x)}


class OnlyInside(nn.Module):
    """All random weights are in the region, as those of adapters in a transformer's blocks."""

    def __init__(self, use=None):
        super().__init__()
        self.use, self.inner = use, nn.Linear(3, 2)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)

    def forward(self, x):
        x = self.frozen(x)
        if self.use is not None:
            x.requires_grad_()  # reentrant checkpoints ask it of their inputs
        if self.use is None:
            return self.inner(x)
        return checkpoint(self.inner, x, use_reentrant=self.use)


X, Y = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 0])
KINDS = {"not reentrant": False, "reentrant": True}
every_kind = pytest.mark.parametrize("use", KINDS.values(), ids=KINDS)


def network(kind, use, **options):
    """The same network with and without checkpoints, `scale` an ordinary parameter."""
    torch.manual_seed(0)
    module = kind(None, **options)
    module.use = use
    return bd.bayesianize(module, bd.FanIn(), where=lambda n, p: p.requires_grad and n != "scale")


def gradients(net, samples, over=None, divergence=None):
    objective = bd.Objective(
        bd.Classes(), divergence, num_data=6, samples=samples, over=over, estimator=None
    )
    torch.manual_seed(1)
    objective(net, X, Y).total.backward()
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.requires_grad}


@every_kind
@pytest.mark.parametrize("kind", [Blocks, OnlyInside])
@pytest.mark.parametrize("over", [bd.Looped(), bd.Vectorized(chunk=1)], ids=str)
@pytest.mark.parametrize("samples", [1, 4])
def test_gradients_are_those_without_checkpoints(use, kind, over, samples):
    found = gradients(network(kind, use), samples, over)
    wanted = gradients(network(kind, None), samples, bd.Looped())
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert wanted[name].any()
        assert torch.equal(found[name], wanted[name]), name


@every_kind
@pytest.mark.parametrize("kind", [Blocks, OnlyInside])
def test_by_default_they_are_those_of_all_draws_at_once(use, kind):
    found = gradients(network(kind, use), 4)
    wanted = gradients(network(kind, None), 4)
    assert all(torch.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)


@every_kind
def test_draws_that_are_differentiated_together_keep_apart(use):
    net, plain = network(Blocks, use), network(Blocks, None)
    for one in (net, plain):
        torch.manual_seed(1)
        weights = bd.draw_weights(one, 3)
        outputs = bd.draws(one, X, weights, bd.Looped())
        (outputs * torch.arange(1.0, 4.0).view(3, 1, 1)).pow(2).sum().backward()
    for found, wanted in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.equal(found.grad, wanted.grad)


@every_kind
def test_dropout_is_the_same_when_it_is_recomputed(use):
    found = gradients(network(Blocks, use, dropout=0.5), 2, bd.Looped())
    wanted = gradients(network(Blocks, None, dropout=0.5), 2, bd.Looped())
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@every_kind
def test_after_the_backward_pass_nothing_is_left_behind(use):
    net = network(Blocks, use)
    weights = bd.draw_weights(net, 1)[0][0]
    seen = weakref.ref(weights)
    gc.disable()
    try:
        net.with_weights(weights, X)["logits"].sum().backward()
        del weights
        assert seen() is None
    finally:
        gc.enable()
    with pytest.raises(AttributeError, match=r"bd.plain\(net\)"):
        net.module(X)
    copy.deepcopy(net)


def test_a_second_backward_pass_recomputes_as_well():
    net, plain = network(Blocks, False), network(Blocks, None)
    for one in (net, plain):
        torch.manual_seed(1)
        total = one(X)["logits"].pow(2).sum()
        total.backward(retain_graph=True)
        total.backward()
    assert torch.equal(net.posterior.loc.grad, plain.posterior.loc.grad)


def test_all_draws_at_once_give_way_to_a_loop_which_the_log_says(caplog):
    net = network(Blocks, None)
    gradients(net, 2)
    net.module.use = False  # switched on after a first run at once
    net.zero_grad()
    with caplog.at_level(logging.INFO, "bayesdiv.draws"):
        found = gradients(net, 2)
        gradients(net, 2)
    wanted = gradients(network(Blocks, None), 2)
    assert [record.message.count("checkpointing") for record in caplog.records] == [1]
    assert torch.allclose(found["posterior.rho"], wanted["posterior.rho"], atol=1e-6)


def test_a_vectorised_run_that_was_asked_for_says_what_to_do():
    for use in KINDS.values():
        with pytest.raises(RuntimeError, match=r"checkpointing: give over=bayesdiv.Looped\(\)"):
            gradients(network(Blocks, use), 2, bd.Vectorized())
