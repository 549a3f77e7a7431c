"""What the tests of training run in processes of their own.

python processes.py resume FOLDER       trains with a checkpoint an epoch, slowly, to be killed
python processes.py ranks FOLDER        one of several processes under torchrun
"""

import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.app import runs
from bayesdiv.training.fit import own_draws, same_draws

EPOCHS = 6
CHECKPOINT = "checkpoint.safetensors"


def problem():
    """A small regression: model, objective, batches with a short last one, optimizer."""
    torch.manual_seed(0)
    x = torch.randn(29, 3)
    y = x[:, 0] - 0.5 * x[:, 1]
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    net = bd.bayesianize(module, bd.Prior(Normal, loc=0.0, scale=1.0))
    objective = bd.Objective(
        bd.Gaussian(), bd.JSA(0.3), num_data=29, samples=2, strength=bd.WarmUp(4)
    )
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.02)
    return net, objective, bd.Batches(x, y, size=6, seed=3), optimizer


def train(folder, step=None):
    """Train to the last epoch, from a checkpoint if the folder has one, and return the weights."""
    net, objective, batches, optimizer = problem()
    parts = {"model": net, "objective": objective, "optimizer": optimizer}
    path, start = Path(folder) / CHECKPOINT, 0
    if path.exists():
        start = runs.load_state(path, parts)["epoch"]
    for epoch in bd.fit(net, objective, batches, optimizer, EPOCHS, first=start, seed=5, step=step):
        states = {name: part.state_dict() for name, part in parts.items()}
        runs.save_state(path, states, epoch=epoch.number)
    return {**net.state_dict(), **objective.state_dict()}


def slowly(loss_of, batch, optimizer, backward):
    time.sleep(0.05)
    return bd.Eager()(loss_of, batch, optimizer, backward)


def by_ranks(seeding=own_draws):
    """Weights after each epoch, the losses, and the seeds that this process drew its noise from."""
    net, objective, batches, optimizer = problem()
    seeds = []

    def noting_the_seed(loss_of, batch, optimizer, backward):
        seeds.append(torch.initial_seed())
        return bd.Eager()(loss_of, batch, optimizer, backward)

    trajectory, losses = [], []
    for epoch in bd.fit(
        net,
        objective,
        batches,
        optimizer,
        3,
        seed=5,
        seeding=seeding,
        step=noting_the_seed,
        accelerator=Accelerator(cpu=True),
    ):
        trajectory.append(torch.cat([net.posterior.loc, net.posterior.rho]).detach().clone())
        losses.append(torch.tensor(epoch.loss))
    return {
        "trajectory": torch.stack(trajectory),
        "losses": torch.stack(losses),
        "seeds": torch.tensor(seeds),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    task, folder = sys.argv[1:]
    if task == "resume":
        train(folder, slowly)
    else:
        results = {"shared": by_ranks(same_draws), "default": by_ranks()}
        rank = Accelerator(cpu=True).process_index
        flat = {f"{k}/{name}": t for k, r in results.items() for name, t in r.items()}
        save_file(flat, Path(folder) / f"{rank}.safetensors")
        torch.distributed.destroy_process_group()
