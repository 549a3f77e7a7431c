"""Compute results of the paper without the command line's packages, as on a bare GPU machine.

    python -m reproduction.running regression-choice --out results --processes 16
    python -m reproduction.running regression --out results --processes 16
    python -m reproduction.running regression-pack --data FOLDER          (where tables can be read)
    python -m reproduction.running regression-searched --data FOLDER --limit 500
    python -m reproduction.running cifar10-tuning cifar10-folds --data FOLDER --limit 300

Runs of several image experiments share the processes; one that another needs comes first. What has
a result file already is not computed again. Several processes share a GPU best under NVIDIA's
multi-process service. On a CPU under Linux, set MALLOC_MMAP_MAX_=0 and
MALLOC_TRIM_THRESHOLD_=99999999999: the large steps of a search then take about half the time.
"""

import argparse
import math
from pathlib import Path

import torch

from reproduction.images import running as images_running
from reproduction.images.plans import PLANS
from reproduction.regression import effective
from reproduction.regression import results as regression_results
from reproduction.regression.rows import pack

REGRESSION = (
    *("regression-choice", "regression", "regression-pack", "regression-searched"),
    "regression-draws",
)


def main() -> None:
    """Run one experiment to its end, file by file."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduction.running",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [*REGRESSION, *PLANS]
    parser.add_argument(
        "experiments", nargs="+", choices=known, metavar="EXPERIMENT", help=", ".join(known)
    )
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of results")
    parser.add_argument("--data", type=Path, default=None, help="folder of the images or arrays")
    parser.add_argument("--processes", type=int, default=1, help="how many at a time")
    parser.add_argument(
        "--limit", type=float, default=math.inf, help="seconds after which no further run begins"
    )
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    protocol = regression_results.protocol(given.out)
    if "regression-choice" in given.experiments:
        regression_results.choose(given.out, protocol, given.processes, device)
    if "regression" in given.experiments:
        for job, told in regression_results.missing(given.out, protocol, given.processes, device):
            _say(f"{job.data} {job.contender} {told['seconds']:.1f} s")
    if "regression-pack" in given.experiments:
        _say(f"{len(pack(given.data or Path('arrays')))} sets are packed")
    if "regression-searched" in given.experiments:
        how = {"folder": given.data, "processes": given.processes, "limit": given.limit}
        regression_results.halve(given.out, device, **how, tell=_say)
    if "regression-draws" in given.experiments:
        effective.compute(given.out, protocol, _say)
    machine = images_running.Machine(device, given.processes, given.data, given.limit)
    images = [name for name in given.experiments if name in PLANS]
    images_running.execute(images, given.out, machine, _say)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
