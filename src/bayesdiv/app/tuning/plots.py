"""Figures of a search: its values trial by trial, and over each setting."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from bayesdiv.app.tuning.search import Aim, Tried
from bayesdiv.metrics import TABLE as METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Trials of a search, told apart by shape and filling alone.
TRIALS: dict[str, dict[str, Any]] = {
    "finished": {"marker": "o", "facecolors": "#0072B2", "edgecolors": "white", "s": 46},
    "pruned": {"marker": "o", "facecolors": "white", "edgecolors": "black", "s": 22},
    "diverged": {"marker": "X", "facecolors": "white", "edgecolors": "black", "s": 50},
}


def search_figure(tried: Sequence[Tried], aim: Aim, title: str) -> "Figure":
    """The values of a search trial by trial, with the best so far, and over each setting.

    Settings but alpha are on logarithmic axes. Nothing is drawn between the points over a setting,
    since the other settings vary too. Much worse values are arrows at the edge.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    tried = [trial for trial in tried if trial.settings]
    names = list(tried[0].settings)
    figure = Figure(figsize=(2.5 + 3.5 * len(names), 4.2), layout="constrained")
    first, *panels = figure.subplots(1, 1 + len(names), sharey=True)
    low, high = _value_limits(tried, aim)
    margin = 0.06 * (high - low)
    first.set(xlabel="trial", ylabel=f"validation {METRICS[aim.key].label}")
    first.set_ylim(low - margin, high + margin)
    first.xaxis.set_major_locator(MaxNLocator(integer=True))
    _scatter(first, tried, [trial.number for trial in tried], aim)
    _best_so_far(first, tried, aim)
    for axes, name in zip(panels, names, strict=True):
        axes.set_xscale("linear" if name == "alpha" else "log")
        axes.set_xlabel(name.replace("_", " "))
        _scatter(axes, tried, [trial.settings[name] for trial in tried], aim)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.suptitle(title, parse_math=False)
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _best_so_far(axes: "Axes", tried: Sequence[Tried], aim: Aim) -> None:
    finished = [trial for trial in tried if _kind(trial) == "finished"]
    values = [trial.value or 0.0 for trial in finished]
    so_far = [aim.best(values[: k + 1]) for k in range(len(values))]
    if finished:
        numbers = [*(trial.number for trial in finished), tried[-1].number]
        look: dict[str, Any] = {"color": "#D55E00", "lw": 2, "label": "best so far"}
        axes.step(numbers, [*so_far, so_far[-1]], where="post", **look)


def _scatter(axes: "Axes", tried: Sequence[Tried], places: Sequence[float], aim: Aim) -> None:
    """The trials at these places across; those worse than shown are arrows at the edge."""
    low, high = _value_limits(tried, aim)
    worst, arrow = (high, "^") if aim.best is min else (low, "v")
    pairs = list(zip(places, tried, strict=True))
    for kind, look in TRIALS.items():
        group = [
            (place, worst if trial.value is None else min(max(trial.value, low), high))
            for place, trial in pairs
            if _kind(trial) == kind
        ]
        if group:
            axes.scatter(*zip(*group, strict=True), label=kind, zorder=3, **look)
    edge = high if aim.best is min else -low
    beyond = [place for place, t in pairs if t.value is not None and _loss(t, aim) > edge]
    if beyond:
        look = {"marker": arrow, "color": "black", "s": 40, "label": "worse than shown"}
        axes.scatter(beyond, [worst] * len(beyond), zorder=4, **look)


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
