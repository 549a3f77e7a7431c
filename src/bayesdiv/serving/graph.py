"""One module from raw inputs, such as rows of a table, to named outputs, over kept draws."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bayesdiv import quantiles
from bayesdiv.calibration.conformal import Central, Intervals, Saved, tail
from bayesdiv.calibration.sets import Sets, Spread, Temperature
from bayesdiv.draws import Inputs, Outputs, Weights, tensor_of
from bayesdiv.model.bayesian import Grouped, bayesian_modules
from bayesdiv.model.bayesianize import plain
from bayesdiv.model.layout import Layout, place
from bayesdiv.outliers import Threshold, mutual_information
from bayesdiv.prediction import predict_at
from bayesdiv.predictive import Predictive

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the mixture, where distribution functions are compared


@dataclass(frozen=True)
class Units:
    """What a target y stands for: loc + scale · y in units of this name, in double precision."""

    loc: float = 0.0
    scale: float = 1.0
    name: str = ""


@dataclass(frozen=True)
class Number:
    """A column of numbers: the network sees (value - loc) / scale, from double precision."""

    name: str
    loc: float = 0.0
    scale: float = 1.0
    unit: str = ""  # of the raw values, for readers of the metadata
    fill: float | None = None  # instead of NaN, with a further input that is 1 there

    @property
    def width(self) -> int:
        """How many inputs of the network it fills."""
        return 1 + (self.fill is not None)


@dataclass(frozen=True)
class Category:
    """A column of categories, given to the graph as the place of its value in `categories`."""

    name: str
    categories: tuple[str, ...]  # in the order of the network's inputs, one input each
    fill: str | None = None  # the one that stands for NaN, with a further input that is 1 there

    @property
    def width(self) -> int:
        return len(self.categories) + (self.fill is not None)


Column = Number | Category


class Encoded(nn.Module):
    """From raw columns, (rows, columns) in double precision, to what the network takes."""

    loc: Tensor
    scale: Tensor

    def __init__(
        self, columns: Sequence[Column], shape: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.columns, self.shape, self.dtype = tuple(columns), shape, dtype
        for name, default in {"loc": 0.0, "scale": 1.0}.items():  # the latter of categories
            values = [getattr(column, name, default) for column in self.columns]
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs, and which rows are whole: finite numbers and known categories."""
        pieces, fine = [], torch.ones_like(raw[:, 0], dtype=torch.bool)
        for at, one in enumerate(self.columns):
            value = raw[:, at : at + 1]
            missing = value.isnan()
            if one.fill is not None:
                fill = one.fill if isinstance(one, Number) else one.categories.index(one.fill)
                value = value.masked_fill(missing, fill)
            piece = ((value - self.loc[at]) / self.scale[at]).to(self.dtype)
            known = piece.isfinite()
            if isinstance(one, Category):
                places = torch.arange(len(one.categories), dtype=value.dtype, device=raw.device)
                piece = (value == places).to(self.dtype)
                known = piece.sum(-1, keepdim=True) > 0
            pieces += [piece] if one.fill is None else [piece, missing.to(self.dtype)]
            fine = fine & known.squeeze(-1)
        return torch.cat(pieces, -1).unflatten(-1, tuple(self.shape)), fine


@dataclass(frozen=True)
class Rounded:
    """Weights in another dtype, such as bfloat16: half the file; the graph computes in float32.

    In 8 bits, `torch.int8`, all but vectors have one scale per output channel: a quarter of it.

        w ≈ scale_c · k,   k = round(w / scale_c),   scale_c = max |w_c| / 127
    """

    dtype: torch.dtype = torch.float32

    def packed(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """What is stored."""
        if self.dtype != torch.int8 or tensor.dim() < 2:
            return (tensor.to(torch.float32 if self.dtype == torch.int8 else self.dtype),)
        tensor = tensor.float()
        scale = tensor.abs().amax(tuple(range(1, tensor.dim())), keepdim=True) / 127
        scale = scale.where(scale > 0, 1.0)
        return (tensor / scale).round().to(torch.int8), scale

    def unpacked(self, packed: tuple[Tensor, ...]) -> Tensor:
        """The tensor again, up to rounding, by operations of the graph."""
        return packed[0].float() if len(packed) == 1 else packed[0].float() * packed[1]


@dataclass(frozen=True)
class Served:
    """What the graph makes of the draws' outputs."""

    likelihood: nn.Module
    level: float | None = 0.9
    units: Units = field(default_factory=Units)
    calibration: tuple[Saved, ...] = ()

    def __post_init__(self) -> None:
        # A graph holds no thresholds by groups, and no sets that draw a number.
        for saved in self.calibration:
            if not isinstance(saved, Spread | Temperature | Intervals | Sets | Threshold):
                told = f"what bayesdiv.calibration fitted, got {saved!r}"
                raise TypeError(f"calibration must hold {told}")
            if isinstance(saved, Sets) and saved.share is None:
                raise ValueError("sets in a graph must not draw numbers: fit them with share=1.0")
            if isinstance(saved, Intervals | Sets) and len(saved.thresholds) > 1:
                rule = f"a graph holds one threshold for all rows, got {len(saved.thresholds)}"
                remedy = "export without this calibration and apply it to the outputs"
                raise ValueError(f"{rule} groups: {remedy}")

    def __call__(self, outputs: Tensor, units: Tensor) -> dict[str, Tensor]:
        """Named outputs of a batch from those of the draws, (samples, rows, …)."""
        # Units are a tensor of doubles: ONNX would round plain numbers to single precision.
        predictive = Predictive(self.likelihood(outputs))
        for cooler in self._of(Temperature):
            predictive = cooler(predictive)
        named = self._classes if predictive.discrete else self._numbers
        found = named(predictive, units)
        found["outlier_score"] = mutual_information(predictive) + 0.0  # its own output
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


class Graph(nn.Module):
    """The network over its kept draws, with all that turns raw inputs into named outputs."""

    def __init__(
        self,
        net: nn.Module,
        weights: Weights,
        served: Served,
        encoded: Encoded | None,
        precision: Rounded | None,
        outputs: Outputs | None,
        inputs: Sequence[str] | None,
    ) -> None:
        super().__init__()
        self.served, self.likelihood = served, served.likelihood  # the latter is registered
        self.encoded, self.precision, self.inputs = encoded, precision or Rounded(), inputs
        self.outputs, self.net = outputs or tensor_of, plain(net).cpu().eval()
        self.samples = len(weights[0]) if weights else 1
        units = [served.units.loc, served.units.scale]
        self.register_buffer("units", torch.tensor(units, dtype=torch.float64))
        self.places: list[tuple[list[str], torch.dtype]] = []  # of each tensor: its names and dtype
        paths: dict[int, str] = {}
        for path, module in reversed(list(net.named_modules())):  # groups have their network's
            parts = module.groups.values() if isinstance(module, Grouped) else (module,)
            paths |= {id(part): path for part in parts}
        for module, drawn in zip(bayesian_modules(net), weights, strict=True):
            tensors = module.layout.unflatten(drawn.detach().cpu())
            for entry in module.layout.entries:
                for draw, own in enumerate(tensors[entry.names[0]]):
                    for part, tensor in enumerate(self.precision.packed(own)):
                        name = f"w{len(self.places)}_{draw}_{part}"
                        self.register_buffer(name, tensor.contiguous().clone())
                names = [f"{paths[id(module)]}.{name}".lstrip(".") for name in entry.names]
                owners = [place(self.net, name) for name in names]
                self.places.append((names, getattr(*owners[0]).dtype))
                for owner, last in owners:
                    del owner._parameters[last]

    def _drawn(self, draw: int) -> dict[str, Tensor]:
        """The weights of one draw, by all their names in the network."""
        found: dict[str, Tensor] = {}
        for at, (names, dtype) in enumerate(self.places):
            parts = (self._buffers.get(f"w{at}_{draw}_{part}") for part in range(2))
            packed = tuple(part for part in parts if part is not None)
            found |= dict.fromkeys(names, self.precision.unpacked(packed).to(dtype))
        return found

    def forward(self, *given: Tensor) -> dict[str, Tensor]:
        """Named outputs of raw inputs; NaN in rows that cannot be encoded."""
        fine: Tensor | None = None
        if self.encoded is not None:
            inputs, fine = self.encoded(given[0])
            given = (inputs,)
        named = None if self.inputs is None else dict(zip(self.inputs, given, strict=True))
        given = given if named is None else ()
        run = partial(functional_call, self.net, args=given, kwargs=named, tie_weights=False)
        each = [self.outputs(run(self._drawn(k))) for k in range(self.samples)]
        found = self.served(torch.stack(each), self.get_buffer("units"))
        for name, values in found.items():
            # Flags are as they are, since NaN is never inside.
            if fine is not None and values.dtype != torch.bool:
                whole = fine.reshape(-1, *(1,) * (values.dim() - 1))
                found[name] = values.where(whole, math.nan)
        return found


def rounded(net: nn.Module, weights: Weights, precision: Rounded) -> Weights:
    """The draws as a file of this precision gives them back, for `predict_at`."""

    def stored(layout: Layout, draw: Tensor) -> Tensor:
        tensors = layout.unflatten(draw).items()
        return layout.flatten({n: precision.unpacked(precision.packed(own)) for n, own in tensors})

    pairs = zip(bayesian_modules(net), weights, strict=True)
    return tuple(torch.stack([stored(m.layout, draw) for draw in drawn]) for m, drawn in pairs)


@torch.no_grad()
def fewer(
    net: nn.Module, likelihood: nn.Module, x: Inputs, weights: Weights, count: int
) -> Weights:
    """Choose draws, one after the other, whose mixture stays nearest to that of all draws.

    Near is the mean squared distance of class probabilities, or of distribution functions at five
    quantiles of the mixture, over the rows of `x`, such as some hundred of the training data.
    """
    drawn = len(weights[0]) if weights else 0
    if not 1 <= count <= drawn:
        raise ValueError(f"count must lie between 1 and the {drawn} draws, got {count}")
    predictive = predict_at(net, likelihood, x, weights)
    # What each draw predicts, as numbers whose means are those of the mixture, (S, numbers).
    if predictive.discrete:
        said = predictive.conditional.probs.flatten(1).double()  # type: ignore[attr-defined]
    else:
        points = torch.stack(quantiles.quantiles(predictive.marginals, *LEVELS))
        values = quantiles.cdf(predictive.marginals, points.unsqueeze(1))  # (levels, S, …)
        said = values.movedim(1, 0).flatten(1).double()
    whole, total = said.mean(0), torch.zeros_like(said[0])
    places: list[int] = []
    for number in range(1, count + 1):
        away = ((total + said) / number - whole).square().sum(-1)
        away[places] = torch.inf  # chosen before
        places.append(int(away.argmin()))
        total = total + said[places[-1]]
    return tuple(one[places] for one in weights)
