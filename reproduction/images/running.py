"""Runs of the image experiments: one after the other or several at a time, file by file.

A stopped plan resumes with the files that are missing.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bayesdiv.app import runs
from reproduction.contenders import CONTENDERS
from reproduction.images.data import TOYS, parts
from reproduction.images.departures import departures, keeps_rows
from reproduction.images.plans import Job, Plan, needed, plan, toy
from reproduction.images.results import FOLDER, SEEDS, Place, absent, found
from reproduction.images.training import run
from reproduction.item import Effort, Tell
from reproduction.pool import finished


def compute_job(
    job: Job, folder: Path | None, device: torch.device, tell: Tell = lambda line: None
) -> dict[str, Any]:
    """The result of one run."""
    place = job.place
    told = run(
        parts(job.data, place, folder, device),
        job.setting,
        job.protocol,
        seed=place.seed,
        tell=tell,
    )
    where = {"experiment": place.experiment, "contender": place.contender, "tag": place.tag}
    return {**where, "data": job.data, "fold": place.fold, "noise": place.noise, **told}


@dataclass(frozen=True)
class Machine:
    """What computes.

    Args:
        device: the GPU or the CPU.
        processes: runs at a time; several fill a GPU better than one.
        folder: of the data; None is BAYESDIV_DATA.
        limit: seconds after which no further run is begun.
    """

    device: torch.device
    processes: int = 1
    folder: Path | None = None
    limit: float = math.inf

    @classmethod
    def here(cls) -> "Machine":
        """This one, with its GPU if it has one."""
        return cls(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


class Queue:
    """Runs of several plans, handed out in their order as soon as what they need has ended.

    While the last runs of a search end, those of a plan that does not need it begin.

    Args:
        jobs: from the name of a plan to a function that lists its runs, called when they may begin.
        needs: from the name of a plan to the plans that must have ended before.
    """

    def __init__(
        self,
        jobs: Mapping[str, Callable[[], Sequence[Job]]],
        needs: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._lists = dict(jobs)
        self._needs = needs or {}
        self._waiting: dict[str, list[Job]] = {}
        self._running: dict[Job, str] = {}

    def take(self) -> Job | None:
        """The next run that may begin; None if none may now."""
        for name in [name for name in self._lists if name not in self._waiting]:
            if not any(self._is_open(need) for need in self._needs.get(name, ())):
                self._waiting[name] = list(self._lists[name]())
        # In the order of the plans, not in that in which they could begin.
        for name in self._lists:
            if self._waiting.get(name):
                job = self._waiting[name].pop(0)
                self._running[job] = name
                return job
        return None

    def ended(self, job: Job) -> None:
        """Report that a run has its result, or failed."""
        del self._running[job]

    def _is_open(self, name: str) -> bool:
        if name not in self._lists:
            return False
        return bool(self._waiting.get(name, True)) or name in self._running.values()


def computed(
    queue: Queue, machine: Machine, tell: Tell = lambda line: None
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Each run with its result, as they finish.

    A run that fails is reported and does not stop the others; their names are raised at the end.
    """
    began, failed = time.monotonic(), []
    count = 0

    def following() -> Job | None:
        return queue.take() if time.monotonic() - began < machine.limit else None

    # A process of its own cannot tell lines to this one.
    work = partial(_attempt, machine=machine, tell=tell if machine.processes == 1 else _silent)
    for job, result in finished(following, work, machine.processes):
        count += 1
        if isinstance(result, Exception):
            failed.append(job)
            tell(f"{job.place} failed: {type(result).__name__}: {result}")
        else:
            yield job, {**result, "processes": machine.processes}
        # Only now, when its result is written, may that begin which reads it.
        queue.ended(job)
    if failed:
        raise RuntimeError(f"{len(failed)} of {count} runs failed, the first: {failed[0].place}")


def _attempt(job: Job, machine: Machine, tell: Tell) -> dict[str, Any] | Exception:
    try:
        return compute_job(job, machine.folder, machine.device, tell)
    except Exception as error:  # reported by `computed`; the other runs go on
        return error


def _silent(line: str) -> None:
    pass


def execute(
    names: Sequence[str],
    results: Path,
    machine: Machine,
    tell: Tell,
    *,
    changed: Callable[[Plan], Plan] = lambda whole: whole,
) -> None:
    """Compute what plans have no files of; each result is written as soon as it is there.

    Args:
        names: of the plans.
        results: the folder of all results.
        machine: what computes.
        tell: called with a line per run.
        changed: what to make of each plan, such as `toy`.
    """
    plans = {name: changed(plan(name)) for name in names}
    for whole in plans.values():
        _check_kind(whole, results)

    def jobs(name: str) -> list[Job]:
        left = missing(plans[name].jobs(results), results)
        tell(f"{name}: {len(left)} runs to do")
        return left

    queue = Queue(
        {name: partial(jobs, name) for name in plans},
        {name: whole.needs for name, whole in plans.items()},
    )
    began = time.monotonic()
    for job, told in computed(queue, machine, tell):
        runs.write_json(job.place.path(results), told)
        tell(f"{job.place} {_in_words(told)}, after {time.monotonic() - began:.0f} s")


def missing(jobs: Sequence[Job], results: Path) -> list[Job]:
    """The runs that have no result yet."""
    return [job for job in jobs if not job.place.path(results).exists()]


def is_toy(results: Path) -> bool:
    """Whether the results are of a toy size; a folder holds one kind only."""
    first = next((results / FOLDER).glob("*/*/*.json"), None)
    return first is not None and runs.read_json(first)["data"] in TOYS


def _check_kind(whole: Plan, results: Path) -> None:
    there = next((results / FOLDER).glob("*/*/*.json"), None)
    if there is not None and is_toy(results) != (whole.data in TOYS):
        raise runs.RunError(
            f"{results} must hold either toy or full results, got {there}: give another folder"
        )


def _in_words(told: Mapping[str, Any]) -> str:
    if told["diverged"]:
        return f"diverged in epoch {told['diverged_epoch']}"
    best = told["at_best"]
    if best is None:
        return f"took {told['seconds_per_epoch']:.2f} s per epoch"
    return (
        f"has validation {best['validation']['mean']['accuracy']:.1%}, test "
        f"{best['test']['mean']['accuracy']:.1%} at epoch {told['best_epoch']}, took "
        f"{told['seconds']:.0f} s"
    )


ROW_BY_ROW = "accuracy"
"""What runs keep for every test row, false negatives included. Of all else they keep a mean."""


@dataclass(frozen=True)
class Requirement:
    """The runs that a table or figure is made of; its `missing` and `compute` are the item's.

    Args:
        plans: names of the plans that they belong to.
        contenders: those losses of the plans that are shown.
        beyond: further plans, all of whose losses are shown: the paper does not ask for them.
        measures: what is judged on test rows that folds share.

    Examples:
        >>> Requirement(("cifar100",), ("kl",)).missing(Path("nowhere"))
        ['cifar100: KL, fold 1, noise 0.5']
    """

    plans: tuple[str, ...]
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    beyond: tuple[str, ...] = ()
    measures: tuple[str, ...] = (ROW_BY_ROW,)

    def places(self, results: Path) -> list[Place]:
        """Where the results of the paper's plan are to lie."""
        every = [place for name in self.plans for place in plan(name).expected(results)]
        return [place for place in every if place.contender in self.contenders]

    def missing(self, results: Path) -> list[str]:
        """Which runs have no file yet."""
        further = [place for name in self.beyond for place in plan(name).expected(results)]
        return absent([*self.places(results), *further], results)

    def lacks(self, results: Path) -> list[str]:
        """What of the paper's plan was not done: runs, and how those that were done differ."""
        places = self.places(results)
        there = found(places, results)
        told = [each for run in there.values() for each in departures(run)]
        gone = len(places) - len(there)
        left = [f"{gone} of {len(places)} runs"] if gone else []
        kept = _rows_kept(there, results) if ROW_BY_ROW in self.measures else []
        whole = [each for each in self.measures if each != ROW_BY_ROW]
        if whole and any(run.get("at_best") for run in there.values()):
            kept.append(f"bootstrap of rows for {' and '.join(whole)}")
        return [*left, *dict.fromkeys(told), *kept]

    def compute(self, results: Path, effort: Effort, tell: Tell) -> None:
        """Train what is missing: minutes on a GPU, hours or days on a CPU."""
        compute(results, (*self.plans, *self.beyond), effort, tell)


def _rows_kept(there: Mapping[Place, Mapping[str, Any]], results: Path) -> list[str]:
    """Of how many folds no seed keeps its answers, so that the bootstrap of rows lacks them."""
    tested = {place: run for place, run in there.items() if run.get("at_best") is not None}
    seeds = {
        place: found([replace(place, tag=_seeded(place, seed)) for seed in SEEDS], results)
        for place, run in tested.items()
        if not keeps_rows(run)
    }
    kept = len(tested) - len(seeds)
    kept += sum(any(map(keeps_rows, further.values())) for further in seeds.values())
    if kept == len(tested):
        return []
    return [f"bootstrap of rows ({kept} of {len(tested)} folds)"]


def _seeded(place: Place, seed: str) -> str:
    return "-".join(filter(None, (place.tag, seed)))


def compute(results: Path, names: Sequence[str], effort: Effort, tell: Tell) -> None:
    """Run these plans, and before them those that they need, on this machine."""
    changed = toy if effort is Effort.QUICK else lambda whole: whole
    ordered = dict.fromkeys(need for name in names for need in (*needed(name), name))
    execute(list(ordered), results, Machine.here(), tell, changed=changed)
