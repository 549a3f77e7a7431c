"""What a search leaves in its folder: best settings, trials, figures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from optuna.importance import get_param_importances
from optuna.trial import TrialState

from bayesdiv.app import runs
from bayesdiv.app.report.search import page
from bayesdiv.app.settings import described
from bayesdiv.app.tuning.experiment import Tuned
from bayesdiv.app.tuning.search import Search, Tried, opened, tried_in

BEST, TRIALS, RESULT = "best.yaml", "trials.csv", "result.json"
PAGE = "search.html"
FEWEST = 10  # finished trials that say something about importance


def write(folder: Path, source: Mapping[str, Any], tuned: Tuned, tried: Sequence[Tried]) -> str:
    """The best settings for `bayesdiv train`, whose options are returned, and a table of trials.

    `source` says where the data come from, as the command line has it. A divergence of one's own
    is an option, since a config names no code outside bayesdiv.
    """
    import pandas as pd
    import yaml  # type: ignore[import-untyped]

    divergence = runs.loss({"divergence": described(tuned.divergence)})
    best = {
        **{key: value for key, value in source.items() if value is not None and key != "data"},
        "divergence": divergence,
        **asdict(tuned.training),
        "hidden": list(tuned.training.hidden),
    }
    options = f"--config {folder / BEST}"
    if "." in divergence.partition(":")[0]:
        del best["divergence"]
        options += f" --divergence {divergence}"
    text = f"# bayesdiv train {source['data']} {options} --out FOLDER\n"
    runs.write(folder / BEST, (text + yaml.safe_dump(best, sort_keys=False)).encode())
    last = ("value", "state", "seconds", "reason")
    rows = [
        {"trial": trial.number, **trial.settings, **{name: getattr(trial, name) for name in last}}
        for trial in tried
        if trial.state != "waiting"
    ]
    table = pd.DataFrame(rows)
    runs.write(folder / TRIALS, table.to_csv(index=False).encode())
    return options


def draw(search: Search, folder: Path, value: str) -> None:
    """A page on the trials and, if enough are finished, on how much each setting matters."""
    with opened(search) as study:
        tried, done = tried_in(study), study.get_trials(states=(TrialState.COMPLETE,))
        logs = {n for t in done for n, d in t.distributions.items() if getattr(d, "log", False)}
        enough = len({trial.value for trial in done}) >= FEWEST
        importance = get_param_importances(study) if enough else {}
    title, best = f"{search.name}: search", search.best
    content = page(title, value, tried, best, frozenset(logs), importance)
    runs.write(folder / PAGE, content.encode())
