"""One of two processes under torchrun: trains a loss module that is sharded, or wrapped, as it is.

python sharded_ranks.py FOLDER
"""

import copy
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import bayesdiv as bd
from bayesdiv.saving import SavingError

CASES = {
    "one draw": {"samples": 1},
    "a loop": {"samples": 3, "over": bd.Looped()},
    "at once": {"samples": 3, "over": bd.Vectorized()},
    "JS-A": {"samples": 1, "divergence": bd.JSA(0.3)},
    "constrained": {"samples": 1, "strength": bd.Constraint(0.1)},
}


class Adapted(nn.Module):
    """A frozen trunk of two blocks that recompute, with adapters that are random."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        x = nn.functional.pad(x, (0, 3))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return self.head(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 6).requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 6, bias=False)

    def forward(self, x):
        return (self.base(x) + self.up(self.down(x))).tanh()


def module_for(**options) -> tuple[bd.LossModule, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(16, 3)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    net = Adapted() if options.pop("adapted", False) else net
    options = copy.deepcopy(options)  # a strength is a module of its own
    model = bd.bayesianize(net, bd.AroundStart(0.5), by=options.pop("by", None))
    return bd.LossModule(model, bd.Objective(bd.Gaussian(), num_data=16, **options)), x, x.sum(1)


def trained(wrap, rank=0, world=1, spread=0, **options) -> dict[str, Tensor]:
    """Losses, gradients of the first step and parameters after three, of all processes."""
    module, x, y = module_for(**options)
    module = wrap(module)
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=0.02)
    losses, found = [], {}
    for step in range(3):
        torch.manual_seed(step + spread * rank)
        optimizer.zero_grad()
        loss = module(x[rank::world], y[rank::world])
        loss.total.backward()
        if step == 0:
            found = {f"gradient {n}": whole(p.grad) for n, p in named(module) if p.requires_grad}
        optimizer.step()
        losses.append(loss.total.detach())
    state = optimizer.state[next(p for n, p in named(module) if n.endswith("posterior.loc"))]
    found |= {f"local {n}": torch.tensor(local(p).shape) for n, p in named(module)}
    found |= {"local moment": torch.tensor(local(state["exp_avg"]).shape)}
    found |= {n: whole(p) for n, p in named(module)}
    state = get_model_state_dict(module, options=StateDictOptions(full_state_dict=True))
    whole_state = {n.removeprefix("module."): value for n, value in state.items()}
    found |= {f"saved {n}": whole(p) for n, p in whole_state.items() if n.endswith("loc")}
    return found | {"losses": torch.stack(losses)}


def layer(name: str) -> str:
    return name.partition(".")[0]


def named(module):
    return [(name.removeprefix("module."), p) for name, p in module.named_parameters()]


def whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def main(folder: Path) -> None:
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    mesh = init_device_mesh("cpu", (world,))

    def sharded(module):
        for group in getattr(module.model, "parts", ()):
            fully_shard(group, mesh=mesh)
            register_fsdp_forward_method(group, "inside")
        for block in getattr(module.model.module, "blocks", ()):
            fully_shard(block, mesh=mesh)
        return fully_shard(module, mesh=mesh)

    refused = sharded(module_for()[0]).model
    with pytest.raises(SavingError, match=r"posterior.loc is sharded over processes: load the"):
        bd.save(folder / "net", refused)
    results = {}
    for name, options in CASES.items():
        results[f"sharded {name}"] = trained(sharded, rank, world, **options)
        results[f"wrapped {name}"] = trained(DistributedDataParallel, rank, world, **options)
    results["sharded adapted"] = trained(sharded, rank, world, adapted=True)
    for samples in (1, 3):
        results[f"sharded groups {samples}"] = trained(
            sharded, rank, world, by=layer, samples=samples
        )
    results["own draws"] = trained(sharded, rank, world, spread=100)
    flat = {f"{key}/{name}": t for key, found in results.items() for name, t in found.items()}
    save_file(flat, folder / f"{rank}.safetensors")
    distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
