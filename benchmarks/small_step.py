"""Time of one small update over plain torch: the default table network, batch 32, one draw, Adam.

    python benchmarks/small_step.py [--out results/benchmarks] [--rounds 30]

Both sides train one hidden layer of 50 units on 8 columns: plain torch with a Gaussian noise level
as any script would, and `bd.fit` with each divergence. Contenders take turns in every round, the
median over rounds of each round's ratio counts.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import bayesdiv as bd

ROWS, COLUMNS, HIDDEN, BATCH = 3200, 8, 50, 32
AIM = 2.0


def network() -> nn.Module:
    """The network of the command line's tables."""
    return nn.Sequential(nn.Linear(COLUMNS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))


def plain() -> Callable[[], None]:
    """An epoch of plain torch."""
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, COLUMNS), torch.randn(ROWS)
    net, rho = network(), nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.Adam([*net.parameters(), rho])

    def epoch() -> None:
        for places in torch.randperm(ROWS).split(BATCH):
            optimizer.zero_grad()
            scale = nn.functional.softplus(rho)
            miss = (net(x[places]).squeeze(-1) - y[places]) / scale
            loss = (0.5 * miss.square() + scale.log() + 0.5 * math.log(2 * math.pi)).mean()
            loss.backward()
            optimizer.step()

    return epoch


def bayesian(divergence: bd.Divergence) -> Callable[[], None]:
    """An epoch of `bd.fit`."""
    torch.manual_seed(0)
    x, y = torch.randn(ROWS, COLUMNS), torch.randn(ROWS)
    net = bd.bayesianize(network(), bd.FanIn())
    objective = bd.Objective(bd.Gaussian(), divergence, num_data=ROWS)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()])
    epochs = bd.fit(net, objective, bd.Batches(x, y, BATCH), optimizer, 10**9, seed=0)
    return lambda: next(epochs) and None


def main() -> None:
    """Time all, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    runs = {"plain torch": plain()}
    runs |= {str(d): bayesian(d) for d in (bd.KL(), bd.JSG(0.3), bd.JSA(0.3))}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(given.rounds + 2):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            if number >= 2:  # the first two warm up
                times[name].append(1e3 * (time.perf_counter() - began) / (ROWS / BATCH))
    ratios = {
        name: statistics.median(a / b for a, b in zip(each, times["plain torch"], strict=True))
        for name, each in times.items()
    }
    shown = (
        "# A small update over plain torch\n\n"
        f"`python benchmarks/small_step.py` on {time.strftime('%Y-%m-%d')}: torch "
        f"{torch.__version__}, {torch.get_num_threads()} threads on a CPU; {COLUMNS}-{HIDDEN}-1, "
        f"batch {BATCH}, one draw, Adam, no compiler.\n\n"
        f"| step | ms | over plain torch | aim |\n|---|---:|---:|---:|\n"
    )
    for name, each in times.items():
        aim = "" if name == "plain torch" else f"≤ {AIM:.1f}"
        shown += f"| {name} | {statistics.median(each):.2f} | {ratios[name]:.2f} | {aim} |\n"
    print(shown)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "small_step_cpu.md").write_text(shown)
    told = {"torch": torch.__version__, "ratios": ratios}
    (given.out / "small_step_cpu.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
