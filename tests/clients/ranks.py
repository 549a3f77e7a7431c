"""One of two processes under torchrun: python ranks.py ddp|fsdp FOLDER, or `alone` for one.

A tiny BERT learns three batches; each process reads its half of every one. What it found goes to a
file per process.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import bayesdiv as bd
from clients.transformer_nets import TOKENS, made

STEPS, ROWS = 3, 8


def problem() -> tuple[bd.LossModule, list[tuple[dict, torch.Tensor]]]:
    torch.manual_seed(0)
    settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    # Double precision: Adam divides by gradients that are rounding errors in single precision.
    source = made("BertForSequenceClassification", settings).double()
    objective = bd.Objective(bd.Classes(), bd.JSA(0.3), num_data=64, samples=2)
    module = bd.LossModule(bd.bayesianize(source, bd.FanIn()), objective)
    batches = [
        ({"input_ids": torch.randint(5, TOKENS, (ROWS, 6))}, torch.randint(0, 3, (ROWS,)))
        for _ in range(STEPS)
    ]
    return module, batches


def whole(tensor: torch.Tensor) -> torch.Tensor:
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().clone().contiguous()


def trained(module: nn.Module, batches: list, rank: int, world: int) -> dict[str, torch.Tensor]:
    """Losses, gradients of the last step and parameters, and how much this process holds."""
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    losses = []
    for number, (inputs, labels) in enumerate(batches):
        torch.manual_seed(number)  # the same draws in all processes, as one would make
        own = {key: value[rank::world] for key, value in inputs.items()}
        optimizer.zero_grad()
        loss = module(own, labels[rank::world]).total
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    found = {"losses": torch.stack(losses)}
    held = 0
    for name, parameter in module.named_parameters():
        short = name.removeprefix("module.")
        found[f"gradient {short}"] = whole(parameter.grad)
        found[f"value {short}"] = whole(parameter)
        state = optimizer.state[parameter]["exp_avg"]
        parts = [one.to_local() if isinstance(one, DTensor) else one for one in (parameter, state)]
        held += sum(part.numel() for part in parts)
    found["held"] = torch.tensor(held)
    torch.manual_seed(100 + rank)  # what each process draws from where seeds differ
    inputs, labels = batches[0]
    found["own draw"] = module(inputs, labels).total.detach()
    return found


def main() -> None:
    way, folder = sys.argv[1:]
    torch.set_num_threads(1)
    module, batches = problem()
    rank, world = 0, 1
    if way != "alone":
        dist.init_process_group("gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
    if way == "ddp":
        module = DistributedDataParallel(module)
    if way == "fsdp":
        fully_shard(module, mesh=init_device_mesh("cpu", (world,)))
    save_file(trained(module, batches, rank, world), Path(folder) / f"{way}-{rank}.safetensors")
    if way != "alone":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
