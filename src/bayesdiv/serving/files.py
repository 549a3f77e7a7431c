"""A traced graph as a file: .pt2 for torch, .onnx for other runtimes."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.export import Dim, ExportedProgram
from torch.fx import Node

from bayesdiv.draws import attention_alone
from bayesdiv.quantiles import upper_gamma_in_graph

METADATA = "bayesdiv.json"  # the extra file in a .pt2; in an .onnx the property "bayesdiv"
ROOM = 2**25  # bytes for all of an ONNX file but its weights: 100,000 operations
LARGEST_ONNX = 2**31 - ROOM
SMALL = 256  # numbers in a constant of the graph that is worked out before it is written
EXTRA = ("onnx", "onnxscript")


def traced(graph: nn.Module, example: Sequence[Tensor]) -> ExportedProgram:
    """The graph for any number of rows; what several draws compute alike is computed once."""
    rows = Dim("rows")
    # One row would be taken for a constant.
    several = tuple(torch.cat([leaf, leaf]) if len(leaf) == 1 else leaf for leaf in example)
    refusal = "the network cannot be traced for any number of rows, by torch.export: {}"
    with _exporting(refusal):
        shapes = (tuple({0: rows} for _ in several),)
        program: ExportedProgram = torch.export.export(graph, several, dynamic_shapes=shapes)
        schemas = [getattr(node.target, "_schema", None) for node in program.graph.nodes]
        # Where an operation changes a tensor in place, its order counts.
        if any(getattr(schema, "is_mutable", False) for schema in schemas):
            program = program.run_decompositions({})
    shared(program)
    return program


@contextmanager
def _exporting(refusal: str) -> Iterator[None]:
    """Export by plain operations, without checks of values or warnings; what fails is refused."""
    checks, log = Distribution._validate_args, logging.getLogger("torch.onnx")
    level = log.level
    Distribution.set_default_validate_args(False)
    log.setLevel(logging.ERROR)
    try:
        with torch.no_grad(), attention_alone(torch.device("cpu")), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        line = " ".join(str(cause).split())[:300].rstrip(".: ")
        raise ValueError(refusal.format(line)) from error
    finally:
        Distribution.set_default_validate_args(checks)
        log.setLevel(level)


def shared(program: ExportedProgram) -> None:
    """Compute once what has the same operation and arguments, such as a deterministic trunk."""
    graph = program.graph_module.graph
    known: dict[Any, Node] = {}
    results = set(graph.output_node().all_input_nodes)
    for node in list(graph.nodes):
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if node.op != "call_function" or node.is_impure() or random:
            continue
        # Nodes are written by their names, which are their own.
        first = known.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if first is not node and node not in results:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def pt2(program: ExportedProgram, names: Sequence[str], told: Mapping[str, Any]) -> bytes:
    """The file that `torch.export.load` reads."""
    out = io.BytesIO()
    with _exporting("torch cannot save this model, {}"):
        torch.export.save(program, out, extra_files={METADATA: json.dumps(told)})
    return out.getvalue()


def onnx(program: ExportedProgram, names: Sequence[str], told: Mapping[str, Any]) -> bytes:
    """The file that onnxruntime and others read, with the outputs by name."""
    absent = [name for name in EXTRA if find_spec(name) is None]
    if absent:
        remedy = "pip install 'bayesdiv[export]', or write a .pt2 file"
        raise ModuleNotFoundError(f"an .onnx file needs {' and '.join(absent)}: {remedy}")
    with _exporting("ONNX cannot express this model, {}: write a .pt2 file, which can"):
        if any(node.target in TABLE for node in program.graph.nodes):
            program = program.run_decompositions(dict(TABLE))
        made = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=list(names), optimize=False
        )
        assert made is not None
        _tidy(made.model, list(told["outputs"]))
        made.model.metadata_props["bayesdiv"] = json.dumps(told)
        content: bytes = made.model_proto.SerializeToString()
    return content


def _tidy(model: Any, outputs: Sequence[str]) -> None:
    """Fold what is small, leave out notes on the trace, and give the outputs their names."""
    from onnxscript import optimizer

    # Packed weights stay packed.
    optimizer.optimize(model, input_size_limit=SMALL, output_size_limit=SMALL)
    inside = [value for node in model.graph for value in node.outputs]
    for part in [*model.graph, *inside]:
        part.metadata_props.clear()
    for value in [*inside, *model.graph.initializers.values()]:
        if value.name in outputs:
            value.name = f"{value.name}_inside"
    for value, name in zip(model.graph.outputs, outputs, strict=True):
        value.name = name


# Operations that ONNX or its runtimes lack, by others that they have.


def _igammac(a: Tensor, x: Tensor) -> Tensor:
    return upper_gamma_in_graph(a, x).to(torch.promote_types(a.dtype, x.dtype))


def _igamma(a: Tensor, x: Tensor) -> Tensor:
    return (1 - upper_gamma_in_graph(a, x)).to(torch.promote_types(a.dtype, x.dtype))


def _erf(x: Tensor) -> Any:
    """In single precision, since onnxruntime knows no other."""
    return x.float().erf().to(x.dtype) if x.dtype == torch.float64 else NotImplemented


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
    aten.cdist.default: _distances,
    aten._cdist_forward.default: _distances,
}
