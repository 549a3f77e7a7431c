"""Operations that ONNX or its runtimes lack, by others that they have."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from bayesdiv.serving.areas import upper_gamma


def _igammac(a: Tensor, x: Tensor) -> Tensor:
    return upper_gamma(a, x).to(torch.promote_types(a.dtype, x.dtype))


def _igamma(a: Tensor, x: Tensor) -> Tensor:
    return (1 - upper_gamma(a, x)).to(torch.promote_types(a.dtype, x.dtype))


def _erf(x: Tensor) -> Any:
    """In single precision, since onnxruntime knows no other."""
    return x.float().erf().to(x.dtype) if x.dtype == torch.float64 else NotImplemented


def _sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """Equal values in any order."""
    values, places = x.topk(x.shape[dim], dim, largest=descending)
    return values, places


def _distances(x: Tensor, y: Tensor, p: float, compute_mode: int | None = None) -> Any:
    """Euclidean ones, place by place."""
    if p != 2:
        return NotImplemented
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1).sqrt()


aten = torch.ops.aten
TABLE: Mapping[Any, Callable[..., Any]] = {
    aten.igammac.default: _igammac,
    aten.special_gammaincc.default: _igammac,
    aten.igamma.default: _igamma,
    aten.special_gammainc.default: _igamma,
    aten.erf.default: _erf,
    aten.special_erf.default: _erf,
    aten.sort.stable: _sort,
    aten.cdist.default: _distances,
    aten._cdist_forward.default: _distances,
}


def expressed(program: ExportedProgram) -> ExportedProgram:
    """The program with what ONNX lacks replaced, where there is any."""
    if not any(node.target in TABLE for node in program.graph.nodes):
        return program
    found: ExportedProgram = program.run_decompositions(dict(TABLE))
    return found
