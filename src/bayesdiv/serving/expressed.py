"""Operations that ONNX or its runtimes lack, by others that they have."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

NODES, STEP = 40, 0.08  # of the tanh-sinh rule, on each side of its middle
ENOUGH = 40.0  # e^-40 of an integrand's peak is left out


def upper_gamma(a: Tensor, x: Tensor) -> Tensor:
    """Q(a, x), the regularised upper incomplete gamma function, without a gamma function.

        Q(a, x) = ∫_u^∞ g dv / ∫_-∞^∞ g dv,   g(v) = exp(-a (e^v - 1 - v)),   u = log(x / a)

    Both integrals by the tanh-sinh rule, as far as g is more than e^-40.

    Examples:
        >>> upper_gamma(torch.tensor(3.0).double(), torch.tensor(2.0).double())
        tensor(0.6767, dtype=torch.float64)
    """
    share = ENOUGH / a
    reach = (2 * share).sqrt()
    low, high = -(share * 2 / 3 + reach), (1 + share + reach).log()
    start = torch.maximum(torch.minimum((x / a).log(), high), low)
    above, below = _area(a, start, high), _area(a, low, start)
    return above / (above + below)


def _area(a: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """∫ g from low to high, see `upper_gamma`."""
    # Made in the graph: a constant tensor in a decomposition is lost on the way to ONNX.
    t = STEP * torch.arange(-NODES, NODES + 1, dtype=a.dtype, device=a.device)
    steep = 0.5 * math.pi * (t.exp() - (-t).exp()) / 2
    shares = STEP * 0.5 * math.pi * (t.exp() + (-t).exp()) / (steep.exp() + (-steep).exp()) ** 2
    v = low.unsqueeze(-1) + (high - low).unsqueeze(-1) / (1 + (-2 * steep).exp())
    # v² / 2 + v³ / 6 + … near 0, where e^v - 1 - v would lose its digits.
    bend = torch.where(v.abs() < 1e-2, v * v * (0.5 + v / 6 + v * v / 24), v.exp() - 1 - v)
    return ((-a.unsqueeze(-1) * bend).exp() * shares).sum(-1) * (high - low)


def _igammac(a: Tensor, x: Tensor) -> Tensor:
    return upper_gamma(a.double(), x.double()).to(torch.promote_types(a.dtype, x.dtype))


def _igamma(a: Tensor, x: Tensor) -> Tensor:
    return (1 - upper_gamma(a.double(), x.double())).to(torch.promote_types(a.dtype, x.dtype))


def _erf(x: Tensor) -> Any:
    """In single precision, since onnxruntime knows no other."""
    return x.float().erf().to(x.dtype) if x.dtype == torch.float64 else NotImplemented


def _sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Equal values in any order."""
    values, places = x.topk(x.shape[dim], dim, largest=descending)
    return values, places


aten = torch.ops.aten
TABLE: Mapping[Any, Callable[..., Any]] = {
    aten.igammac.default: _igammac,
    aten.special_gammaincc.default: _igammac,
    aten.igamma.default: _igamma,
    aten.special_gammainc.default: _igamma,
    aten.erf.default: _erf,
    aten.special_erf.default: _erf,
    aten.sort.stable: _sort,
}


def expressed(program: ExportedProgram) -> ExportedProgram:
    """The program with what ONNX lacks replaced, where there is any."""
    if not any(node.target in TABLE for node in program.graph.nodes):
        return program
    found: ExportedProgram = program.run_decompositions(dict(TABLE))
    return found
