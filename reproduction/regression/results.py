"""Where the regression results lie, which are missing, and how what all losses share was chosen."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bayesdiv.app import runs
from reproduction.contenders import title
from reproduction.hardware import hardware
from reproduction.item import Tell, stamp
from reproduction.pool import finished
from reproduction.regression import halving
from reproduction.regression.columns import Job, Trial, computed
from reproduction.regression.halving import LOSSES, Progress, Search
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


class Halving(NamedTuple):
    """One search: its set and loss, and all that it needs besides."""

    data: str
    loss: str
    results: Path
    protocol: Protocol
    search: Search
    folder: Path | None
    device: torch.device

    @property
    def path(self) -> Path:
        """The file of its result."""
        return place(self.results, self.data, self.loss, SEARCHED)

    def run(self, tell: Tell = lambda line: None) -> float:
        """Search and write the result; rounds that have ended survive a kill. Returns seconds."""
        part, given = self.path.with_suffix(".part"), self._given()
        kept = runs.read_json(part) if part.exists() else {}
        same = kept.get("given") == given
        before = Progress(kept["rounds"], kept["seconds"]) if same else Progress([])

        def keep(progress: Progress) -> None:
            runs.write_json(part, {"given": given, **progress._asdict()})

        whole = (*arrays(self.data, self.folder), self.protocol, self.search, self.device)
        told = halving.compute(self.loss, *whole, tell, before, keep)
        runs.write_json(self.path, {"data": self.data, **told, **_stamp(self.device)})
        part.unlink(missing_ok=True)
        return float(told["seconds"])

    def _given(self) -> Any:
        """What the rounds depend on, as JSON gives it back."""
        return json.loads(json.dumps([asdict(self.protocol), asdict(self.search)]))


def halve(
    results: Path,
    device: torch.device,
    *,
    search: Search | None = None,
    protocol: Protocol | None = None,
    data: Sequence[str] = SETS,
    folder: Path | None = None,
    processes: int = 1,
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
        processes: searches at a time.
        limit: seconds after which no further search begins.
        tell: called with a line of progress.
    """
    began = time.monotonic()
    shared = (results, protocol or Protocol(), search or Search(), folder, device)
    every = (Halving(name, loss, *shared) for name, loss in product(data, LOSSES))
    waiting = iter([job for job in every if not job.path.exists()])

    def following() -> Halving | None:
        return next(waiting, None) if time.monotonic() - began <= limit else None

    # A process of its own cannot report its rounds to this one.
    work = partial(Halving.run, tell=tell) if processes == 1 else Halving.run
    for job, seconds in finished(following, work, processes):
        tell(f"{job.data} with {title(job.loss)}: {seconds:.0f} s")


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
    # Losses of a set are compared by searches alone once all of them are there.
    whole = all(place(results, data, loss, SEARCHED).exists() for loss in LOSSES)
    folders = (SEARCHED, FOLDER) if whole else (FOLDER,)
    paths = (place(results, data, contender, folder) for folder in folders)
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
