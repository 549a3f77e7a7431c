"""Peak memory of one training step over that of the deterministic network, on a CPU and a GPU.

    python benchmarks/memory.py [--out results/benchmarks] [--weights 50000000]

Three square layers with 50 million weights in all and a batch of 8, so that weights outweigh
activations; Adam, `bd.fit`. On a CPU every row is a process of its own, whose peak is its highest
resident set less that before the network was made; on a GPU it is the highest allocation.
Both count what a step holds: parameters, Adam's state, gradients, draws. Unit: the weights in
float32.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import bayesdiv as bd
from bayesdiv.draws import Over

ROWS, LAYERS, STEPS = 8, 3, 3
CASES: dict[str, tuple[int, Over | None] | None] = {
    "deterministic": None,
    "1 draw": (1, None),
    "4 draws, Looped()": (4, bd.Looped()),
    "4 draws, Vectorized(chunk=1)": (4, bd.Vectorized(chunk=1)),
    "4 draws, Vectorized()": (4, bd.Vectorized()),
}
AIMS = {"1 draw": 2.0, "4 draws, Looped()": 2.2, "4 draws, Vectorized(chunk=1)": 2.2}


def resident() -> int:
    """The highest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def steps(case: str, weights: int, device: torch.device) -> Iterator[None]:
    """Some training steps of a network with so many weights."""
    width = math.isqrt(weights // LAYERS)
    source = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(LAYERS)))
    settings = CASES[case]
    net: nn.Module = source.to(device)
    samples, over = settings or (1, None)
    if settings is not None:
        net = bd.bayesianize(source, bd.FanIn())
        del source
    objective = bd.Objective(bd.Classes(), bd.KL(), num_data=ROWS, samples=samples, over=over)
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.randn(ROWS, width, device=device)
    y = torch.randint(width, (ROWS,), device=device)
    batches = bd.Batches(x, y, ROWS)
    for _ in bd.fit(net, objective, batches, optimizer, STEPS, device=device):
        yield


def on_cpu(case: str, weights: int) -> float:
    """Peak of this process, which does nothing else, in units of the weights."""
    for _ in steps(case, 3 * 64**2, torch.device("cpu")):
        pass  # what is imported, compiled and built once
    before = resident()
    for _ in steps(case, weights, torch.device("cpu")):
        pass
    return (resident() - before) / (4 * weights)


def on_gpu(case: str, weights: int) -> float:
    """Highest allocation, in units of the weights."""
    device = torch.device("cuda")
    for _ in steps(case, 3 * 64**2, device):
        pass
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in steps(case, weights, device):
        pass
    return (torch.cuda.max_memory_allocated() - before) / (4 * weights)


def measured(device: str, weights: int) -> dict[str, float]:
    """Peaks of all cases, each in a process of its own."""
    found = {}
    for case in CASES:
        command = [sys.executable, __file__, "--case", case, "--device", device]
        done = subprocess.run(
            [*command, "--weights", str(weights)], check=True, capture_output=True, text=True
        )
        found[case] = float(done.stdout.split()[-1])
        print(f"{device}: {case}: {found[case]:.2f}", file=sys.stderr, flush=True)
    return found


def table(found: dict[str, dict[str, float]], weights: int) -> str:
    """Markdown: peaks, ratios and aims."""
    lines = [
        "# Memory of a training step",
        "",
        f"`python benchmarks/memory.py` on {time.strftime('%Y-%m-%d')}, torch {torch.__version__}; "
        f"{weights:,} weights, batch {ROWS}, KL, Adam.",
        "",
        "| device | step | peak, in float32 weights | over deterministic | aim |",
        "|---|---|---:|---:|---:|",
    ]
    for device, peaks in found.items():
        for case, peak in peaks.items():
            aim = f"≤ {AIMS[case]:.1f}" if case in AIMS else ""
            ratio = peak / peaks["deterministic"]
            lines.append(f"| {device} | {case} | {peak:.2f} | {ratio:.2f} | {aim} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """One case in this process, or all in their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--weights", type=int, default=50_000_000)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    given = parser.parse_args()
    if given.case:
        measure = on_gpu if given.device == "cuda" else on_cpu
        print(measure(given.case, given.weights))
        return
    devices = [given.device] if given.device else ["cpu"]
    if torch.cuda.is_available() and not given.device:
        devices.append("cuda")
    found = {device: measured(device, given.weights) for device in devices}
    shown = table(found, given.weights)
    print(shown)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "memory.md").write_text(shown)
    told = {"weights": given.weights, "torch": torch.__version__, "peaks": found}
    (given.out / "memory.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
