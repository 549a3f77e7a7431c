"""Two processes that share one model, sharded or wrapped: as one process with all the data."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.sharded_ranks import CASES, layer, trained

SCRIPT = Path(__file__).with_name("sharded_ranks.py")

MORE = {
    "adapted": {"adapted": True},
    "groups 1": {"by": layer, "samples": 1},
    "groups 3": {"by": layer, "samples": 3},
}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of two processes found, by case and name."""
    folder = tmp_path_factory.mktemp("ranks")
    launcher = [sys.executable, "-W", "error::UserWarning:torch.distributed.fsdp"]
    launcher += ["-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    done = subprocess.run(
        [*launcher, SCRIPT, folder],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "returned a view" not in done.stderr
    return [load_file(folder / f"{rank}.safetensors") for rank in range(2)]


def of(found, case):
    return {k.partition("/")[2]: v for k, v in found.items() if k.startswith(f"{case}/")}


@pytest.mark.parametrize(
    ("way", "case"),
    [
        *[(way, case) for way in ("sharded", "wrapped") for case in CASES],
        *[("sharded", case) for case in MORE],
    ],
)
def test_two_processes_have_the_losses_and_gradients_of_one(ranks, way, case):
    options = (CASES | MORE)[case]
    alone = trained(lambda module: module, **options)
    first, second = (of(found, f"{way} {case}") for found in ranks)
    assert torch.allclose((first["losses"] + second["losses"]) / 2, alone["losses"], atol=1e-6)
    for name, wanted in alone.items():
        if name != "losses" and not name.startswith(("local", "saved")):
            assert torch.allclose(first[name], wanted, atol=1e-6), name
            assert torch.equal(first[name], second[name])


def test_parameters_prior_and_adam_s_state_are_parted(ranks):
    both = [of(found, "sharded one draw") for found in ranks]
    weights = len(both[0]["model.posterior.loc"])
    kept = ("model.posterior.loc", "model.posterior.rho", "model.prior.loc", "moment")
    for name in kept:
        parts = [found[f"local {name}"].item() for found in both]
        assert sum(parts) == weights
        assert max(parts) <= -(-weights // 2)


def test_groups_are_parted_one_by_one(ranks):
    both = [of(found, "sharded groups 1") for found in ranks]
    sizes = {f"model.groups.{name}.posterior.loc": size for name, size in (("0", 32), ("2", 9))}
    for name, size in sizes.items():
        assert sum(found[f"local {name}"].item() for found in both) == size
        assert max(found[f"local {name}"].item() for found in both) <= -(-size // 2)


def test_the_whole_state_can_be_had_for_saving(ranks):
    for case in ("sharded one draw", "sharded groups 1"):
        found = of(ranks[0], case)
        saved = {n.removeprefix("saved "): v for n, v in found.items() if n.startswith("saved ")}
        assert saved
        assert all(torch.equal(value, found[name]) for name, value in saved.items())


def test_blocks_of_a_frozen_trunk_are_parted_too(ranks):
    both = [of(found, "sharded adapted") for found in ranks]
    names = [name for name in both[0] if name.startswith("local") and name.endswith("base.weight")]
    assert len(names) == 2
    assert all(found[name].tolist() == [3, 6] for found in both for name in names)


def test_processes_with_seeds_of_their_own_draw_their_own_and_stay_together(ranks):
    first, second = (of(found, "own draws") for found in ranks)
    shared = of(ranks[0], "sharded one draw")
    assert torch.equal(first["model.posterior.loc"], second["model.posterior.loc"])
    assert not torch.allclose(
        first["gradient model.posterior.loc"], shared["gradient model.posterior.loc"]
    )
