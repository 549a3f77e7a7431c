"""What a search leaves in its folder: best settings, trials, figures."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from bayesdiv.app import plots, runs
from bayesdiv.app.settings import described
from bayesdiv.app.tuning.experiment import Tuned
from bayesdiv.app.tuning.search import Search, Tried
from bayesdiv.app.tuning.study import opened

BEST, TRIALS, RESULT = "best.yaml", "trials.csv", "result.json"
FIGURE, IMPORTANCE = "search.png", "importance.png"
FEWEST = 10  # finished trials that say something about importance


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


def draw(search: Search, folder: Path, value: str) -> None:
    """The finished trials over each setting and, if they are enough, how much each setting matters.

    Optuna draws both. Pruned trials, whose values are of earlier epochs, are left out.
    """
    from matplotlib import pyplot, rc_context
    from optuna.visualization import matplotlib as figures

    with opened(search) as study, rc_context({"backend": "agg", "savefig.bbox": "tight"}):
        warnings.simplefilter("ignore", UserWarning)  # a single trial makes an axis without length
        values = {t.value for t in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))}
        figures.plot_slice(study, target_name=value)
        plots.save(pyplot.gcf(), folder / FIGURE)
        if len(values) >= FEWEST:
            figures.plot_param_importances(study, target_name=value)
            plots.save(pyplot.gcf(), folder / IMPORTANCE)
        pyplot.close("all")
