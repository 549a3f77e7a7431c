"""Draws in fewer bits, and fewer draws: how far predictions move, and how small files get."""

import pytest
import torch
from torch import nn

import bayesdiv as bd
from bayesdiv.serving.graph import Rounded, fewer, rounded
from serving.running import runner

X, Y = torch.randn(200, 20, generator=torch.Generator().manual_seed(1)), torch.arange(200) % 3


@pytest.fixture(scope="module")
def wide():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
    net = bd.bayesianize(network, bd.FanIn(), start=0.3)
    return net, bd.draw_weights(net, 2)


def nll(net, weights) -> float:
    return bd.metrics.nll(bd.predict_at(net, bd.Classes(), X, weights), Y).item()


@pytest.mark.parametrize(
    ("precision", "bytes_per_weight", "step"),
    [
        (Rounded(torch.float16), 2, 2**-11),
        (Rounded(torch.bfloat16), 2, 2**-8),
        (Rounded(torch.int8), 1, 1 / 254),
    ],
)
def test_each_precision_moves_a_weight_by_half_a_step_at_most(
    wide, precision, bytes_per_weight, step
):
    net, weights = wide
    first = net.layout.unflatten(weights[0][0])["0.weight"]
    stored = precision.packed(first)
    again = precision.unpacked(stored)
    assert stored[0].element_size() == bytes_per_weight
    largest = first.abs().amax(1, keepdim=True)  # of each output channel
    assert ((again - first).abs() <= 1.01 * step * largest).all()
    assert abs(nll(net, rounded(net, weights, precision)) - nll(net, weights)) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_packed_draws_stay_packed_in_the_file_and_give_what_rounded_gives(wide, suffix, tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 3))
    net = bd.bayesianize(network, bd.FanIn(), start=0.3)
    weights, sizes = bd.draw_weights(net, 4), {}
    for name, precision in {
        "32": Rounded(),
        "16": Rounded(torch.float16),
        "8": Rounded(torch.int8),
    }.items():
        made = bd.export(
            net, bd.Classes(), X[:2], tmp_path / f"{name}{suffix}", weights=weights,
            precision=precision,
        )  # fmt: skip
        sizes[name] = made.size
        kept = rounded(net, weights, precision)
        wanted = bd.predict_at(net, bd.Classes(), X, kept).probabilities
        found = runner(made.path)(X)["probabilities"]
        assert (found - wanted).abs().max() < 1e-5
    assert sizes["16"] < 0.6 * sizes["32"]
    assert sizes["8"] < 0.35 * sizes["32"]


@pytest.mark.parametrize("likelihood", [bd.Classes(), bd.HeteroscedasticGaussian()])
def test_few_draws_chosen_from_many_predict_more_like_all_than_few_random_ones(likelihood):
    torch.manual_seed(0)
    outputs = 3 if isinstance(likelihood, bd.Classes) else 2
    network = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, outputs))
    net = bd.bayesianize(network, bd.FanIn(), start=0.5)
    many = bd.draw_weights(net, 100)

    def away(weights, x) -> float:
        one, all_ = (bd.predict_at(net, likelihood, x, w) for w in (weights, many))
        return (one.mean - all_.mean).square().mean().sqrt().item()

    chosen = fewer(net, likelihood, X[:100], many, 10)
    random = [tuple(w[10 * k : 10 * k + 10] for w in many) for k in range(10)]
    usual = sum(away(weights, X[100:]) for weights in random) / 10
    assert away(chosen, X[100:]) < 0.75 * usual  # on rows that did not choose them


def test_a_count_beyond_the_draws_is_refused(wide):
    net, weights = wide
    with pytest.raises(ValueError, match="count must lie between 1 and the 2 draws, got 3"):
        fewer(net, bd.Classes(), X, weights, 3)
