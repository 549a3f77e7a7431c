"""One module from raw inputs to named outputs, over draws that were kept."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bayesdiv import outliers
from bayesdiv.calibration.conformal import Saved
from bayesdiv.calibration.intervals import Central, Intervals, tail
from bayesdiv.calibration.scales import Spread, Temperature
from bayesdiv.calibration.sets import Sets
from bayesdiv.draws import Inputs, Outputs, Weights, called, tensor_of
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.model.bayesianize import plain
from bayesdiv.model.placeholders import dtype_of, place
from bayesdiv.outliers import Threshold
from bayesdiv.predictive import Predictive
from bayesdiv.serving.columns import Encoded
from bayesdiv.serving.precision import Precision


@dataclass(frozen=True)
class Units:
    """What a target y stands for: loc + scale · y in units of this name, in double precision."""

    loc: float = 0.0
    scale: float = 1.0
    name: str = ""


@dataclass(frozen=True)
class Served:
    """What the graph makes of the draws' outputs; `score` is how unlike training rows one is."""

    likelihood: nn.Module
    level: float | None = 0.9
    units: Units = field(default_factory=Units)
    calibration: tuple[Saved, ...] = ()
    score: Any = outliers.mutual_information

    def __call__(self, outputs: Tensor, units: Tensor) -> dict[str, Tensor]:
        """Named outputs of a batch from those of the draws, (samples, rows, …)."""
        # Units are a tensor of doubles: ONNX would round plain numbers to single precision.
        predictive = Predictive(self.likelihood(outputs))
        for cooler in self._of(Temperature):
            predictive = cooler(predictive)
        named = self._classes if predictive.discrete else self._numbers
        found = named(predictive, units)
        found["outlier_score"] = self.score(predictive) + 0.0  # its own output
        for limit in self._of(Threshold):
            found["unusual"] = limit.flags(found["outlier_score"])
        return found

    def _of(self, kind: type[Any]) -> list[Any]:
        return [saved for saved in self.calibration if isinstance(saved, kind)]

    def _classes(self, predictive: Predictive, _: Tensor) -> dict[str, Tensor]:
        names = ("probabilities", "entropy", "mutual_information", "epistemic", "aleatoric")
        found: dict[str, Tensor] = {name: getattr(predictive, name) for name in names}
        for sets in self._of(Sets):
            found["conformal_set"] = sets(predictive)
        return found

    def _numbers(self, predictive: Predictive, units: Tensor) -> dict[str, Tensor]:
        loc, scale = units[0], units[1]
        ends: dict[str, Tensor] = {}
        if self.level is not None:
            ends["low"], ends["high"] = predictive.interval(self.level)
        for intervals in self._of(Intervals):
            ends["conformal_low"], ends["conformal_high"] = _conformal(intervals, predictive)
        return {
            "mean": loc + scale * predictive.mean.double(),
            "scale": scale * predictive.variance.double().sqrt(),
            **{name: loc + scale * end.double() for name, end in ends.items()},
            "epistemic": scale**2 * predictive.epistemic.double(),
            "aleatoric": scale**2 * predictive.aleatoric.double(),
        }


def _conformal(intervals: Intervals, predictive: Predictive) -> tuple[Tensor, Tensor]:
    """The corrected ends; of `Central`, by the one quantile that its threshold stands for."""
    if not isinstance(intervals.score, Central):
        return intervals(predictive)
    below = tail(intervals.thresholds.item())
    if not below > 0:
        everywhere = torch.full_like(predictive.mean, math.inf)
        return -everywhere, everywhere
    return predictive.quantile(below), predictive.quantile(1 - below)


def check_calibration(calibration: Sequence[Saved]) -> None:
    """Complain of what a graph cannot hold: thresholds by groups, sets that draw a number."""
    for saved in calibration:
        if not isinstance(saved, Spread | Temperature | Intervals | Sets | Threshold):
            raise TypeError(
                f"calibration must hold what bayesdiv.calibration fitted, got {saved!r}"
            )
        if isinstance(saved, Sets) and saved.share is None:
            raise ValueError("sets in a graph must not draw numbers: fit them with share=1.0")
        if isinstance(saved, Intervals | Sets) and len(saved.thresholds) > 1:
            raise ValueError(
                f"a graph holds one threshold for all rows, got {len(saved.thresholds)} groups: "
                "export without this calibration and apply it to the outputs"
            )


class Graph(nn.Module):
    """The network over its kept draws, with all that turns raw inputs into named outputs."""

    def __init__(
        self,
        net: nn.Module,
        weights: Weights,
        served: Served,
        encoded: Encoded | None,
        precision: Precision,
        outputs: Outputs | None,
        inputs: Sequence[str] | None,
    ) -> None:
        super().__init__()
        self.served, self.likelihood = served, served.likelihood  # the latter is registered
        self.encoded, self.precision, self.inputs = encoded, precision, inputs
        self.bare = _Bare(net, outputs)
        self.samples = len(weights[0]) if weights else 1
        units = [served.units.loc, served.units.scale]
        self.register_buffer("units", torch.tensor(units, dtype=torch.float64))
        pairs = [
            (entry, drawn)
            for module, drawn in zip(bayesian_modules(net), weights, strict=True)
            for entry in module.layout.entries
        ]
        for at, (entry, drawn) in enumerate(pairs):
            piece = drawn.detach()[:, entry.offset : entry.offset + entry.size].cpu()
            for draw, flat in enumerate(piece):  # a buffer for each tensor of each draw, packed
                for part, tensor in enumerate(self.precision.packed(entry.shaped(flat))):
                    self.register_buffer(f"w{at}_{draw}_{part}", tensor.contiguous().clone())

    def _draw(self, draw: int) -> list[Tensor]:
        """The weights of one draw, in the order of the places in the network."""
        found = []
        for at, dtype in enumerate(self.bare.dtypes):
            names = (f"w{at}_{draw}_{part}" for part in range(2))
            packed = tuple(self.get_buffer(name) for name in names if name in self._buffers)
            found.append(self.precision.unpacked(packed).to(dtype))
        return found

    def forward(self, *given: Tensor) -> dict[str, Tensor]:
        """Named outputs of raw inputs; NaN in rows that cannot be encoded."""
        fine: Tensor | None = None
        inputs: Inputs = given[0] if len(given) == 1 else given
        if self.encoded is not None:
            inputs, fine = self.encoded(given[0])
        if self.inputs is not None:
            inputs = dict(zip(self.inputs, given, strict=True))
        each = [self.bare.with_weights(self._draw(draw), inputs) for draw in range(self.samples)]
        found = self.served(torch.stack(each), self.get_buffer("units"))
        if fine is None:
            return found
        for name, values in found.items():
            if values.dtype != torch.bool:  # flags are as they are, since NaN is never inside
                whole = fine.reshape(-1, *(1,) * (values.dim() - 1))
                found[name] = values.where(whole, math.nan)
        return found


class _Bare(nn.Module):
    """The network without its random weights, to be called with those of a draw."""

    def __init__(self, net: nn.Module, outputs: Outputs | None) -> None:
        super().__init__()
        self.outputs = outputs or tensor_of
        self.net = plain(net).cpu().eval()
        self.places: list[list[tuple[nn.Module, str]]] = []  # of each tensor, by all its names
        self.dtypes: list[torch.dtype] = []
        paths = {id(module): path for path, module in reversed(list(net.named_modules()))}
        for module in bayesian_modules(net):
            inside = self.net.get_submodule(paths[id(module)])
            for entry in module.layout.entries:
                owners = [place(inside, name) for name in entry.names]
                self.dtypes.append(dtype_of(*owners[0]))
                for owner, last in owners:
                    del owner._parameters[last]
                self.places.append(owners)

    def with_weights(self, weights: Sequence[Tensor], inputs: Inputs) -> Tensor:
        try:
            for owners, tensor in zip(self.places, weights, strict=True):
                for owner, last in owners:
                    owner.__dict__[last] = tensor
            return self.outputs(called(self.net, inputs))
        finally:
            for owners in self.places:
                for owner, last in owners:
                    owner.__dict__.pop(last, None)
