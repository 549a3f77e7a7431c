"""The arithmetic of memory: the page shows it, and a real training step holds what it counts."""

from pathlib import Path

import pytest
import torch
from torch import nn

import bayesdiv as bd
from benchmarks import sharding

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "sharding.md"


def test_the_page_shows_the_table_that_the_program_prints():
    assert sharding.table() in PAGE.read_text()


def test_a_step_holds_what_is_counted_per_weight():
    net = bd.bayesianize(nn.Linear(64, 64, bias=False), bd.FanIn())
    module = bd.LossModule(net, bd.Objective(bd.Classes(), num_data=8))
    optimizer = torch.optim.Adam(module.parameters())
    x, y = torch.randn(8, 64), torch.zeros(8, dtype=torch.long)
    with torch.autocast("cpu", torch.bfloat16):
        (drawn,) = bd.draw_weights(net, 1, dtype=torch.bfloat16)
        loss = module(x, y)
    loss.total.backward()
    optimizer.step()
    learned = [p for p in module.parameters() if p.requires_grad]
    moments = [t for s in optimizer.state.values() for t in s.values() if t.numel() > 1]
    weights = net.layout.size
    assert sum(p.nbytes for p in learned) == sharding.PARAMETERS * weights
    assert sum(p.grad.nbytes for p in learned) == sharding.GRADIENTS * weights
    assert sum(t.nbytes for t in moments) == sharding.ADAM * weights
    assert 2 * drawn.nbytes == sharding.DRAW * weights


def test_parts_and_what_is_gathered_add_up():
    assert sharding.random_bytes(1) == 36
    assert sharding.random_bytes(8) == pytest.approx(32 / 8 + 4 + 16)
    assert sharding.random_bytes(8, 1 / 16) == pytest.approx(32 / 8 + 4 + 1)
    assert sharding.frozen_bytes(1) == 2
