"""Where the regression results lie, which are missing, and how what all losses share was chosen."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from bayesdiv.app import runs
from reproduction.contenders import title
from reproduction.hardware import hardware
from reproduction.item import Tell, stamp
from reproduction.regression import halving
from reproduction.regression.columns import Job, Trial, computed
from reproduction.regression.halving import LOSSES, Search
from reproduction.regression.rows import SETS, arrays
from reproduction.regression.training import COLUMNS, Protocol

FOLDER = "regression"
SEARCHED = "regression-searched"
"""The folder of the losses that were searched with equal budgets."""
CHOICE = "choice.json"
LEARNING_RATES = (3e-3, 1e-2)
STARTS = (0.005, 0.01, 0.02)
SHARED = ("learning_rate", "start")


def place(results: Path, data: str, contender: str, folder: str = FOLDER) -> Path:
    """The file of one result."""
    return results / folder / data / f"{contender}.json"


def protocol(results: Path) -> Protocol:
    """The protocol with what was chosen on validation rows, if it was."""
    path = results / FOLDER / CHOICE
    if not path.exists():
        return Protocol()
    best = runs.read_json(path)["best"]
    return replace(Protocol(), **{name: best[name] for name in SHARED})


def choose(results: Path, base: Protocol, processes: int, device: torch.device) -> Protocol:
    """Try every learning rate and start scale with KL, keep the best mean validation NLL."""
    tried = [
        replace(base, learning_rate=rate, start=start)
        for rate, start in product(LEARNING_RATES, STARTS)
    ]
    jobs = [Trial(data, one) for one in tried for data in SETS]
    found = [told for _, told in computed(jobs, processes, device)]
    means = []
    for one in tried:
        own = [t for t in found if all(t[name] == getattr(one, name) for name in SHARED)]
        mean = sum(t["validation_nll"] for t in own) / len(own)
        means.append({name: getattr(one, name) for name in SHARED} | {"validation_nll": mean})
    best = min(means, key=lambda entry: entry["validation_nll"])
    told = {**_stamp(device), "protocol": asdict(base), "means": means, "best": best}
    order = sorted(found, key=lambda t: (t["data"], t["learning_rate"], t["start"]))
    runs.write_json(results / FOLDER / CHOICE, {**told, "each": order})
    return protocol(results)


def missing(
    results: Path,
    wanted: Protocol,
    processes: int,
    device: torch.device,
    data: tuple[str, ...] = SETS,
    contenders: tuple[str, ...] = COLUMNS,
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Compute what has no file yet; each result is written as soon as it is there."""
    jobs = [
        Job(name, contender, wanted)
        for contender in contenders
        for name in data
        if not place(results, name, contender).exists()
    ]
    for job, told in computed(jobs, processes, device):
        assert isinstance(job, Job)
        runs.write_json(
            place(results, job.data, job.contender), {"data": job.data, **told, **_stamp(device)}
        )
        yield job, told


def halve(
    results: Path,
    device: torch.device,
    *,
    search: Search | None = None,
    protocol: Protocol | None = None,
    data: Sequence[str] = SETS,
    folder: Path | None = None,
    limit: float = math.inf,
    tell: Tell = lambda line: None,
) -> None:
    """Search each loss on each set by successive halving, and write what has no file yet.

    Args:
        results: the folder of all results.
        device: what computes.
        search: how much is tried; None is the full search.
        protocol: what all share; None is that of the tables.
        data: the sets.
        folder: of packed arrays, see `rows.pack`.
        limit: seconds after which no further search begins.
        tell: called with a line of progress.
    """
    began = time.monotonic()
    search, protocol = search or Search(), protocol or Protocol()
    for name, loss in product(data, LOSSES):
        path = place(results, name, loss, SEARCHED)
        if path.exists() or time.monotonic() - began > limit:
            continue
        told = halving.compute(loss, *arrays(name, folder), protocol, search, device, tell)
        runs.write_json(path, {"data": name, **told, **_stamp(device)})
        tell(f"{name} with {title(loss)}: {told['seconds']:.0f} s")


def found(results: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """All results there are, by data set and contender; those of equal searches come first."""
    return {
        data: {
            contender: runs.read_json(path)
            for contender in COLUMNS
            if (path := _present(results, data, contender)) is not None
        }
        for data in SETS
    }


def _present(results: Path, data: str, contender: str) -> Path | None:
    paths = (place(results, data, contender, folder) for folder in (SEARCHED, FOLDER))
    return next((path for path in paths if path.exists()), None)


def values(told: Mapping[str, Any], key: str) -> list[float | None]:
    """A column of a result, one number per split; None where it diverged."""
    found = told.get(key)
    if not isinstance(found, list):
        raise runs.RunError(f"a regression result must hold a list {key!r}, got {sorted(told)}")
    return found


def _stamp(device: torch.device) -> dict[str, Any]:
    """What made a result: version, date, hardware, command."""
    return {
        **stamp(),
        "torch": torch.__version__,
        "hardware": hardware(device),
        "command": "python -m reproduction regression",
    }
