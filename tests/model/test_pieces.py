"""Pieces of a vector: the gradients that `split` would give, in half its memory."""

import torch

from bayesdiv.model import layout as module
from bayesdiv.model.layout import pieces


def test_gradients_are_those_of_split_also_where_a_piece_is_used_twice_or_not(monkeypatch):
    monkeypatch.setattr(module, "LARGE", 1)
    torch.manual_seed(0)
    source = torch.randn(9, requires_grad=True)

    def loss(cut):
        one, two, _, four = cut(2 * source, [3, 2, 1, 3])
        return (one * four).sum() + two.square().sum() + (one * 3).sum()

    wanted = torch.autograd.grad(loss(lambda v, sizes: v.split(sizes)), source)
    value = loss(pieces)
    for _ in range(2):  # a graph that is kept gives the same gradients again
        torch.testing.assert_close(torch.autograd.grad(value, source, retain_graph=True), wanted)
