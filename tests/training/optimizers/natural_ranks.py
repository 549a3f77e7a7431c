"""One of several processes under torchrun: trains by natural gradients and saves what it has.

python natural_ranks.py FOLDER
"""

import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import bayesdiv as bd
from bayesdiv.model.priors import matrices
from bayesdiv.training.fit import same_draws
from bayesdiv.training.optimizers.natural import Natural


def trained() -> dict[str, Tensor]:
    """Weights after a few epochs, biases deterministic, all processes with the same draws."""
    torch.manual_seed(0)
    x = torch.randn(24, 3)
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    net = bd.bayesianize(module, bd.FanIn(), where=matrices)
    objective = bd.Objective(bd.Gaussian(), bd.JSG(0.1), num_data=24)
    optimizer = Natural(net, objective, num_data=24, lr=0.02, damping=0.1)
    batches = bd.Batches(x, x[:, 0] - x[:, 1], size=6)
    for _ in bd.fit(net, objective, batches, optimizer, 4, seed=1, seeding=same_draws):
        pass
    return {name: value.clone() for name, value in net.state_dict().items()}


if __name__ == "__main__":
    torch.save(trained(), Path(sys.argv[1]) / f"{os.environ['RANK']}.pt")
