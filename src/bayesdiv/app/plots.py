"""Figures: legible, labelled, the same colour for the same loss everywhere."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesdiv.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import QuadContourSet
    from matplotlib.figure import Figure

    from bayesdiv.app.tuning import Aim, Tried

# Okabe and Ito's colours, told apart by colour-blind eyes; line styles tell them apart in print.
COLOURS = {"KL": "#0072B2", "JSG": "#009E73", "JSA": "#D55E00", "deterministic": "#555555"}
STYLES = {"KL": "-", "JSG": "--", "JSA": "-.", "deterministic": ":"}
OTHERS = ["#CC79A7", "#E69F00", "#56B4E9", "#000000"]

# Trials of a search, told apart by shape and filling alone.
TRIALS: dict[str, dict[str, Any]] = {
    "finished": {"marker": "o", "facecolors": "#0072B2", "edgecolors": "white", "s": 46},
    "pruned": {"marker": "o", "facecolors": "white", "edgecolors": "black", "s": 22},
    "diverged": {"marker": "X", "facecolors": "white", "edgecolors": "black", "s": 50},
}
SURFACE = 10  # trials below which a surface between them would show shapes that are not there
LABELS = {"nll": "NLL (nats)", "rmse": "RMSE", "ece": "ECE"}  # of metrics not called by their key
BEST: dict[str, Any] = {"marker": "*", "s": 320, "color": "#D55E00", "edgecolors": "white"}

History = Sequence[Mapping[str, Any]]
Tested = tuple[Predictive, Tensor]  # predictions and targets


def rounded(value: float, places: int) -> str:
    """A number with some decimals; one too small for them with three digits of its own.

    Examples:
        >>> rounded(0.25, 3), rounded(1.2345e-30, 3), rounded(0.0, 3)
        ('0.250', '1.23e-30', '0.000')
    """
    return f"{value:.3g}" if 0 < abs(value) < 1e-3 else f"{value:.{places}f}"


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
    """Training and validation curves beside a reliability diagram or an interval plot.

    Args:
        histories: for each loss, the history of each seed.
        predictions: for each loss, test predictions and targets of each seed, which are pooled.
        measure: what the second panel shows, such as accuracy or rmse.
        title: of the whole.
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
    low, high = _limits(histories)
    left.set_ylim(low, high)
    label = LABELS.get(measure, measure)
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
    keys = ("nll", "validation_nll")
    curves = [
        torch.tensor([line[key] for line in run])
        for runs in histories.values()
        for run in runs
        for key in keys
    ]
    low = min(curve.min().item() for curve in curves)
    high = max(curve.quantile(0.5).item() for curve in curves)
    high = max(high, max(curve.min().item() for curve in curves))
    margin = 0.15 * (high - low) + 1e-3
    return low - margin, high + 2 * margin


def _reliability(axes: "Axes", predictions: Mapping[str, Sequence[Tested]]) -> None:
    from bayesdiv.metrics import reliability

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
    from bayesdiv.metrics import coverage

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


def search_contour(
    tried: Sequence["Tried"], axes_of: tuple[str, str], aim: "Aim", title: str
) -> "Figure":
    """The values of a search over two settings, with its trials as points.

    Args:
        tried: the trials; those that diverged are crosses.
        axes_of: the settings across and up; all but alpha are on a logarithmic axis.
        aim: what was searched for.
        title: of the whole.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    figure = Figure(figsize=(7, 5.2), layout="constrained")
    axes = figure.subplots()
    across, up = axes_of
    axes.set_xscale("linear" if across == "alpha" else "log")
    axes.set_yscale("linear" if up == "alpha" else "log")
    shade = _surface(axes, tried, axes_of, aim)
    if shade is not None:
        label = f"validation {_aim_label(aim)}"
        figure.colorbar(shade, ax=axes, label=label, format=ScalarFormatter(useOffset=False))
    for kind, look in TRIALS.items():
        points = [trial.settings for trial in tried if _kind(trial) == kind and trial.settings]
        if points:
            places = [point[across] for point in points], [point[up] for point in points]
            axes.scatter(*places, label=kind, zorder=3, **look)
    finished = [trial for trial in tried if _kind(trial) == "finished"]
    if finished:
        best = min(finished, key=lambda trial: _loss(trial, aim)).settings
        axes.scatter(best[across], best[up], label="best", zorder=4, **BEST)
    axes.use_sticky_edges = False  # trials at the edge are drawn whole
    axes.margins(0.06)
    axes.set(xlabel=across.replace("_", " "), ylabel=up.replace("_", " "))
    axes.set_title(title, parse_math=False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


def _surface(
    axes: "Axes", tried: Sequence["Tried"], axes_of: tuple[str, str], aim: "Aim"
) -> "QuadContourSet | None":
    """Filled contours of values interpolated between trials; None for too few trials."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator
    from matplotlib.tri import LinearTriInterpolator, Triangulation

    valued = [trial for trial in tried if trial.value is not None and trial.settings]
    if len(valued) < SURFACE:
        return None
    places = [np.array([trial.settings[name] for trial in valued]) for name in axes_of]
    # Interpolated along the axes as they are drawn: a setting on a log axis by its logarithm.
    places = [
        p if name == "alpha" else np.log10(p) for name, p in zip(axes_of, places, strict=True)
    ]
    values = np.array([trial.value for trial in valued])
    try:
        between = LinearTriInterpolator(Triangulation(*places), values)
    except (RuntimeError, ValueError):  # all on a line
        return None
    x, y = np.meshgrid(*(np.linspace(p.min(), p.max(), 200) for p in places))
    return axes.contourf(
        *(p if name == "alpha" else 10**p for name, p in zip(axes_of, (x, y), strict=True)),
        between(x, y),
        levels=MaxNLocator(12).tick_values(*_value_limits(valued, aim)),  # round numbers
        cmap="viridis_r" if aim.best is min else "viridis",
        extend="max" if aim.best is min else "min",
    )


def search_history(tried: Sequence["Tried"], aim: "Aim", title: str) -> "Figure":
    """The value of each trial, and the best so far; much worse values are arrows at the edge."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    low, high = _value_limits(tried, aim)
    worst = high if aim.best is min else low
    for kind, look in TRIALS.items():
        group = [trial for trial in tried if _kind(trial) == kind]
        values = [worst if t.value is None else min(max(t.value, low), high) for t in group]
        if group:
            axes.scatter([t.number for t in group], values, label=kind, zorder=3, **look)
    edge = high if aim.best is min else -low
    beyond = [t.number for t in tried if t.value is not None and _loss(t, aim) > edge]
    if beyond:
        arrow: dict[str, Any] = {
            "marker": "^" if aim.best is min else "v",
            "color": "black",
            "s": 40,
        }
        axes.scatter(beyond, [worst] * len(beyond), label="worse than shown", zorder=4, **arrow)
    finished = [trial for trial in tried if _kind(trial) == "finished"]
    so_far = [
        aim.best([trial.value or 0.0 for trial in finished[: k + 1]]) for k in range(len(finished))
    ]
    if finished:
        numbers = [*(trial.number for trial in finished), tried[-1].number]
        axes.step(
            numbers, [*so_far, so_far[-1]], where="post", color="#D55E00", lw=2, label="best so far"
        )
    margin = 0.06 * (high - low)
    axes.set(xlabel="trial", ylabel=f"validation {_aim_label(aim)}")
    axes.set_ylim(low - margin, high + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(title, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    return figure


def _kind(trial: "Tried") -> str:
    """How a trial is drawn; one that failed or goes on is not."""
    if trial.state == "pruned":
        return "diverged" if trial.value is None else "pruned"
    return "finished" if trial.state == "complete" else ""


def _loss(trial: "Tried", aim: "Aim") -> float:
    """The value, turned so that less is better."""
    assert trial.value is not None
    return trial.value if aim.best is min else -trial.value


def _aim_label(aim: "Aim") -> str:
    return LABELS.get(aim.key, aim.key)


def _value_limits(tried: Sequence["Tried"], aim: "Aim") -> tuple[float, float]:
    """From the best value to beyond the usual; a few much worse ones do not flatten the rest."""
    found = [_loss(trial, aim) for trial in tried if trial.value is not None]
    losses = torch.tensor(found, dtype=torch.float64)  # rounded, the best would lie outside
    if not len(losses):
        return 0.0, 1.0
    low = losses.min().item()
    usual = low + 2.5 * (losses.quantile(0.6).item() - low)
    # Some room where all are alike, in proportion: an RMSE may be as small as its target.
    high = max(min(losses.max().item(), usual), low + 1e-3 * (abs(low) or 1.0))
    return (low, high) if aim.best is min else (-high, -low)


def save(figure: "Figure", path: Path) -> None:
    """Write a figure whole or not at all."""
    import io

    from bayesdiv.app.runs import write

    content = io.BytesIO()
    figure.savefig(content, format=Path(path).suffix.lstrip(".") or "png", dpi=150)
    write(Path(path), content.getvalue())
