"""Divergences of 11.2 million weights on a GPU, forward and backward, beside the copy bandwidth.

Prints milliseconds, the ratio to KL of the same mode, peak memory in units of the parameters, and
as a floor the time to read loc and rho and write both gradients once.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import softplus

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
import bayesdiv as bd

COUNT = 11_200_000
PRIOR = Normal(torch.zeros((), device="cuda"), torch.ones((), device="cuda"), validate_args=False)


def milliseconds(run: Callable[[], object], repeats: int = 20) -> float:
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[repeats // 2]


def main() -> None:
    loc = (torch.randn(COUNT, device="cuda") * 0.5).requires_grad_()
    rho = (torch.randn(COUNT, device="cuda") * 0.5 - 2).requires_grad_()
    source = torch.empty(4 * COUNT, device="cuda")
    target = torch.empty_like(source)
    copy = milliseconds(lambda: target.copy_(source))
    floor = copy / 2  # four arrays once, where the copy moves eight
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, floor {floor:.3f} ms")
    results = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "floor": floor}
    cases = {
        "KL": (bd.KL(), bd.Exact()),
        "JS-G": (bd.JSG(0.3), bd.Exact()),
        "JS-A": (bd.JSA(0.3), bd.Exact()),
        "JS-A, 40 nodes": (bd.JSA(0.3), bd.Exact(nodes=40)),
    }
    print("| divergence | mode | ms | over KL | memory |\n|---|---|---|---|---|")
    for mode, change in (("eager", lambda f: f), ("compiled", torch.compile)):
        for name, (divergence, estimator) in cases.items():
            q = Normal(loc, softplus(rho), validate_args=False)
            compute = estimator.prepare(divergence, q, PRIOR)

            def loss(
                loc: Tensor, rho: Tensor, compute: bd.estimators.Computation = compute
            ) -> Tensor:
                return compute(Normal(loc, softplus(rho), validate_args=False), PRIOR, None).sum()

            made = change(loss)

            def step(made: Callable[[Tensor, Tensor], Tensor] = made) -> None:
                loc.grad = rho.grad = None
                made(loc, rho).backward()

            step()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            time = milliseconds(step)
            memory = (torch.cuda.max_memory_allocated() - before) / (loc.nbytes + rho.nbytes)
            results[f"{name}, {mode}"] = time
            over = time / results[f"KL, {mode}"]
            print(f"| {name} | {mode} | {time:.2f} | {over:.2f} | {memory:.2f} |", flush=True)
    if "OUT" in os.environ:
        Path(os.environ["OUT"], "divergence_gpu.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
