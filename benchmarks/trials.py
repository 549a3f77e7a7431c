"""Twenty trials at once against twenty runs in a row, on whatever device there is.

    python benchmarks/trials.py [--epochs 4] [--trials 20]

Both sides are the same code: a stack of twenty, and twenty stacks of one. Prints ratios of one run.
"""

import argparse
import json
import os
import statistics
import time

import torch
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.app.nets.tables import MLP

ROWS, INPUTS = 927, 8  # the training part of the concrete data
LOSSES = ((bd.KL(), 100), (bd.JSG(0.1), 100), (bd.JSA(0.5), 10), (bd.KL(), 1))


def seconds(trials: int, samples: int, divergence: bd.Divergence, epochs: int) -> float:
    """The fastest epoch of a stack: the first ones build tables, record graphs and warm up."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    prior = bd.Prior(Normal, loc=0.0, scale=1.0)
    model = bd.stacked(
        [bd.bayesianize(MLP(INPUTS, 1, (50,)).build(), prior) for _ in range(trials)]
    ).to(device)
    x = torch.randn(trials, ROWS, INPUTS, device=device)
    y = x.sum(-1)
    objective = bd.Objective(
        bd.Gaussian(torch.ones(trials)), divergence, num_data=ROWS, samples=samples
    ).to(device)
    optimizer = torch.optim.Adam(
        [*model.parameters(), *objective.parameters()], capturable=device.type == "cuda", fused=True
    )
    batches = bd.Batches(x, y, 32, range(trials))
    told = bd.fit(model, objective, batches, optimizer, epochs, seed=0, step=bd.Recorded())
    return min(epoch.seconds for epoch in told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    gpu = torch.cuda.is_available()
    name = torch.cuda.get_device_name() if gpu else f"CPU, {torch.get_num_threads()} threads"
    rows = []
    for divergence, samples in (
        (bd.KL(), 100),
        (bd.JSG(0.1), 100),
        (bd.JSA(0.5), 10),
        (bd.KL(), 1),
    ):
        ratios, together, alone = [], [], []
        for _ in range(given.repeats):  # side by side, since a shared machine changes its pace
            together.append(seconds(given.trials, samples, divergence, given.epochs))
            alone.append(seconds(1, samples, divergence, given.epochs))
            ratios.append(given.trials * alone[-1] / together[-1])
        rows.append(
            (repr(divergence), samples, min(together), min(alone), statistics.median(ratios))
        )
    print(
        f"{name}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}; {ROWS} rows, batch 32\n"
    )
    print(f"| loss | draws | an epoch of {given.trials}, ms | an epoch of one, ms | speed-up |")
    print("|---|---:|---:|---:|---:|")
    for loss, samples, together_, alone_, ratio in rows:
        print(f"| {loss} | {samples} | {1e3 * together_:.1f} | {1e3 * alone_:.1f} | {ratio:.1f} |")
    if "OUT" in os.environ:
        with open(f"{os.environ['OUT']}/trials.json", "w") as file:
            json.dump({"hardware": name, "torch": torch.__version__, "rows": rows}, file)


if __name__ == "__main__":
    main()
