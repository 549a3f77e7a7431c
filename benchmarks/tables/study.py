"""Settings of the estimator compared on rows held out from the training parts of splits.

    python -m benchmarks.tables.study [--data FOLDER] [--processes 8] [--limit SECONDS]

A fifth of the training rows of each split is set aside, the estimator learns the rest, and the
rows set aside judge it. Every setting differs from the default in what its name says. Results are
written to study.csv after every fit; a second call goes on where the first was stopped.
"""

import argparse
import csv
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.uci import PUBLISHED, Job, Split, ours, read
from reproduction.pool import finished

HERE = Path(__file__).parent
FIELDS = ("setting", "table", "split", "nll", "rmse", "coverage", "seconds")
MOST = 2000  # rows that judge
SMALL = ("yacht", "boston_housing", "energy_heating", "concrete", "wine_red")


def settings() -> dict[str, dict[str, Any]]:
    """What is compared, by name."""
    from bayesdiv import JSA, JSG, KL

    return {
        "default": {},
        "KL, strength 0.3": {"divergence": KL(), "strength": 0.3},
        "KL, strength 1": {"divergence": KL(), "strength": 1.0},
        "JSG 0.1, strength 0.3": {"divergence": JSG(0.1), "strength": 0.3},
        "JSA 0.3, strength 2": {"divergence": JSA(0.3), "strength": 2.0},
        "learning rate 0.01": {"learning_rate": 0.01},
        "one hidden layer": {"hidden": (50,)},
        "100 units per layer": {"hidden": (100, 100)},
        "one member": {"members": 1},
        "8 members": {"members": 8},
        "one noise level": {"likelihood": "gaussian"},
        "start 0.1": {"start": 0.1},
    }


class Trial(NamedTuple):
    """One fit of a setting."""

    setting: str
    job: Job


def validation(split: Split, number: int) -> Split:
    """The training rows alone, a fifth of them in the place of the test rows."""
    order = np.random.default_rng(1000 + number).permutation(len(split.x))
    held = min(MOST, max(20, len(split.x) // 5))
    new, train = order[:held], order[held:]
    return Split(split.x[train], split.y[train], split.x[new], split.y[new])


def run(trial: Trial) -> dict[str, Any]:
    """Fit and measure on the rows set aside."""
    import torch

    torch.set_num_threads(1)
    began, number = time.perf_counter(), trial.job.split
    found = ours(validation(read(trial.job), number), number, **settings()[trial.setting])
    kept = {key: round(found[key], 4) for key in ("nll", "rmse", "coverage")}
    where = {"setting": trial.setting, "table": trial.job.name, "split": number}
    return {**where, **kept, "seconds": round(time.perf_counter() - began, 1)}


def known(path: Path) -> list[dict[str, str]]:
    """The rows that are written."""
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def work(
    run: Callable[[Any], dict[str, Any]],
    left: list[Any],
    path: Path,
    fields: Sequence[str],
    processes: int,
    limit: float,
) -> None:
    """Run trials until none is left or the time is up; each is a line of a CSV file once done."""
    began = time.perf_counter()
    fresh = not path.exists() or not path.stat().st_size

    def take() -> Any:
        return left.pop(0) if left and time.perf_counter() - began < limit else None

    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields)
        if fresh:
            writer.writeheader()
            file.flush()
        for _, row in finished(take, run, processes):
            writer.writerow(row)
            file.flush()


def table(rows: list[dict[str, str]], names: list[str]) -> str:
    """Mean validation NLL of each setting and table."""
    lines = ["| setting | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for setting in settings():
        cells = []
        for name in names:
            own = [r for r in rows if r["setting"] == setting and r["table"] == name]
            cells.append(f"{np.mean([float(r['nll']) for r in own]):.3f}" if own else "–")
        lines.append(f"| {setting} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is left, then print the table."""
    default = os.environ.get("BAYESDIV_DATA")
    data = Path(default) / "uci" if default else HERE.parents[2] / "shared/data/uci"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data, help="folder of the tables")
    parser.add_argument("--sets", nargs="+", default=list(SMALL), choices=list(PUBLISHED))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds, no fit after them")
    given = parser.parse_args()
    if not (given.data / "standard_splits.json").exists():
        print(f"skipped: there is no standard_splits.json in {given.data}; give --data")
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    path = HERE / "study.csv"
    done = {(r["setting"], r["table"], int(r["split"])) for r in known(path)}
    left = [
        Trial(setting, Job(given.data, name, split, "bayesdiv"))
        for split in range(given.splits)
        for setting in settings()
        for name in given.sets
        if (setting, name, split) not in done
    ]
    work(run, left, path, FIELDS, given.processes, given.limit)
    print(table(known(path), given.sets))


if __name__ == "__main__":
    main()
