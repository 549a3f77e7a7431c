"""The default classifier beside logistic regression and gradient boosting, on tables of classes.

    python -m benchmarks.tables.classes [--data FOLDER] [--processes 8] [--limit SECONDS] [--study]

Breast cancer, wine, digits, iris, two moons, two circles, and the grades of red and white wine as
classes; ten random splits each, a fifth of the rows to test on, stratified. `BayesianClassifier()`
with nothing set; scikit-learn's logistic regression on standardised columns, with its strength
chosen by five folds, and its histogram gradient boosting, stopped early. A line is written to
classes.csv after every fit; a second call goes on where the first was stopped.

`--study` compares settings of our classifier in place of that: a fifth of the training rows of each
split judges, the test rows stay unseen, and the lines go to classes_study.csv.
"""

import argparse
import math
import os
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.losses import interval
from benchmarks.tables.study import known, work

HERE = Path(__file__).parent
FIELDS = ("method", "table", "split", "nll", "accuracy", "ece", "train", "test", "seconds")
TABLES = ("iris", "wine", "breast_cancer", "digits", "moons", "circles", "wine_red", "wine_white")
METHODS = ("bayesdiv", "logistic", "boosting")
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "strength 0.1": {"strength": 0.1},
    "strength 0.3": {"strength": 0.3},
    "strength 3": {"strength": 3.0},
    "100 units per layer": {"hidden": (100, 100)},
}
Floats = NDArray[np.float64]


class Trial(NamedTuple):
    """One fit."""

    data: Path
    method: str
    table: str
    split: int


def rows_of(trial: Trial) -> tuple[Floats, NDArray[Any]]:
    """A table and its labels."""
    from sklearn import datasets

    name = trial.table
    if name in ("moons", "circles"):
        make = getattr(datasets, f"make_{name}")
        extra = {"factor": 0.5} if name == "circles" else {}
        x, y = make(500, noise=0.2, random_state=0, **extra)
        return x, y
    if name.startswith("wine_"):
        table = np.loadtxt(trial.data / f"{name}.csv", delimiter=",", skiprows=1)
        return table[:, :-1], table[:, -1].astype(int)
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return x, y


def model_of(method: str, seed: int) -> Any:
    """A classifier with nothing set but what it needs to be fair."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from bayesdiv import BayesianClassifier

    if method == "bayesdiv" or method in SETTINGS:
        return BayesianClassifier(random_state=seed, **SETTINGS.get(method, {}))
    if method == "boosting":
        return HistGradientBoostingClassifier(early_stopping=True, random_state=seed)
    logistic = LogisticRegressionCV(cv=5, scoring="neg_log_loss", max_iter=2000)
    return make_pipeline(StandardScaler(), logistic)


def measured(model: Any, x: Floats, y: NDArray[Any]) -> dict[str, float]:
    """NLL, accuracy and calibration error; a class that the fit did not see has probability 0."""
    import torch
    from torch.distributions import Categorical

    from bayesdiv import Predictive, metrics

    probabilities = np.clip(model.predict_proba(x), 1e-12, 1.0)
    place = {label: k for k, label in enumerate(model.classes_)}
    numbers = torch.tensor([place[label] for label in y])
    found = Predictive(Categorical(torch.from_numpy(probabilities).unsqueeze(0)))
    names = ("nll", "accuracy", "ece")
    return {name: getattr(metrics, name)(found, numbers).item() for name in names}


def run(trial: Trial) -> dict[str, Any]:
    """Fit and measure."""
    import torch
    from sklearn.model_selection import train_test_split

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    x, y = rows_of(trial)
    labels, counts = np.unique(y, return_counts=True)
    enough = np.isin(y, labels[counts >= 10])  # a rare grade cannot be in every fold
    x, y = x[enough], y[enough]
    x, new, y, truth = train_test_split(x, y, test_size=0.2, stratify=y, random_state=trial.split)
    if trial.method in SETTINGS:
        x, new, y, truth = train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)
    began = time.perf_counter()
    model = model_of(trial.method, trial.split).fit(x, y)
    seconds = time.perf_counter() - began
    found = {key: round(value, 5) for key, value in measured(model, new, truth).items()}
    sizes = {"train": len(y), "test": len(truth), "seconds": round(seconds, 1)}
    named = {"method": trial.method, "table": trial.table, "split": trial.split}
    return {**named, **found, **sizes}


def summary(rows: list[dict[str, str]]) -> str:
    """Mean NLL and accuracy of each method, and our NLL less theirs with a 95 % interval."""
    head = [*(f"{key}, {m}" for key in ("NLL", "accuracy") for m in METHODS)]
    head += [f"NLL less {m}" for m in METHODS[1:]]
    lines = [f"| table (splits) | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for name in TABLES:
        own = {
            m: {r["split"]: r for r in rows if (r["table"], r["method"]) == (name, m)}
            for m in METHODS
        }
        both = sorted(set.intersection(*(set(each) for each in own.values())))
        if len(both) < 2:
            continue
        cells = [
            f"{np.mean([float(own[m][s][key]) for s in both]):.3f}"
            for key in ("nll", "accuracy")
            for m in METHODS
        ]
        for m in METHODS[1:]:
            pairs = [float(own["bayesdiv"][s]["nll"]) - float(own[m][s]["nll"]) for s in both]
            one = own[m][both[0]]
            mean, half = interval(pairs, int(one["train"]), int(one["test"]))
            cells.append(f"{mean:+.3f} ± {half:.3f}")
        lines.append(f"| {name} ({len(both)}) | {' | '.join(cells)} |")
    return "\n".join([*lines, "", sentence(rows)])


def sentence(rows: list[dict[str, str]]) -> str:
    """On how many tables our mean NLL is at or below that of the others."""
    mean = {
        (name, m): np.mean(
            [float(r["nll"]) for r in rows if (r["table"], r["method"]) == (name, m)]
        )
        for name in TABLES
        for m in METHODS
    }
    counts = {m: sum(mean[t, "bayesdiv"] <= mean[t, m] for t in TABLES) for m in METHODS[1:]}
    return (
        f"Mean NLL at or below that of logistic regression on {counts['logistic']} of "
        f"{len(TABLES)} tables, at or below that of gradient boosting on {counts['boosting']}."
    )


def settings_table(rows: list[dict[str, str]]) -> str:
    """Mean validation NLL of each setting and table, on the splits that every setting has."""
    names = [name for name in TABLES if any(r["table"] == name for r in rows)]
    lines = [f"| setting | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    splits = {
        name: set.intersection(
            *(
                {r["split"] for r in rows if (r["table"], r["method"]) == (name, m)}
                for m in SETTINGS
            )
        )
        for name in names
    }
    for m in SETTINGS:
        cells = []
        for name in names:
            own = [r for r in rows if (r["table"], r["method"]) == (name, m)]
            both = [float(r["nll"]) for r in own if r["split"] in splits[name]]
            cells.append(f"{np.mean(both):.4f} ({len(both)})" if both else "–")
        lines.append(f"| {m} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is left, then print and write the table."""
    default = os.environ.get("BAYESDIV_DATA")
    data = Path(default) / "uci" if default else HERE.parents[2] / "shared/data/uci"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data, help="folder of the wine tables")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results")
    parser.add_argument("--sets", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds, no fit after them")
    parser.add_argument("--study", action="store_true", help="compare settings, test rows unseen")
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # of each process; there are several
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / ("classes_study.csv" if given.study else "classes.csv")
    methods = list(SETTINGS) if given.study else given.methods
    done = {(r["method"], r["table"], int(r["split"])) for r in known(path)}
    files = {name: given.data / f"{name}.csv" for name in ("wine_red", "wine_white")}
    sets = [name for name in given.sets if name not in files or files[name].exists()]
    left = [
        Trial(given.data, method, name, split)
        for split in range(given.splits)
        for name in sets
        for method in methods
        if (method, name, split) not in done
    ]
    work(run, left, path, FIELDS, given.processes, given.limit)
    table = settings_table(known(path)) if given.study else summary(known(path))
    path.with_suffix(".md").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
