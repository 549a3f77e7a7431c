"""Compute results of the paper without the command line's packages, as on a bare GPU machine.

python -m bayesdiv.paper regression --out results
python -m bayesdiv.paper regression-choice --out results
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from bayesdiv.paper import regression_results


def main() -> None:
    """Run one experiment to its end, file by file."""
    parser = argparse.ArgumentParser(prog="python -m bayesdiv.paper", description=__doc__)
    parser.add_argument("experiment", choices=["regression", "regression-choice"])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=None)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    protocol = regression_results.protocol(given.out)
    if given.epochs is not None:
        protocol = replace(protocol, epochs=given.epochs)
    if given.experiment == "regression-choice":
        regression_results.choose(given.out, protocol, given.processes, device)
    else:
        for job, told in regression_results.missing(given.out, protocol, given.processes, device):
            print(job.data, job.contender, f"{told['seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
