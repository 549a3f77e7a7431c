"""Two processes under torchrun: replicated by DDP, sharded by FSDP2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

HERE = Path(__file__).parent
WORLD = 2


def run(*command: str) -> None:
    paths = os.pathsep.join(map(str, [HERE.parents[1] / "src", HERE.parent]))
    out = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert out.returncode == 0, out.stderr[-3000:]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    run(str(HERE / "ranks.py"), "alone", str(folder))
    return load_file(folder / "alone-0.safetensors")


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def ranks(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    started = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={WORLD}")
    run(*started, str(HERE / "ranks.py"), request.param, str(folder))
    found = [load_file(folder / f"{request.param}-{rank}.safetensors") for rank in range(WORLD)]
    return request.param, found


def test_two_processes_learn_what_one_learns(ranks, alone):
    _, found = ranks
    losses = torch.stack([one["losses"] for one in found]).mean(0)
    torch.testing.assert_close(losses, alone["losses"], rtol=1e-9, atol=0.0)
    for name in alone:
        if name.startswith(("gradient", "value")):
            for one in found:
                torch.testing.assert_close(one[name], alone[name], rtol=1e-6, atol=1e-9)


def test_sharding_halves_parameters_and_the_state_of_adam(ranks, alone):
    way, found = ranks
    held = [int(one["held"]) for one in found]
    if way == "ddp":
        assert held == [int(alone["held"])] * WORLD
    else:
        assert sum(held) == int(alone["held"])
        assert max(held) - min(held) <= 8


def test_processes_with_seeds_of_their_own_draw_other_weights(ranks):
    _, found = ranks
    assert found[0]["own draw"] != found[1]["own draw"]
