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


def search_slices(tried: Sequence[Tried], aim: Aim, title: str) -> "Figure":
    """The values of a search over each of its settings; all but alpha on logarithmic axes.

    Nothing is drawn between the trials, since the other settings vary too.
    """
    tried = [trial for trial in tried if trial.settings]
    names = list(tried[0].settings)
    figure, panels = _panels(len(names), tried, aim, title)
    for axes, name in zip(panels, names, strict=True):
        axes.set_xscale("linear" if name == "alpha" else "log")
        axes.set_xlabel(name.replace("_", " "))
        _scatter(axes, tried, [trial.settings[name] for trial in tried], aim)
    return _with_legend(figure)


def search_history(tried: Sequence[Tried], aim: Aim, title: str) -> "Figure":
    """The value of each trial, and the best so far; much worse values are arrows at the edge."""
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = _panels(1, tried, aim, title)
    _scatter(axes, tried, [trial.number for trial in tried], aim)
    finished = [trial for trial in tried if _kind(trial) == "finished"]
    values = [trial.value or 0.0 for trial in finished]
    so_far = [aim.best(values[: k + 1]) for k in range(len(values))]
    if finished:
        numbers = [*(trial.number for trial in finished), tried[-1].number]
        best: dict[str, Any] = {"color": "#D55E00", "lw": 2, "label": "best so far"}
        axes.step(numbers, [*so_far, so_far[-1]], where="post", **best)
    axes.set_xlabel("trial")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _with_legend(figure)


def _panels(
    count: int, tried: Sequence[Tried], aim: Aim, title: str
) -> tuple["Figure", list["Axes"]]:
    """Panels side by side with one axis of values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7 if count == 1 else 4 * count, 4.2), layout="constrained")
    (panels,) = figure.subplots(1, count, sharey=True, squeeze=False).tolist()
    low, high = _value_limits(tried, aim)
    margin = 0.06 * (high - low)
    panels[0].set_ylabel(f"validation {METRICS[aim.key].label}")
    panels[0].set_ylim(low - margin, high + margin)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.suptitle(title, parse_math=False)
    return figure, panels


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


def _with_legend(figure: "Figure") -> "Figure":
    """One legend below all panels."""
    found = [axes.get_legend_handles_labels() for axes in figure.axes]
    named = {
        label: mark for marks, labels in found for mark, label in zip(marks, labels, strict=True)
    }
    figure.legend(named.values(), named, loc="outside lower center", ncols=5, frameon=False)
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
