"""Time and memory of a summed divergence on a GPU, from loc and rho to both gradients.

    python benchmarks/divergence_gpu.py [--most 1e8]

Prints one Markdown table. The floor is the time to read loc and rho once and write both gradients
once at the card's bandwidth, that of a large copy in the same run. Every time is that of replays of
a recorded graph, so that it is the card's and not that of the launches. Memory is the peak beyond
parameters and gradients, in units of the parameters loc and rho.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.distributions import Normal

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
import bayesdiv as bd
from bayesdiv.compute.backend import prepare
from bayesdiv.divergence.gaussian import SoftplusNormal

COUNTS = (1_000, 10_000, 100_000, 1_000_000, 11_200_000, 100_000_000)
DIVERGENCES = {"KL": bd.KL(), "JS-G": bd.JSG(0.3), "JS-A": bd.JSA(0.3)}
ROUNDS = 7


def recorded(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of it, after a warm-up on another stream as torch wants it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def milliseconds(graph: torch.cuda.CUDAGraph, repeats: int) -> float:
    """Of one replay among several in a row."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeats


def parameters(count: int) -> tuple[Tensor, Tensor]:
    loc = (torch.randn(count, device="cuda") * 0.5).requires_grad_()
    rho = (torch.randn(count, device="cuda") * 0.5 - 2).requires_grad_()
    return loc, rho


def pass_over(divergence: bd.Divergence, loc: Tensor, rho: Tensor) -> Callable[[], None]:
    """Forward and backward, the gradients as they come."""
    zero, one = torch.zeros((), device="cuda"), torch.ones((), device="cuda")
    prior = Normal(zero, one, validate_args=False)
    prepared = prepare(bd.Auto(), divergence, SoftplusNormal(loc, rho), prior)

    def run() -> None:
        loc.grad = rho.grad = None
        prepared.total(SoftplusNormal(loc, rho), prior).backward()  # type: ignore[no-untyped-call]

    return run


def extra_memory(run: Callable[[], None], loc: Tensor, rho: Tensor) -> float:
    """The peak beyond parameters and gradients, in units of the parameters."""
    run()
    loc.grad = rho.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    peak = torch.cuda.max_memory_allocated() - before
    loc.grad = rho.grad = None
    size = loc.nbytes + rho.nbytes
    return (peak - size) / size


def bandwidth(count: int = 200_000_000) -> float:
    """Bytes a millisecond, read and written, of a copy that no cache holds."""
    source = torch.rand(count, device="cuda")
    target = torch.empty_like(source)
    graph = recorded(lambda: target.copy_(source))
    return 2 * source.nbytes / statistics.median(milliseconds(graph, 5) for _ in range(ROUNDS))


def measured(count: int, rate: float) -> list[dict[str, float | str]]:
    """A row a divergence."""
    loc, rho = parameters(count)
    runs = {name: pass_over(divergence, loc, rho) for name, divergence in DIVERGENCES.items()}
    memory = {name: extra_memory(run, loc, rho) for name, run in runs.items()}
    graphs = {name: recorded(run) for name, run in runs.items()}
    repeats = max(5, min(200, 200_000_000 // count))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            times[name].append(milliseconds(graph, repeats))
    medians = {name: statistics.median(values) for name, values in times.items()}
    floor = 16 * count / rate  # loc, rho and both gradients, in float32
    return [
        {
            "weights": count,
            "divergence": name,
            "ms": medians[name],
            "ns_a_weight": 1e6 * medians[name] / count,
            "over_floor": medians[name] / floor,
            "over_kl": medians[name] / medians["KL"],
            "memory": memory[name],
        }
        for name in runs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=1e8, help="the largest number of weights")
    most = parser.parse_args().most
    rate = bandwidth()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}; "
        f"copy bandwidth {rate / 1e6:,.0f} GB/s"
    )
    print("\n| weights | divergence | ms | ns a weight | over floor | over KL | memory |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    rows = []
    for count in (count for count in COUNTS if count <= most):
        for row in measured(count, rate):
            rows.append(row)
            print(
                f"| {count:,} | {row['divergence']} | {row['ms']:.4f} | {row['ns_a_weight']:.4f} "
                f"| {row['over_floor']:.2f} | {row['over_kl']:.2f} | {row['memory']:.3f} |",
                flush=True,
            )
        torch.cuda.empty_cache()
    if "OUT" in os.environ:
        Path(os.environ["OUT"], "divergence_gpu.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
