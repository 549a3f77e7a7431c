"""A trained model as one file that other programs can run, with its uncertainty."""

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesdiv import __version__
from bayesdiv.calibration.conformal import Saved
from bayesdiv.calibration.sets import Levels, Spread
from bayesdiv.draws import Inputs, Outputs, Weights, draw_weights
from bayesdiv.saving import checksum, replace
from bayesdiv.serving import files
from bayesdiv.serving.graph import Column, Encoded, Graph, Number, Rounded, Served, Units

WRITERS = {".onnx": files.onnx, ".pt2": files.pt2}


class Exported(NamedTuple):
    """What was written."""

    path: Path
    size: int  # bytes
    outputs: tuple[str, ...]
    metadata: dict[str, Any]


def export(
    net: nn.Module,
    likelihood: nn.Module,
    example: Inputs,
    path: str | Path,
    samples: int = 20,
    *,
    columns: Sequence[Column] | None = None,
    units: Units | None = None,
    classes: Sequence[str] = (),
    level: float | None = 0.9,
    calibration: Sequence[Saved] = (),
    precision: Rounded | None = None,
    weights: Weights | None = None,
    outputs: Outputs | None = None,
) -> Exported:
    """Write a trained model as one graph from raw inputs to named outputs, for any number of rows.

    The file needs no bayesdiv to run: an `.onnx` file runs in onnxruntime, a `.pt2` file in torch.

    Numbers have the outputs mean, scale, low, high, epistemic, aleatoric; classes have
    probabilities, entropy, mutual_information, epistemic, aleatoric; both have outlier_score, and
    what `calibration` adds. The metadata are JSON under the key `bayesdiv`.

    Args:
        net: the trained model.
        likelihood: the one it was trained with.
        example: inputs of the network, a row at least, as for `predict`; a mapping names them.
        path: a file ending in `.onnx` or `.pt2`.
        samples: weight draws to keep.
        columns: how rows of a table become the network's inputs; the file then takes one tensor of
            doubles, categories by their places.
        units: of targets that were standardised.
        classes: their names, for the metadata.
        level: of the interval; None leaves it out.
        calibration: what `bayesdiv.calibration` and `outliers.Threshold` fitted to this model;
            `Levels` are kept for `level`, or 0.9.
        precision: of the draws, such as `serving.graph.Rounded(torch.int8)`.
        weights: draws to keep as they are, such as those that `serving.graph.fewer` chose; a
            `Spread` in `calibration` is for new ones alone.
        outputs: the tensor out of what the network returns, see `draws`.

    Examples:
        >>> import tempfile
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = export(net, bd.Gaussian(), torch.zeros(2, 3), f"{folder}/net.pt2", samples=2)
        ...     found = torch.export.load(made.path).module()(torch.zeros(5, 3))
        >>> found["mean"].shape, found["low"].dtype
        (torch.Size([5]), torch.float64)
    """
    path = Path(path)
    if path.suffix not in WRITERS:
        raise ValueError(f"path must end in {' or '.join(WRITERS)}, got {path}")
    if level is not None and not 0 < level < 1:
        raise ValueError(f"level must lie inside (0, 1), got {level}")
    calibration = [c.kept(level or 0.9) if isinstance(c, Levels) else c for c in calibration]
    kept = _kept(net, samples, weights, calibration)
    names, leaves = _named(example)
    keywords = names if isinstance(example, Mapping) else None
    encoded = None
    if columns is not None:
        width = sum(column.width for column in columns)
        if len(leaves) != 1 or leaves[0].shape[1:].numel() != width:
            got = [tuple(leaf.shape) for leaf in leaves]
            raise ValueError(f"columns fill {width} inputs of the network, got an example of {got}")
        encoded = Encoded(columns, leaves[0].shape[1:], leaves[0].dtype)
        names = ("columns",)
        leaves = (torch.zeros(2, len(columns), dtype=torch.float64),)
    likelihood = copy.deepcopy(likelihood).cpu().eval()
    served = Served(likelihood, level, units or Units(), tuple(calibration))
    graph = Graph(net, kept, served, encoded, precision, outputs, keywords)
    size = sum(tensor.numel() * tensor.element_size() for tensor in graph.state_dict().values())
    if path.suffix == ".onnx" and size > files.LARGEST_ONNX:
        rule = f"an .onnx file holds at most 2 GB, got {size / 1e9:.1f} GB of weights"
        remedy = "give precision=Rounded(torch.int8) or fewer samples, or write a .pt2 file"
        raise ValueError(f"{rule}: {remedy}")
    program = files.traced(graph, leaves)
    told = _metadata(graph, names, leaves, classes)
    content = WRITERS[path.suffix](program, names, told)
    replace(path, content)
    return Exported(path, len(content), tuple(told["outputs"]), told)


@torch.no_grad()
def _kept(
    net: nn.Module, samples: int, weights: Weights | None, calibration: Sequence[Saved]
) -> Weights:
    """The draws that go into the file; new ones nearer to the mean or farther, if calibrated so."""
    kept = draw_weights(net, samples) if weights is None else weights
    for spread in calibration if weights is None else ():
        kept = spread(net, kept) if isinstance(spread, Spread) else kept
    if any(drawn.dim() != 2 for drawn in kept):
        raise ValueError("a file holds one network, got a stack of trials: export one of them")
    if not all(bool(drawn.isfinite().all()) for drawn in kept):
        raise ValueError("weights must be finite, got draws with NaN or infinite ones: train again")
    return kept


def _named(example: Inputs) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
    """Names of the inputs and their tensors."""
    if isinstance(example, Tensor):
        example = (example,)
    if not isinstance(example, Mapping):
        example = {"x" if len(example) == 1 else f"x{k}": leaf for k, leaf in enumerate(example)}
    if not all(isinstance(leaf, Tensor) and leaf.dim() for leaf in example.values()):
        raise TypeError("example must be a tensor, or a tuple or mapping of tensors, with a row")
    return tuple(example), tuple(leaf.detach().cpu() for leaf in example.values())


def _metadata(
    graph: Graph, names: Sequence[str], leaves: Sequence[Tensor], classes: Sequence[str]
) -> dict[str, Any]:
    with torch.no_grad():
        found, served = graph(*leaves), graph.served
    every = () if graph.encoded is None else graph.encoded.columns
    columns = [("number" if isinstance(one, Number) else "category", asdict(one)) for one in every]
    told = {
        "bayesdiv": __version__,
        "inputs": {name: _shape(leaf) for name, leaf in zip(names, leaves, strict=True)},
        "outputs": {name: _shape(tensor) for name, tensor in found.items()},
        "columns": [{"kind": kind, **fields} for kind, fields in columns],
        "target": asdict(served.units),
        "classes": list(classes),
        "likelihood": type(served.likelihood).__name__,
        "samples": graph.samples,
        "level": served.level,
        "calibration": [saved.state() for saved in served.calibration],
        "precision": repr(graph.precision),
        "weights_sha256": checksum(graph.state_dict()),
    }
    return dict(json.loads(json.dumps(told)))  # lists, as a file has them


def _shape(tensor: Tensor) -> dict[str, Any]:
    shape = ["rows", *tensor.shape[1:]]
    return {"shape": shape, "dtype": str(tensor.dtype).removeprefix("torch.")}
