"""What is written: once what draws share, whole files, and no library of ours to run them."""

import subprocess
import sys
from collections import Counter

import pytest
import torch
from torch import nn

import bayesdiv as bd
from bayesdiv.model.layout import unfrozen
from bayesdiv.serving import files

ALONE = """
import sys, json
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "bayesdiv":
            raise ImportError("blocked")
sys.meta_path.insert(0, Block())
{load}
assert not any(name.startswith("bayesdiv") for name in sys.modules)
print(json.dumps(mean))
"""
LOADS = {
    ".onnx": "import numpy as np, onnxruntime\n"
    "session = onnxruntime.InferenceSession(sys.argv[1])\n"
    "(mean,) = session.run(['mean'], {'x': np.ones((3, 4), np.float32)})\n"
    "mean = mean.tolist()",
    ".pt2": "import torch\n"
    "mean = torch.export.load(sys.argv[1]).module()(torch.ones(3, 4))['mean'].tolist()",
}


def last_layer(where=None):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return bd.bayesianize(network, bd.FanIn(), where=where or unfrozen)


def operations(program) -> Counter[str]:
    return Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function")


def test_a_deterministic_trunk_is_computed_once_for_all_draws(tmp_path):
    net = last_layer(where=lambda name, _: name.startswith("4."))
    made = bd.export(net, bd.Gaussian(), torch.zeros(2, 4), tmp_path / "net.pt2", 5, level=None)
    program = torch.export.load(made.path)
    assert operations(program)["aten.linear.default"] == 2 + 5
    assert operations(program)["aten.tanh.default"] == 2
    x = torch.randn(6, 4)
    with torch.no_grad(), bd.at_mean(net):
        assert program.module()(x)["mean"].shape == net(x).squeeze(-1).shape


def test_every_draw_of_an_all_random_network_is_computed(tmp_path):
    made = bd.export(
        last_layer(), bd.Gaussian(), torch.zeros(2, 4), tmp_path / "a.pt2", 5, level=None
    )
    assert operations(torch.export.load(made.path))["aten.linear.default"] == 15


@pytest.mark.filterwarnings("ignore")  # of torch's own
def test_random_operations_are_not_merged():
    class Noisy(nn.Module):
        def forward(self, x):
            return torch.rand_like(x) + torch.rand_like(x) + x.sin() + x.sin()

    program = torch.export.export(Noisy(), (torch.zeros(2),)).run_decompositions({})
    files.shared(program)
    assert operations(program)["aten.rand_like.default"] == 2
    assert operations(program)["aten.sin.default"] == 1


def test_a_network_that_fixes_the_number_of_rows_is_refused(tmp_path):
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(4, 1)

        def forward(self, x):
            return self.line(x.reshape(2, 4))

    net = bd.bayesianize(Fixed(), bd.FanIn())
    with pytest.raises(ValueError, match="cannot be traced for any number of rows"):
        bd.export(net, bd.Gaussian(), torch.zeros(2, 4), tmp_path / "net.pt2", 1, level=None)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("suffix", LOADS)
def test_a_file_runs_in_another_process_without_this_library(suffix, tmp_path):
    torch.manual_seed(0)
    net = last_layer()
    weights = bd.draw_weights(net, 3)
    made = bd.export(
        net, bd.Gaussian(), torch.zeros(2, 4), tmp_path / f"net{suffix}", weights=weights
    )
    code = ALONE.format(load=LOADS[suffix])
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(made.path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-500:]
    wanted = bd.predict_at(net, bd.Gaussian(), torch.ones(3, 4), weights).mean
    found = torch.tensor(eval(done.stdout.splitlines()[-1]))
    assert (found - wanted).abs().max() < 1e-5
