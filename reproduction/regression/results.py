"""Where the regression results lie, which are missing, and how what all losses share was chosen."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from bayesdiv.app import runs
from reproduction.hardware import hardware
from reproduction.item import stamp
from reproduction.regression.rows import SETS
from reproduction.regression.training import COLUMNS, Job, Protocol, Trial, computed

FOLDER = "regression"
CHOICE = "choice.json"
LEARNING_RATES = (3e-3, 1e-2)
STARTS = (0.005, 0.01, 0.02)
SHARED = ("learning_rate", "start")


def place(results: Path, data: str, contender: str) -> Path:
    """The file of one result."""
    return results / FOLDER / data / f"{contender}.json"


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


def found(results: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """All results there are, by data set and contender."""
    return {
        data: {
            contender: runs.read_json(place(results, data, contender))
            for contender in COLUMNS
            if place(results, data, contender).exists()
        }
        for data in SETS
    }


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
