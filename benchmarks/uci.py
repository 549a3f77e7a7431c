"""The default estimator on the standard splits of eight tables, beside what others report.

    python -m benchmarks.uci [--data FOLDER] [--processes 8] [--limit SECONDS]

`BayesianRegressor()`, nothing set, learns the training rows of every split of Hernández-Lobato and
Adams (20, protein 5); scikit-learn's random forest and gradient boosting learn the same rows. One
file per table is written after every fit, and a second call goes on where the first was stopped. A
table whose file is missing is left out, and named. At the end the results stand beside those of MC
dropout, split by split, and those that others published, in summary.md.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reproduction.pool import finished

Floats = NDArray[np.float64]

HERE = Path(__file__).parent
# RMSE and NLL. PBP: Hernández-Lobato and Adams 2015. Deep ensembles of 5: Lakshminarayanan et al.
# 2017. NGBoost: Duan et al. 2020.
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "boston_housing": {"PBP": (3.01, 2.57), "ensemble": (3.28, 2.41), "NGBoost": (2.94, 2.43)},
    "concrete": {"PBP": (5.67, 3.16), "ensemble": (6.03, 3.06), "NGBoost": (5.06, 3.04)},
    "energy_heating": {"PBP": (1.80, 2.04), "ensemble": (2.09, 1.38), "NGBoost": (0.46, 0.60)},
    "kin8nm": {"PBP": (0.10, -0.90), "ensemble": (0.09, -1.20), "NGBoost": (0.16, -0.49)},
    "power_plant": {"PBP": (4.12, 2.84), "ensemble": (4.11, 2.79), "NGBoost": (3.79, 2.79)},
    "protein": {"PBP": (4.73, 2.97), "ensemble": (4.71, 2.83), "NGBoost": (4.33, 2.81)},
    "wine_red": {"PBP": (0.64, 0.97), "ensemble": (0.64, 0.94), "NGBoost": (0.63, 0.91)},
    "yacht": {"PBP": (1.02, 1.63), "ensemble": (1.58, 1.18), "NGBoost": (0.50, 0.20)},
}
METHODS = ("bayesdiv", "forest", "boosting")
LEVEL = 0.9  # of the intervals whose coverage is measured


class Job(NamedTuple):
    """One fit."""

    data: Path
    name: str
    split: int
    method: str


class Split(NamedTuple):
    """The two parts of a table."""

    x: Floats
    y: Floats
    new: Floats
    truth: Floats


def standard_splits(data: Path) -> dict[str, Any]:
    """Test rows and results of MC dropout, by table."""
    found: dict[str, Any] = json.loads((data / "standard_splits.json").read_text())["sets"]
    return found


def read(job: Job) -> Split:
    """The rows of a split."""
    table = np.loadtxt(job.data / f"{job.name}.csv", delimiter=",", skiprows=1)
    test = np.array(standard_splits(job.data)[job.name]["test"][job.split])
    train = np.setdiff1d(np.arange(len(table)), test)
    x, y = table[:, :-1], table[:, -1]
    return Split(x[train], y[train], x[test], y[test])


def run(job: Job) -> dict[str, Any]:
    """Fit and measure; what went wrong if it did."""
    import torch

    torch.set_num_threads(1)
    began = time.perf_counter()
    try:
        measure = {"bayesdiv": ours, "forest": forest, "boosting": boosting}[job.method]
        found = measure(read(job), job.split)
    except Exception as error:
        found = {"error": repr(error)[:300], "nll": math.inf, "rmse": math.inf}
    seconds = round(time.perf_counter() - began, 1)
    return {"method": job.method, "split": job.split, **found, "seconds": seconds}


def ours(split: Split, seed: int, **settings: Any) -> dict[str, Any]:
    """The estimator, for the benchmark with its defaults."""
    import torch

    from bayesdiv import BayesianRegressor

    model = BayesianRegressor(random_state=seed, **settings).fit(split.x, split.y)
    predictive, truth = model.predictive(split.new), torch.from_numpy(split.truth)
    low, high = model.predict_interval(split.new, LEVEL)
    return {
        "nll": -predictive.log_prob(truth).mean().item(),
        "rmse": (predictive.mean - truth).square().mean().sqrt().item(),
        "coverage": float(np.mean((low <= split.truth) & (split.truth <= high))),
        "report": model.report_,
    }


def forest(split: Split, seed: int) -> dict[str, Any]:
    """A random forest; its noise is the error of rows that a tree has not seen."""
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(500, oob_score=True, random_state=seed).fit(split.x, split.y)
    return gaussian(split, model.predict(split.new), split.y - model.oob_prediction_)


def boosting(split: Split, seed: int) -> dict[str, Any]:
    """Gradient boosting; its noise is the error of rows left out in five folds."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import KFold, cross_val_predict

    model = HistGradientBoostingRegressor(random_state=seed)
    folds = KFold(5, shuffle=True, random_state=seed)
    left = split.y - cross_val_predict(model, split.x, split.y, cv=folds)
    return gaussian(split, model.fit(split.x, split.y).predict(split.new), left)


def gaussian(split: Split, mean: Floats, errors: Floats) -> dict[str, Any]:
    """The measures of normal predictions whose scale is that of these errors."""
    scale = float(np.sqrt(np.mean(errors**2)))
    off = (split.truth - mean) / scale
    return {
        "nll": float(np.mean(off**2) / 2 + math.log(scale) + math.log(2 * math.pi) / 2),
        "rmse": float(np.sqrt(np.mean((split.truth - mean) ** 2))),
        "coverage": float(np.mean(np.abs(off) <= 1.6448536269514722)),
    }


def results(out: Path, name: str) -> list[dict[str, Any]]:
    """What is known of a table."""
    path = out / f"{name}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def note(out: Path, name: str, row: dict[str, Any]) -> None:
    """Add a result to its table's file, in an order that does not depend on who was first."""
    rows = sorted([*results(out, name), row], key=lambda r: (r["method"], r["split"]))
    beside = out / f"{name}.json.new"
    beside.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
    beside.replace(out / f"{name}.json")


def jobs(data: Path, out: Path, names: list[str], methods: list[str], most: int) -> list[Job]:
    """What is left to do: first splits first, and of these the largest tables first."""
    known = standard_splits(data)
    there = [name for name in names if (data / f"{name}.csv").exists()]
    for name in sorted(set(names) - set(there)):
        print(f"{name} is left out: there is no {data / name}.csv")
    there.sort(key=lambda name: -known[name]["rows"])
    done = {(n, row["method"], row["split"]) for n in there for row in results(out, n)}
    every = [
        Job(data, name, split, method)
        for split in range(most)
        for name in there
        for method in methods
        if split < len(known[name]["test"])
    ]
    return [job for job in every if (job.name, job.method, job.split) not in done]


def work(left: list[Job], out: Path, processes: int, limit: float) -> None:
    """Run jobs until none is left or the time is up; those under way are waited for."""
    began, total = time.perf_counter(), len(left)

    def take() -> Job | None:
        return left.pop(0) if left and time.perf_counter() - began < limit else None

    for done, (job, row) in enumerate(finished(take, run, processes), 1):
        note(out, job.name, row)
        print(
            f"{time.perf_counter() - began:6.0f} s  {done}/{total}  {job.name} "
            f"{job.split} {job.method}: nll {row['nll']:.3f}, rmse {row['rmse']:.3f}, "
            f"{row['seconds']} s {row.get('error', '')}",
            flush=True,
        )


def line(name: str, out: Path, known: dict[str, Any]) -> str | None:
    """A row of the summary: means over the splits that are done, ± the standard error."""
    rows = results(out, name)
    by = {m: {r["split"]: r for r in rows if r["method"] == m} for m in METHODS}
    mine = by["bayesdiv"]
    if not mine:
        return None
    dropout, cells = known[name]["mc_dropout"], [name, str(len(mine))]
    for key, sign, other in (("nll", -1, "log_likelihood"), ("rmse", 1, "rmse")):
        values = [row[key] for row in mine.values()]
        error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        theirs = sign * np.mean([dropout[other][split] for split in mine])
        cells += [f"**{np.mean(values):.3f}** ± {error:.3f}", f"{theirs:.3f}"]
        cells += [f"{PUBLISHED[name][who][key == 'nll']:.2f}" for who in PUBLISHED[name]]
        for method in ("forest", "boosting"):
            found = [row[key] for split, row in by[method].items() if split in mine]
            cells.append(f"{np.mean(found):.3f}" if found else "–")
    cells.append(f"{np.mean([row['coverage'] for row in mine.values()]):.3f}")
    cells.append(f"{np.median([row['seconds'] for row in mine.values()]):.0f}")
    return "| " + " | ".join(cells) + " |"


def summary(out: Path, known: dict[str, Any]) -> str:
    """All tables side by side."""
    others = ["MC dropout", "PBP", "ensemble", "NGBoost", "forest", "boosting"]
    head = ["table", "splits", "NLL", *others, "RMSE", *others, "coverage of 90 %", "seconds"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += [found for name in PUBLISHED if (found := line(name, out, known)) is not None]
    return "\n".join(lines)


def main() -> None:
    """Run what is left, then print the summary."""
    default = os.environ.get("BAYESDIV_DATA")
    data = Path(default) / "uci" if default else HERE.parent.parent / "shared/data/uci"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data, help="folder of the tables")
    parser.add_argument("--out", type=Path, default=HERE / "tables/uci", help="folder of results")
    parser.add_argument("--sets", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--splits", type=int, default=20, help="the first so many of each table")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds, no fit after them")
    given = parser.parse_args()
    if not (given.data / "standard_splits.json").exists():
        print(f"skipped: there is no standard_splits.json in {given.data}; give --data")
        return
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # of each process; there are several
    given.out.mkdir(parents=True, exist_ok=True)
    left = jobs(given.data, given.out, given.sets, given.methods, given.splits)
    work(left, given.out, given.processes, given.limit)
    table = summary(given.out, standard_splits(given.data))
    (given.out / "summary.md").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
