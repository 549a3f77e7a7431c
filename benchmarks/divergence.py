"""Time of a divergence, forward and backward with softplus(rho), beside KL in the same run.

Our three are summed the way a training step sums them: the posterior told by loc and rho, and the
function that `prepare` returns. The others sum one value per weight, as those who
write them out do. Prints one Markdown table: nanoseconds a weight, the ratio to our own KL, and the
peak memory beyond parameters and gradients in units of the parameters. Run: make bench
"""

import argparse
import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus
from torch.profiler import ProfilerActivity, profile

import bayesdiv as bd
from bayesdiv.compute.backend import prepare
from bayesdiv.divergence import Estimator
from bayesdiv.divergence.gaussian import SoftplusNormal

Value = Callable[[Normal], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
PRIOR = Normal(torch.tensor(0.0), torch.tensor(1.0), validate_args=False)


def trained(divergence: bd.Divergence) -> Callable[[int], Loss]:
    """As in a training step of so many weights."""

    def made(count: int) -> Loss:
        like = SoftplusNormal(torch.zeros(count), torch.zeros(count))
        prepared = prepare(bd.Auto(), divergence, like, PRIOR)
        return lambda loc, rho: prepared.total(SoftplusNormal(loc, rho), PRIOR)

    return made


def written_out(value: Value) -> Callable[[int], Loss]:
    """One value per weight of Gaussians given by loc and scale, summed."""
    return lambda count: lambda loc, rho: value(Normal(loc, softplus(rho), validate_args=False))


def by(divergence: bd.Divergence, estimator: Estimator) -> Value:
    return lambda q: estimator(divergence, q, PRIOR).sum()


def torch_kl(q: Normal) -> Tensor:
    return kl_divergence(q, PRIOR).sum()


def algorithm_2(q: Normal) -> Tensor:
    """JS-A as the paper's algorithm 2 computes it, mended: one sample of q and one of p."""
    alpha = 0.3
    w, v = q.rsample(), torch.randn_like(q.loc)
    total = torch.zeros(())
    for x, own, share in ((w, q, 1 - alpha), (v, PRIOR, alpha)):
        log_q, log_p = q.log_prob(x), PRIOR.log_prob(x)
        mean = torch.logaddexp(log_q + math.log(alpha), log_p + math.log(1 - alpha))
        total = total + share * ((log_q if own is q else log_p) - mean).sum()
    return total


SLOW = "JS-A, the rule of 40 nodes"
KINDS: dict[str, Callable[[int], Loss]] = {
    "KL": trained(bd.KL()),
    "JS-G": trained(bd.JSG(0.3)),
    "JS-A": trained(bd.JSA(0.3)),
    "KL of torch.distributions": written_out(torch_kl),
    SLOW: written_out(by(bd.JSA(0.3), bd.Exact(nodes=40))),
    "JS-A, one Monte Carlo sample": written_out(by(bd.JSA(0.3), bd.MonteCarlo(1))),
    "JS-A, the paper's algorithm 2": written_out(algorithm_2),
}


def parameters(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(count, generator=generator) * 0.5
    rho = torch.randn(count, generator=generator) * 0.5 - 2
    return loc.requires_grad_(), rho.requires_grad_()


def step(loss: Loss, loc: Tensor, rho: Tensor) -> None:
    loc.grad = rho.grad = None
    loss(loc, rho).backward()


def seconds(losses: dict[str, Loss], count: int, repeats: int) -> dict[str, float]:
    """Medians of rounds in which all losses take turns, so that a busy machine slows all alike."""
    loc, rho = parameters(count)
    times: dict[str, list[float]] = {name: [] for name in losses}
    for turn in range(repeats + 2):
        for name, loss in losses.items():
            if name == SLOW and count > 2_000_000 and turn > 3:
                continue
            start = time.perf_counter()
            step(loss, loc, rho)
            if turn > 1:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


@contextmanager
def quiet() -> Iterator[None]:
    """Without what the profiler's library writes on stderr, below Python."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def peak_extra(loss: Loss, count: int) -> float:
    """Peak of all live tensors, forward and backward, less the gradients, in units of loc and rho.

    The scale, half a unit, is among them.
    """
    loc, rho = parameters(count)
    step(loss, loc, rho)
    loc.grad = rho.grad = None
    gc.collect()
    with quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        step(loss, loc, rho)
    live = peak = 0
    for event in trace.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    size = loc.nbytes + rho.nbytes
    return (peak - size) / size


def report(kind: str, losses: dict[str, Loss], count: int, repeats: int, kl: float) -> float:
    times = seconds(losses, count, repeats)
    kl = kl or times["KL"]
    for name, value in times.items():
        memory = "" if kind == "compiled" else f"{peak_extra(losses[name], count):.2f}"
        print(
            f"| {count:.0e} | {name} | {kind} | {1e9 * value / count:.1f} | {value / kl:.2f} "
            f"| {value / times['KL']:.2f} | {memory} |",
            flush=True,
        )
    return kl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=float, nargs="+", default=[1e3, 1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-compile", action="store_true")
    settings = parser.parse_args()
    torch.set_num_threads(2)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, float32, medians\n")
    print("| weights | divergence | mode | ns a weight | over eager KL | over same KL | memory |")
    print("|---|---|---|---|---|---|---|")
    for count in map(int, settings.counts):
        losses = {name: made(count) for name, made in KINDS.items()}
        kl = report("eager", losses, count, settings.repeats, 0.0)
        if not settings.no_compile:
            ours = {name: torch.compile(losses[name]) for name in ("KL", "JS-G", "JS-A")}
            report("compiled", ours, count, settings.repeats, kl)


if __name__ == "__main__":
    main()
