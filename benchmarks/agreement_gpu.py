"""Kernels against the reference on a million pairs: `python benchmarks/agreement_gpu.py`.

For each divergence and dtype: the total and its gradients by every weight, as a training step on
the device computes them, against the rule of 96 nodes in double precision; then the tails of the
noise that a kernel draws. Ends with status 1 if anything is further off than its tolerance.
"""

import argparse
import math
import sys

import torch
from torch import Tensor
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.compute.backend import draw, prepare
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG
from bayesdiv.divergence.gaussian import SoftplusNormal

DIVERGENCES = [
    bd.KL(),
    bd.ReverseKL(),
    bd.WeightedKL(0.3),
    bd.JSG(0.1),
    bd.JSG(0.5),
    bd.JSA(0.01),
    bd.JSA(0.3),
    bd.JSA(0.5),
    bd.JSA(0.99),
    UnmodifiedJSA(0.3),
    UnmodifiedJSG(0.3),
    bd.TotalVariation(),
]
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
# Of the total, relative; of a gradient, relative to 1 or to itself where it is larger. A table
# stands behind JS-A of many weights in single precision, 40 nodes in double; in bfloat16 a scale
# and a gradient have two digits, and a derivative by rho is a product of several.
TOLERANCES = {
    torch.float32: (1e-5, 5e-3),
    torch.float64: (1e-6, 1e-5),
    torch.bfloat16: (1e-2, 5e-2),
}
# Total variation has a kink at q = p: next to it the last digit of a scale turns its gradient.
KINKED = 0.1
TAILS = (4.0, 5.0, 5.5)


def parameters(count: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    """Means within a few scales of the prior, scales from 1e-4 to 3 of it."""
    generator = torch.Generator().manual_seed(0)
    loc = 2 * torch.randn(count, generator=generator, dtype=torch.float64)
    scale = (10 ** (4.5 * torch.rand(count, generator=generator, dtype=torch.float64) - 4)).clamp(
        max=3.0
    )
    rho = scale.expm1().log()
    return tuple(x.to(device, dtype).requires_grad_() for x in (loc, rho))  # type: ignore[return-value]


def total(divergence: bd.Divergence, loc: Tensor, rho: Tensor) -> Tensor:
    """As a training step computes it."""
    q = SoftplusNormal(loc, rho)
    p = Normal(torch.zeros((), dtype=loc.dtype, device=loc.device), 1.0)
    return prepare(bd.Auto(), divergence, q, p).total(q, p)


def reference(divergence: bd.Divergence, loc: Tensor, rho: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The total and its gradients in double precision, from the very numbers in loc and rho."""
    own = [x.detach().double().requires_grad_() for x in (loc, rho)]
    q = SoftplusNormal(own[0], own[1])
    p = Normal(torch.zeros((), dtype=torch.float64, device=loc.device), 1.0)
    value = bd.Exact(nodes=96)(divergence, q, p).sum()
    return value.detach(), *torch.autograd.grad(value, own)  # type: ignore[return-value]


def errors(divergence: bd.Divergence, count: int, dtype: torch.dtype, device: str) -> list[float]:
    """How far the total is off, and the worst gradients by loc and rho."""
    loc, rho = parameters(count, dtype, device)
    found = total(divergence, loc, rho)
    gradients = torch.autograd.grad(found, (loc, rho))
    wanted, *exact = reference(divergence, loc, rho)
    off = [((found.double() - wanted).abs() / wanted.abs().clamp(min=1.0)).item()]
    for one, two in zip(gradients, exact, strict=True):
        off.append(((one.double() - two).abs() / two.abs().clamp(min=1.0)).max().item())
    return off


def noise(device: str, count: int, rounds: int) -> list[tuple[float, int, float]]:
    """Limits, how many draws lie beyond them, and how many should."""
    loc = torch.zeros(count, device=device)
    rho = torch.full_like(loc, math.log(math.expm1(1.0)))
    found = [0] * len(TAILS)
    for _ in range(rounds):
        far = draw(SoftplusNormal(loc, rho), 1).detach().abs()
        found = [old + int((far > limit).sum()) for old, limit in zip(found, TAILS, strict=True)]
    wanted = [count * rounds * math.erfc(limit / math.sqrt(2)) for limit in TAILS]
    return list(zip(TAILS, found, wanted, strict=True))


def main() -> int:
    """Print a table of both checks; the status is 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=1_000_000_000)
    options = parser.parse_args()
    failed = 0
    print("| divergence | dtype | total | by loc | by rho | within |\n|---|---|---:|---:|---:|---|")
    for divergence in DIVERGENCES:
        for dtype in DTYPES:
            off = errors(divergence, options.pairs, dtype, options.device)
            of_total, of_gradient = TOLERANCES[dtype]
            if divergence == bd.TotalVariation() and dtype == torch.bfloat16:
                of_gradient = KINKED
            right = off[0] <= of_total and max(off[1:]) <= of_gradient
            failed += not right
            numbers = " | ".join(f"{number:.1e}" for number in off)
            name = str(dtype).removeprefix("torch.")
            print(f"| {divergence} | {name} | {numbers} | {'yes' if right else 'NO'} |", flush=True)
    each = min(1 << 24, options.draws)
    for limit, found, wanted in noise(options.device, each, max(1, options.draws // each)):
        right = abs(found - wanted) <= 5 * math.sqrt(wanted) + 1
        failed += not right
        print(f"noise beyond {limit}: {found}, {wanted:.1f} wanted, {'yes' if right else 'NO'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
