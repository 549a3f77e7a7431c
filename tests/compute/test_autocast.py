"""Autocast with several draws: what it makes of a layer does not depend on how they are run."""

import logging

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import bayesdiv as bd

ROWS, SEQUENCES, IMAGES = torch.randn(8, 6), torch.randn(4, 5, 6), torch.randn(4, 2, 7, 7)


class Attention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


class Query(nn.Module):
    """Attention by hand between a layer with a bias and one without, as in Llama's relatives."""

    def __init__(self):
        super().__init__()
        self.query, self.value = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)

    def forward(self, x):
        query, value = self.query(x), self.value(x)
        return nn.functional.scaled_dot_product_attention(query, value, value)


MODULES = {
    "biased": (nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)), ROWS),
    "norm": (nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3)), ROWS),
    "convolution": (nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)), IMAGES),
    "attention": (Attention(6, 2, batch_first=True), SEQUENCES),
    "query": (Query(), SEQUENCES),
}


def made(name, where):
    torch.manual_seed(0)
    module, x = MODULES[name]
    return bd.bayesianize(module, bd.FanIn(), where=where), x


@pytest.mark.parametrize("drawn", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("share", ["all", "first"])
@pytest.mark.parametrize("name", MODULES)
def test_draws_at_once_have_the_dtype_and_the_values_of_draws_in_turn(name, share, drawn):
    first = next(key for key, _ in MODULES[name][0].named_parameters())
    net, x = made(name, lambda key, _: share == "all" or key == first)
    weights = bd.draw_weights(net, 3, dtype=drawn)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        at_once = bd.draws(net, x, weights, bd.Vectorized())
        in_turn = bd.draws(net, x, weights, bd.Looped())
    precise = bd.draws(net, x, tuple(w.float() for w in weights), bd.Looped())
    assert at_once.dtype == in_turn.dtype == torch.bfloat16
    near = (in_turn - precise).abs().max()
    assert (at_once - precise).abs().max() < 4 * near + 0.01


def test_trials_of_a_stack_are_cast_too():
    nets = [bd.bayesianize(MODULES["biased"][0], bd.FanIn()) for _ in range(2)]
    with torch.autocast("cpu", torch.bfloat16):
        assert bd.stacked(nets)(torch.stack([ROWS, ROWS])).dtype == torch.bfloat16


def test_double_precision_stays_as_it_is():
    net = bd.bayesianize(nn.Linear(6, 3).double(), bd.FanIn())
    weights = bd.draw_weights(net, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert bd.draws(net, ROWS.double(), weights, bd.Vectorized()).dtype == torch.float64


class Mixes(nn.Linear):
    """A network in which autocast under `torch.vmap` misses an operation."""

    def forward(self, x):
        if torch._C._are_functorch_transforms_active():
            raise RuntimeError("Expected query, key, and value to have the same dtype")
        return super().forward(x)


def test_a_mixture_of_dtypes_falls_back_to_a_loop_which_the_log_says_once(caplog):
    net = bd.bayesianize(Mixes(6, 3), bd.FanIn())
    objective = bd.Objective(bd.Classes(), num_data=8, samples=3)
    with caplog.at_level(logging.INFO, "bayesdiv.draws"):
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                objective(net, ROWS, torch.zeros(8, dtype=torch.long)).total.backward()
    assert [record.message.count("draw by draw") for record in caplog.records] == [1]
    with pytest.raises(RuntimeError, match="same dtype"):
        bd.draws(net, ROWS, bd.draw_weights(net, 3), bd.Vectorized())


@pytest.mark.parametrize("layer", [nn.PReLU(), nn.BatchNorm1d(6)], ids=["prelu", "batch norm"])
def test_a_layer_that_mixes_no_dtypes_under_vmap_runs_draw_by_draw(layer):
    source = nn.Sequential(nn.Linear(6, 6), layer, nn.Linear(6, 3)).eval()
    net = bd.bayesianize(source, bd.FanIn()).eval()
    weights = bd.draw_weights(net, 3)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(
            bd.draws(net, ROWS, weights), bd.draws(net, ROWS, weights, bd.Looped())
        )


@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, nn.utils.spectral_norm])
@pytest.mark.parametrize("samples", [1, 3])
def test_what_a_parametrization_reads_keeps_its_precision(norm, samples):
    """Its vectors are float32 buffers, and a product of a matrix and a vector is not cast."""
    net = bd.bayesianize(nn.Sequential(norm(nn.Linear(6, 3))), bd.FanIn())
    objective = bd.Objective(bd.Classes(), num_data=8, samples=samples)
    with torch.autocast("cpu", torch.bfloat16):
        objective(net, ROWS, torch.zeros(8, dtype=torch.long)).total.backward()
    assert net.posterior.loc.grad.isfinite().all()


def dtypes_of_a_fit(autocast):
    """Of the activations of the first layer."""
    net = bd.bayesianize(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)), bd.FanIn())
    objective = bd.Objective(bd.Gaussian(), num_data=8, samples=2)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()])
    seen = set()
    net.module[0].register_forward_hook(lambda *given: seen.add(given[2].dtype))
    batches = bd.Batches(ROWS, ROWS.sum(1), 8)
    list(bd.fit(net, objective, batches, optimizer, 1, autocast=autocast))
    return seen


def test_one_process_trains_in_one_precision_after_the_other():
    for dtype in (torch.bfloat16, None, torch.float16, torch.bfloat16):
        assert dtypes_of_a_fit(dtype) == {dtype or torch.float32}
