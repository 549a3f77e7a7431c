"""Figures: legible, labelled, the same colour for the same loss everywhere."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesdiv.app.runs import write
from bayesdiv.metrics import TABLE as METRICS
from bayesdiv.metrics import coverage, reliability
from bayesdiv.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind eyes; line styles tell them apart in print.
COLOURS = {"KL": "#0072B2", "JSG": "#009E73", "JSA": "#D55E00", "deterministic": "#555555"}
STYLES = {"KL": "-", "JSG": "--", "JSA": "-.", "deterministic": ":"}
OTHERS = ["#CC79A7", "#E69F00", "#56B4E9", "#000000"]

History = Sequence[Mapping[str, Any]]
Tested = tuple[Predictive, Tensor]  # predictions and targets


def colour(name: str, place: int = 0) -> str:
    """The colour of a loss, by the start of its name."""
    return COLOURS.get(_family(name), OTHERS[place % len(OTHERS)])


def _family(name: str) -> str:
    """The loss without its alpha: JSA of JSA:0.3 and of JSA(alpha=0.3)."""
    return name.partition(":")[0].partition("(")[0]


def comparison(
    histories: Mapping[str, Sequence[History]],
    predictions: Mapping[str, Sequence[Tested]],
    measure: str,
    title: str,
) -> "Figure":
    """Curves of training, of validation and of a measure, and how well the losses are calibrated.

    Histories and test predictions are those of each seed, by loss; predictions are pooled.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for place, (name, runs) in enumerate(histories.items()):
        _curve(left, runs, "nll", name, place, "training")
        _curve(left, runs, "validation_nll", name, place, "validation")
        _curve(middle, runs, f"validation_{measure}", name, place, "validation")
    left.set(
        xlabel="epoch",
        ylabel="negative log-likelihood (nats)",
        title="Training (thin) and validation (bold)",
    )
    left.set_ylim(_limits(histories))
    label = METRICS[measure].label
    middle.set(xlabel="epoch", ylabel=label, title=f"Validation {label}")
    middle.legend(frameon=False)
    for axes in (left, middle):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if next(iter(predictions.values()))[0][0].discrete:
        _reliability(right, predictions)
    else:
        _intervals(right, predictions)
    figure.suptitle(title, parse_math=False)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure


def _curve(
    axes: "Axes", runs: Sequence[History], key: str, name: str, place: int, part: str
) -> None:
    """The mean over seeds as a line, the range as a band."""
    if key not in runs[0][0]:
        return
    values = torch.tensor([[line[key] for line in run] for run in runs])
    epochs = range(1, values.shape[1] + 1)
    bold = part == "validation"
    style = STYLES.get(_family(name), "-")
    axes.plot(
        epochs,
        values.mean(0),
        style,
        color=colour(name, place),
        lw=2.0 if bold else 0.9,
        label=name if bold else None,
    )
    if bold and len(runs) > 1:
        low, high = values.amin(0), values.amax(0)
        axes.fill_between(epochs, low, high, color=colour(name, place), alpha=0.12, lw=0)


def _limits(histories: Mapping[str, Sequence[History]]) -> tuple[float, float]:
    """Limits that show the best of every curve; one that runs away does not flatten the rest."""
    curves = [
        torch.tensor([line[key] for line in run])
        for runs in histories.values()
        for run in runs
        for key in ("nll", "validation_nll")
    ]
    low = min(curve.min().item() for curve in curves)
    high = max(curve.quantile(0.5).item() for curve in curves)
    margin = 0.15 * (high - low) + 1e-3
    return low - margin, high + 2 * margin


def _reliability(axes: "Axes", predictions: Mapping[str, Sequence[Tested]]) -> None:
    for place, (name, seeds) in enumerate(predictions.items()):
        bins = [reliability(predictive, y, bins=10) for predictive, y in seeds]
        confidence, accuracy, counts = (torch.stack(each) for each in zip(*bins, strict=True))
        seen = counts.sum(0) > 0
        across, up = (_pooled(means, counts)[seen] for means in (confidence, accuracy))
        _dots(axes, across, up, name, place)
    _beside_perfect(axes, "confidence", "accuracy", _over_seeds("Reliability", predictions))


def _pooled(means: Tensor, counts: Tensor) -> Tensor:
    """Means (seeds, bins) over all seeds; where a seed has nothing in a bin, its mean is NaN."""
    return (means * counts).nan_to_num().sum(0) / counts.sum(0)


def _intervals(axes: "Axes", predictions: Mapping[str, Sequence[Tested]]) -> None:
    levels = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
    for place, (name, seeds) in enumerate(predictions.items()):
        targets = sum(len(y) for _, y in seeds)
        shares = [
            sum(coverage(predictive, y, level).item() * len(y) for predictive, y in seeds) / targets
            for level in levels
        ]
        _dots(axes, levels, shares, name, place)
    _beside_perfect(
        axes,
        "level of the predictive interval",
        "share of test targets inside",
        _over_seeds("Interval coverage", predictions),
    )


def _over_seeds(what: str, predictions: Mapping[str, Sequence[Tested]]) -> str:
    seeds = max(map(len, predictions.values()))
    return f"{what}, test data of {seeds} seeds" if seeds > 1 else f"{what} on test data"


def _dots(
    axes: "Axes", x: Sequence[float] | Tensor, y: Sequence[float] | Tensor, name: str, place: int
) -> None:
    style = STYLES.get(_family(name), "-")
    look: dict[str, Any] = {"marker": "o", "ms": 4, "color": colour(name, place), "label": name}
    axes.plot(x, y, style, clip_on=False, zorder=3, **look)  # a mark at 0 or 1 is drawn whole


def _beside_perfect(axes: "Axes", across: str, up: str, title: str) -> None:
    """Axes from 0 to 1 with the diagonal that a perfect forecast would follow."""
    axes.plot([0, 1], [0, 1], color="#999999", lw=1, label="perfect", zorder=0)
    axes.set(xlabel=across, ylabel=up, title=title, xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False, fontsize="small")


def save(figure: "Figure", path: Path) -> None:
    """Write a figure whole or not at all."""
    content = io.BytesIO()
    figure.savefig(content, format=Path(path).suffix.lstrip(".") or "png", dpi=150)
    write(Path(path), content.getvalue())
