"""Figures of a search: its values over two settings, and trial by trial."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from bayesdiv.app.tuning.search import Aim, Tried
from bayesdiv.metrics import TABLE as METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import QuadContourSet
    from matplotlib.figure import Figure

# Trials of a search, told apart by shape and filling alone.
TRIALS: dict[str, dict[str, Any]] = {
    "finished": {"marker": "o", "facecolors": "#0072B2", "edgecolors": "white", "s": 46},
    "pruned": {"marker": "o", "facecolors": "white", "edgecolors": "black", "s": 22},
    "diverged": {"marker": "X", "facecolors": "white", "edgecolors": "black", "s": 50},
}
SURFACE = 10  # trials below which a surface between them would show shapes that are not there
BEST: dict[str, Any] = {"marker": "*", "s": 320, "color": "#D55E00", "edgecolors": "white"}


def search_contour(
    tried: Sequence[Tried], axes_of: tuple[str, str], aim: Aim, title: str
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
        label = f"validation {METRICS[aim.key].label}"
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
    axes: "Axes", tried: Sequence[Tried], axes_of: tuple[str, str], aim: Aim
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


def search_history(tried: Sequence[Tried], aim: Aim, title: str) -> "Figure":
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
    axes.set(xlabel="trial", ylabel=f"validation {METRICS[aim.key].label}")
    axes.set_ylim(low - margin, high + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(title, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    return figure


def _kind(trial: Tried) -> str:
    """How a trial is drawn; one that failed or goes on is not."""
    if trial.state == "pruned":
        return "diverged" if trial.value is None else "pruned"
    return "finished" if trial.state == "complete" else ""


def _loss(trial: Tried, aim: Aim) -> float:
    """The value, turned so that less is better."""
    assert trial.value is not None
    return trial.value if aim.best is min else -trial.value


def _value_limits(tried: Sequence[Tried], aim: Aim) -> tuple[float, float]:
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
