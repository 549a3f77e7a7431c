"""What a search leaves in its folder: best settings, trials, figures, what was trained after it."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bayesdiv
from bayesdiv.app import plots, runs
from bayesdiv.app.experiment import Training
from bayesdiv.app.settings import described
from bayesdiv.app.tuning.experiment import Tuned, as_json
from bayesdiv.app.tuning.plots import search_figure
from bayesdiv.app.tuning.search import Aim, Tried
from bayesdiv.divergence import Divergence

BEST, TRIALS, RESULT, FIGURE = "best.yaml", "trials.csv", "result.json", "search.png"


def write(
    folder: Path,
    source: Mapping[str, Any],
    tuned: Tuned,
    tried: Sequence[Tried],
    aim: Aim,
    name: str,
) -> None:
    """The best settings for `bayesdiv train --config`, all trials as a table, and a figure.

    `source` says where the data come from, as the command line has it, and `name` what they are.
    """
    import yaml  # type: ignore[import-untyped]

    best = {
        **{key: value for key, value in source.items() if value is not None and key != "data"},
        "divergence": _as_config(tuned.divergence),
        **asdict(tuned.training),
        "hidden": list(tuned.training.hidden),
    }
    text = f"# bayesdiv train {source['data']} --config {BEST} --out FOLDER\n"
    runs.write(folder / BEST, (text + yaml.safe_dump(best, sort_keys=False)).encode())
    runs.write(folder / TRIALS, _csv(tried).encode())
    title = f"{name}: {type(tuned.divergence).__name__}, {len(tried)} trials"
    plots.save(search_figure(tried, aim, title), folder / FIGURE)


def _as_config(divergence: Divergence) -> dict[str, Any]:
    given = dict(described(divergence) or {})
    kind = given.pop("kind")
    path = {"class_path": kind if "." in kind else f"bayesdiv.divergence.{kind}"}
    return {**path, "init_args": given} if given else path


def _csv(tried: Sequence[Tried]) -> str:
    import pandas as pd

    last = ("value", "state", "seconds", "retry_of", "reason")
    rows = [
        {"trial": trial.number, **trial.settings, **{name: getattr(trial, name) for name in last}}
        for trial in tried
        if trial.state != "waiting"
    ]
    return str(pd.DataFrame(rows).astype({"retry_of": "Int64"}).to_csv(index=False))


def kept(path: Path) -> list[dict[str, Any]]:
    """What an earlier call has trained; nothing where the file does not say."""
    with contextlib.suppress(runs.RunError, KeyError, TypeError):
        return [
            {key: entry[key] for key in ("settings", "test")}
            for entry in runs.read_json(path)["trained"]
        ]
    return []


def depends(divergence: Divergence, training: Training) -> dict[str, Any]:
    """All that a training depends on besides its data, as JSON gives it back."""
    return {"version": bayesdiv.__version__, **as_json(divergence, training)}
