"""Twelve networks and every likelihood of tables: what `predict_at` gives, in two runtimes."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import bayesdiv as bd
from bayesdiv.likelihoods import Gamma, GaussianMixture, LogNormal, NegativeBinomial
from serving.networks import Bert, Cnn, Encoder, Recurrent, efficientnet_lite0, resnet18, tried
from serving.running import assert_equal, expected, runner

pytestmark = pytest.mark.slow
SUFFIXES, ROWS = (".onnx", ".pt2"), (1, 7, 512)
SHALLOW, DEEP = 1e-5, 1e-4


class Case(NamedTuple):
    """A network, rows for it, its likelihood, and how near its files must come."""

    network: Callable[[], nn.Module]
    rows: Callable[[int], object]
    likelihood: Callable[[], nn.Module]
    tolerance: float = SHALLOW
    where: Callable[[str, nn.Parameter], bool] = lambda name, parameter: parameter.requires_grad
    most: int = ROWS[-1]


def mlp(outputs: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Linear(6, 30), nn.SiLU(), nn.Linear(30, 30), nn.Tanh(), nn.Linear(30, outputs)
    )


def table(rows: int) -> Tensor:
    return torch.randn(rows, 6)


def images(rows: int) -> Tensor:
    return torch.randn(rows, 3, 32, 32)


def series(rows: int) -> Tensor:
    return torch.randn(rows, 9, 4)


def words(rows: int) -> dict[str, Tensor]:
    mask = (torch.rand(rows, 11) < 0.8).long()
    mask[:, 0] = 1
    return {"input_ids": torch.randint(50, (rows, 11)), "attention_mask": mask}


def after_batches(made: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: tried(made(), images(16))


def head(name: str, parameter: nn.Parameter) -> bool:
    return name.startswith("head.")


CASES = {
    "mlp": Case(mlp(4), table, bd.Classes),
    "cnn with batch norm": Case(after_batches(Cnn), images, bd.Classes),
    "resnet-18": Case(after_batches(lambda: resnet18(16)), images, bd.Classes, DEEP),
    "last layer of a cnn": Case(after_batches(Cnn), images, bd.Classes, where=head),
    "lstm": Case(Recurrent, series, bd.Gaussian),
    "transformer encoder": Case(Encoder, series, bd.Classes),
    "efficientnet-lite0": Case(after_batches(efficientnet_lite0), images, bd.Classes, DEEP),
    "bert": Case(Bert, words, bd.Classes, DEEP),
    "table, gaussian": Case(mlp(1), table, bd.Gaussian),
    "table, several gaussians": Case(mlp(3), table, bd.Gaussian),
    "table, heteroscedastic": Case(mlp(2), table, bd.HeteroscedasticGaussian),
    "table, student's t": Case(mlp(1), table, bd.StudentTNoise),
    "table, binary": Case(mlp(1), table, bd.Binary),
    "table, counts": Case(mlp(1), table, bd.Poisson),
    "table, overdispersed counts": Case(mlp(2), table, lambda: NegativeBinomial(centre=2.0)),
    "table, log-normal": Case(mlp(2), table, LogNormal),
    "table, gamma": Case(mlp(2), table, Gamma),
    "table, mixture": Case(mlp(6), table, lambda: GaussianMixture(components=2)),
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", CASES)
def test_a_file_gives_what_predict_at_gives(name, suffix, tmp_path):
    case = CASES[name]
    torch.manual_seed(0)
    likelihood = case.likelihood()
    net = bd.bayesianize(case.network(), bd.FanIn(), where=case.where, start=0.3)
    weights = bd.draw_weights(net, 3)
    made = bd.export(net, likelihood, case.rows(2), tmp_path / f"net{suffix}", weights=weights)
    run = runner(made.path)
    for rows in ROWS:
        x = case.rows(rows)
        wanted = expected(bd.predict_at(net, likelihood, x, weights, batch_size=64))
        found = run(*(x.values() if isinstance(x, dict) else (x,)))
        assert set(found) == set(wanted)
        assert_equal(found, wanted, case.tolerance)
