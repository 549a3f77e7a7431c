"""What a population of settings gains over the given settings, at about equal time.

    python -m benchmarks.population [--data FOLDER] [--sets airfoil] [--seeds 2]

Three tables that the defaults were not chosen on, parted at random. The given settings with four
members, with eight, and `bayesdiv tune`'s population; NLL and RMSE of the test rows and seconds of
one core. Lines go to tables/population.csv.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FIELDS = ("way", "table", "seed", "nll", "rmse", "coverage", "seconds")
SETS = ("real_estate", "aquatic_toxicity", "airfoil")


def ways(path: Path, seed: int) -> dict[str, Callable[[], dict[str, float]]]:
    """What is compared on a table."""
    from bayesdiv import JSA
    from bayesdiv.app.data.loading import load
    from bayesdiv.app.experiment import Training, evaluate
    from bayesdiv.app.training import train
    from bayesdiv.app.tuning.population import NEAR, population

    splits, training = load(str(path), seed=seed), Training(seed=seed)
    eight = replace(training, members=8)
    ranges = {name: NEAR[name] for name in NEAR if name != "alpha"}  # as the command line does

    def grown() -> dict[str, float]:
        found = population(splits, JSA(0.3), training, ranges=ranges)
        return evaluate(found.experiment, splits, splits.test)

    return {
        "given, 4 members": lambda: train(splits, JSA(0.3), training)[1]["test"],
        "given, 8 members": lambda: train(splits, JSA(0.3), eight)[1]["test"],
        "population": grown,
    }


def run(trial: tuple[Path, str, int, str]) -> dict[str, Any]:
    """One way on one table."""
    import torch

    torch.set_num_threads(1)
    data, name, seed, way = trial
    began = time.process_time()
    found = ways(data / f"{name}.csv", seed)[way]()
    kept = {key: round(found[key], 4) for key in ("nll", "rmse", "coverage")}
    seconds = round(time.process_time() - began, 1)
    return {"way": way, "table": name, "seed": seed, **kept, "seconds": seconds}


def main() -> None:
    """Run what is left."""
    from benchmarks.tables.study import known, work

    default = os.environ.get("BAYESDIV_DATA")
    data = Path(default) / "uci" if default else HERE.parents[1] / "shared/data/uci"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data, help="folder of the tables")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    given = parser.parse_args()
    path = HERE / "tables/population.csv"
    done = {(r["table"], int(r["seed"]), r["way"]) for r in known(path)}
    names = ("given, 4 members", "given, 8 members", "population")
    every = [
        (name, seed, way) for seed in range(given.seeds) for name in given.sets for way in names
    ]
    left = [(given.data, *one) for one in every if one not in done]
    work(run, left, path, FIELDS, given.processes, given.limit)
    print(path.read_text())


if __name__ == "__main__":
    main()
