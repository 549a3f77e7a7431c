"""What a search leaves in its folder: best settings, trials, a figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesdiv.app import runs
from bayesdiv.app.settings import described
from bayesdiv.app.tuning.experiment import RANGES, Tuned
from bayesdiv.app.tuning.search import Tried
from bayesdiv.metrics import TABLE as METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEST, TRIALS, RESULT, FIGURE = "best.yaml", "trials.csv", "result.json", "search.png"


def write(folder: Path, source: Mapping[str, Any], tuned: Tuned, tried: Sequence[Tried]) -> None:
    """The best settings for `bayesdiv train --config`, and all trials as a table.

    `source` says where the data come from, as the command line has it.
    """
    import pandas as pd
    import yaml  # type: ignore[import-untyped]

    fields = dict(described(tuned.divergence) or {})
    kind = fields.pop("kind")
    path = {"class_path": kind if "." in kind else f"bayesdiv.divergence.{kind}"}
    best = {
        **{key: value for key, value in source.items() if value is not None and key != "data"},
        "divergence": {**path, "init_args": fields} if fields else path,
        **asdict(tuned.training),
        "hidden": list(tuned.training.hidden),
    }
    text = f"# bayesdiv train {source['data']} --config {BEST} --out FOLDER\n"
    runs.write(folder / BEST, (text + yaml.safe_dump(best, sort_keys=False)).encode())
    last = ("value", "state", "seconds", "retry_of", "reason")
    rows = [
        {"trial": trial.number, **trial.settings, **{name: getattr(trial, name) for name in last}}
        for trial in tried
        if trial.state != "waiting"
    ]
    table = pd.DataFrame(rows).astype({"retry_of": "Int64"})
    runs.write(folder / TRIALS, table.to_csv(index=False).encode())


def draw(tried: Sequence[Tried], importance: Mapping[str, float], aim: str, title: str) -> "Figure":
    """The value of each finished trial over each setting, and how much each setting matters.

    Nothing is drawn between the points, since the other settings vary too. Pruned trials, whose
    values are of earlier epochs, are left out.
    """
    from matplotlib.figure import Figure

    finished = [trial for trial in tried if trial.state == "complete"]
    values = [trial.value or 0.0 for trial in finished]
    names = list(finished[0].settings)
    low, high = _limits(values, METRICS[aim].loss)
    figure = Figure(figsize=(3.5 * (len(names) + bool(importance)), 4.0), layout="constrained")
    panels = figure.subplots(1, len(names) + bool(importance), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=False):
        axes.scatter([trial.settings[name] for trial in finished], values, color="#0072B2")
        axes.set_xscale("log" if RANGES[name].log else "linear")
        axes.set(xlabel=name.replace("_", " "), ylabel=f"validation {METRICS[aim].label}")
        axes.set_ylim(low, high)
        axes.grid(alpha=0.25)
    if importance:
        bars = panels[-1].barh(list(importance), list(importance.values()), color="#56B4E9")
        panels[-1].bar_label(bars, fmt="%.2f")
        panels[-1].set(xlabel="share of importance (PED-ANOVA)", xlim=(0, 1.15))
    beyond = sum(not low <= value <= high for value in values)
    title += f", {beyond} far worse not shown" * bool(beyond)
    figure.suptitle(title, parse_math=False)
    return figure


def _limits(values: Sequence[float], loss: Callable[[float], float]) -> tuple[float, float]:
    """From the best value to the usual; a few much worse ones do not flatten the rest."""
    ordered = sorted(values, key=loss)
    best, middle, worst = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    end = min(best + 4 * (middle - best), worst, key=loss)
    margin = 0.06 * abs(end - best) or 1e-3 * (abs(best) or 1.0)
    return min(best, end) - margin, max(best, end) + margin
