"""Plans of the image experiments, where their results lie, and what a search found.

A run has one file, results/images/EXPERIMENT/CONTENDER[-TAG]/foldK[-noiseS].json, written when it
has finished: a plan that was stopped goes on with the files that are missing.
"""

import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.quasirandom import SobolEngine

from bayesdiv import runs
from bayesdiv.data import DataError
from bayesdiv.data.images import FOLDS, Images, Parts
from bayesdiv.nets.resnet import small_stem
from bayesdiv.paper.images import (
    CONTENDERS,
    OURS,
    PAPER,
    PAPER_START,
    Execution,
    Protocol,
    Setting,
    run,
    stepped,
)
from bayesdiv.paper.item import Effort, Tell

FOLDER = "images"
BY_PATIENT = "by-patient"
NOISE = 0.9
"""The noise level of the paper's curves, at which settings are searched."""


@dataclass(frozen=True)
class Place:
    """Which run a result is of.

    Examples:
        >>> Place("cifar10", "js_a", fold=2, noise=0.9).path(Path("results")).as_posix()
        'results/images/cifar10/js_a/fold2-noise0.9.json'
    """

    experiment: str
    contender: str
    fold: int
    noise: float | None = None
    tag: str = ""

    def path(self, results: Path) -> Path:
        """The file."""
        named = f"{self.contender}-{self.tag}" if self.tag else self.contender
        noise = "" if self.noise is None else f"-noise{self.noise:g}"
        return results / FOLDER / self.experiment / named / f"fold{self.fold}{noise}.json"

    def __str__(self) -> str:
        tag = f" ({self.tag})" if self.tag else ""
        noise = "" if self.noise is None else f", noise {self.noise:g}"
        return (
            f"{self.experiment}: {CONTENDERS[self.contender].title}{tag}, fold {self.fold}{noise}"
        )


@dataclass(frozen=True)
class Job:
    """One run: its place, its data and all that it needs besides."""

    place: Place
    data: str
    setting: Setting
    protocol: Protocol


# From the folder of results and a contender to its settings, each with a tag for its files.
Settings = Callable[[Path, str], Mapping[str, Setting]]


@dataclass(frozen=True)
class Plan:
    """A list of runs, in the order in which they are worth having.

    Args:
        experiment: whose results these are.
        data: a key of `SETS`.
        contenders: which losses.
        protocol: what they share.
        settings: what each of them runs with.
        folds: which of the five.
        noises: standard deviations; None where none is added.
        splits: tags: none for the paper's random split, `BY_PATIENT` for unseen patients.
        needs: plans that must have been run before.
    """

    experiment: str
    data: str
    contenders: tuple[str, ...]
    protocol: Protocol
    settings: Settings
    folds: tuple[int, ...] = (1,)
    noises: tuple[float | None, ...] = (None,)
    splits: tuple[str, ...] = ("",)
    needs: tuple[str, ...] = ()

    def jobs(self, results: Path) -> list[Job]:
        """All runs; by noise level first, since a process keeps the images of one."""
        settings = {name: self.settings(results, name) for name in self.contenders}
        tags = list(dict.fromkeys(tag for each in settings.values() for tag in each))
        return [
            Job(
                Place(self.experiment, name, fold, noise, "-".join(filter(None, (split, tag)))),
                self.data,
                settings[name][tag],
                self.protocol,
            )
            for noise, split, tag, fold, name in product(
                self.noises, self.splits, tags, self.folds, self.contenders
            )
            if tag in settings[name]
        ]

    def places(self) -> list[Place]:
        """Where the results of runs with one setting each are to lie."""
        every = product(self.noises, self.splits, self.folds, self.contenders)
        return [
            Place(self.experiment, name, fold, noise, split) for noise, split, fold, name in every
        ]


def candidates(results: Path, contender: str, count: int = 5) -> dict[str, Setting]:
    """What a search tries: the first setting of the contender, then points spread evenly.

    Every contender gets as many, so that the budgets are equal.

    Examples:
        >>> list(candidates(Path(), "kl", count=2).values())[0]
        Setting(contender='kl', learning_rate=0.0003, strength=1.0, alpha=None, start=0.02)
    """
    told = CONTENDERS[contender]
    ranges = list(told.searches.items())
    if len(ranges) == 1:
        points = (torch.arange(count - 1).unsqueeze(1).double() + 0.5) / max(count - 1, 1)
    else:
        points = SobolEngine(len(ranges), scramble=True, seed=0).draw(count - 1).double()
    found = {"0": Setting(contender, **told.first)}
    for index, point in enumerate(points.tolist(), start=1):
        values = {
            name: _between(name, *ends, share)
            for (name, ends), share in zip(ranges, point, strict=True)
        }
        fixed = {name: value for name, value in told.first.items() if name not in told.searches}
        found[str(index)] = Setting(contender, **fixed, **values)
    return found


def refined(results: Path, contender: str, count: int = 2) -> dict[str, Setting]:
    """Further tries next to the best so far of the search `cifar10-tuning`.

    Spread over a fifth of each range to either side, on a log scale for all but alpha.
    """
    best = tuned(results, "cifar10-tuning").get(contender)
    if best is None:
        return {}
    ranges = CONTENDERS[contender].searches
    points = SobolEngine(len(ranges), scramble=True, seed=1).draw(count).double().tolist()
    found = {}
    for index, point in enumerate(points, start=1):
        values: dict[str, Any] = {
            name: _between(name, *ends, _near(name, *ends, getattr(best, name), share))
            for (name, ends), share in zip(ranges.items(), point, strict=True)
        }
        found[f"near{index}"] = replace(best, **values)
    return found


def _near(name: str, low: float, high: float, value: float, share: float) -> float:
    """The share of a range that lies near a value."""
    at = math.log(value / low) / math.log(high / low)
    if name == "alpha":
        at = (value - low) / (high - low)
    return min(max(at + 0.4 * (share - 0.5), 0.0), 1.0)


def _between(name: str, low: float, high: float, share: float) -> float:
    """A point of a range, rounded to digits that can be read."""
    if name != "alpha":
        return float(f"{math.exp(math.log(low) + share * math.log(high / low)):.3g}")
    return round(low + share * (high - low), 3)


def chosen(results: Path, contender: str, experiments: tuple[str, ...]) -> dict[str, Setting]:
    """The best setting of the first of these searches that has results of the contender."""
    for experiment in experiments:
        best = tuned(results, experiment)
        if contender in best:
            return {"": best[contender]}
    raise runs.RunError(
        f"{results / FOLDER / experiments[0]} must hold a search of {contender}, got none: run the "
        f"plan {experiments[0]} first"
    )


def published(results: Path, contender: str, name: str, noise: float | None) -> dict[str, Setting]:
    """The paper's setting of a contender."""
    for row in published_settings(name):
        if row.get("noise") == noise:
            return {"": Setting(contender, start=PAPER_START, **row[contender])}
    raise ValueError(f"noise must be one of the paper's table, got {noise}")


def published_settings(name: str) -> list[dict[str, Any]]:
    """The rows of a file of settings in this package, such as paper_cifar10."""
    import yaml  # type: ignore[import-untyped]

    text = resources.files("bayesdiv.paper").joinpath("settings", f"{name}.yaml").read_text()
    rows: list[dict[str, Any]] = yaml.safe_load(text)
    return rows


THREE = ("kl", "js_g", "js_a")
TUNED = ("kl", "lambda_kl", "js_g", "js_a", "deterministic")
ALL = (*TUNED, "unmodified_js_g", "unmodified_js_a")
_HISTOPATHOLOGY = replace(OURS, epochs=30)
_CIFAR100 = replace(OURS, pixels=32, stem=small_stem)
_LARGE = replace(OURS, pixels=224, epochs=8, test_samples=4, evaluation_size=1000)
# At 224 pixels and 50 epochs three losses would take seven minutes of an H200.
_SHORT_PAPER = replace(PAPER, pixels=64, epochs=25)
_TIMED = replace(OURS, pixels=224, batch_size=256, epochs=2, test_samples=0)


def _in_search(protocol: Protocol) -> Protocol:
    """A search reads the accuracy at the mean: many draws would be a third of its time."""
    return replace(protocol, test_samples=2, averaged_every=protocol.epochs)


_FOR_CIFAR10 = partial(chosen, experiments=("cifar10-tuning",))
_FOR_HISTOPATHOLOGY = partial(chosen, experiments=("histopathology-tuning",))
_FOLDS = (1, 2, 3, 4, 5)

PLANS: dict[str, Plan] = {
    "cifar10-tuning": Plan(
        *("cifar10-tuning", "cifar10", TUNED, _in_search(OURS), candidates), noises=(NOISE,)
    ),
    "cifar10-refined": Plan(
        *("cifar10-tuning", "cifar10", TUNED, _in_search(OURS), refined),
        noises=(NOISE,),
        needs=("cifar10-tuning",),
    ),
    "cifar10-folds": Plan(
        *("cifar10", "cifar10", TUNED, OURS, _FOR_CIFAR10),
        folds=(1, 2, 3),
        noises=(NOISE,),
        needs=("cifar10-refined",),
    ),
    "cifar10-noise": Plan(
        *("cifar10", "cifar10", THREE, replace(OURS, test_samples=8), _FOR_CIFAR10),
        folds=(1, 2, 3),
        noises=(NOISE, 0.5, 0.1, 0.7, 0.3),
        needs=("cifar10-folds",),
    ),
    "cifar10-224": Plan(
        *("cifar10-224", "cifar10", (*THREE, "deterministic"), _LARGE, _FOR_CIFAR10),
        noises=(NOISE,),
        needs=("cifar10-refined",),
    ),
    "cifar10-paper": Plan(
        *("cifar10-paper", "cifar10", THREE, _SHORT_PAPER),
        partial(published, name="paper_cifar10", noise=NOISE),
        noises=(NOISE,),
    ),
    "histopathology-tuning": Plan(
        *("histopathology-tuning", "histopathology", ALL, _in_search(_HISTOPATHOLOGY)),
        candidates,
    ),
    "histopathology-folds": Plan(
        *("histopathology", "histopathology", ALL, _HISTOPATHOLOGY, _FOR_HISTOPATHOLOGY),
        folds=_FOLDS,
        needs=("histopathology-tuning",),
    ),
    "histopathology-patients": Plan(
        *("histopathology", "histopathology", (*THREE, "deterministic"), _HISTOPATHOLOGY),
        _FOR_HISTOPATHOLOGY,
        folds=_FOLDS,
        splits=(BY_PATIENT,),
        needs=("histopathology-tuning",),
    ),
    "histopathology-paper": Plan(
        *("histopathology-paper", "histopathology", THREE, replace(_SHORT_PAPER, schedule=stepped)),
        partial(published, name="paper_histopathology", noise=None),
    ),
    "cifar100": Plan(
        *("cifar100", "cifar100", (*THREE, "deterministic"), _CIFAR100, _FOR_CIFAR10),
        noises=(0.5,),
        needs=("cifar10-refined",),
    ),
    "timing": Plan(
        *("timing", "synthetic", (*THREE, "deterministic"), _TIMED, _FOR_HISTOPATHOLOGY),
        needs=("histopathology-tuning",),
    ),
}


def plan(name: str) -> Plan:
    """A plan by its name."""
    if name not in PLANS:
        raise ValueError(f"a plan must be one of {', '.join(PLANS)}, got {name!r}")
    return PLANS[name]


def toy(whole: Plan) -> Plan:
    """The same on handwritten digits with a tiny network: shows that the code runs, in seconds."""
    protocol = replace(
        whole.protocol, pixels=8, stem=small_stem, width=4, batch_size=64, epochs=6, test_samples=4
    )
    searches = whole.experiment.endswith("-tuning")
    return replace(
        whole,
        data="rare_digit" if whole.data in ("histopathology", "synthetic") else "digits",
        protocol=protocol,
        settings=_toy_candidates if searches else whole.settings,
        folds=whole.folds[:2],
        noises=whole.noises[:2],
        splits=whole.splits[:1],
    )


def _toy_candidates(results: Path, contender: str) -> dict[str, Setting]:
    """Two, ten times as fast: so few images make few steps."""
    tried = candidates(results, contender, count=2)
    return {
        tag: replace(setting, learning_rate=float(f"{10 * setting.learning_rate:.3g}"))
        for tag, setting in tried.items()
    }


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


def missing(jobs: Sequence[Job], results: Path) -> list[Job]:
    """The runs that have no result yet."""
    return [job for job in jobs if not job.place.path(results).exists()]


def absent(places: Sequence[Place], results: Path) -> list[str]:
    """The results that are not there, in words."""
    return [str(place) for place in places if not place.path(results).exists()]


def found(places: Sequence[Place], results: Path) -> dict[Place, dict[str, Any]]:
    """Those results that are there."""
    paths = {place: place.path(results) for place in places}
    return {place: runs.read_json(path) for place, path in paths.items() if path.exists()}


def folds(
    results: Path, experiment: str, contender: str, noise: float | None = None, tag: str = ""
) -> list[dict[str, Any]]:
    """The results of a contender in the order of the folds, without those that never trained."""
    places = [Place(experiment, contender, fold, noise, tag) for fold in range(1, FOLDS + 1)]
    return [told for told in found(places, results).values() if told["at_best"] is not None]


class Difference(NamedTuple):
    """How far one contender is above another, as a mean over the folds that both have.

    Args:
        mean: of the differences.
        error: standard error of the mean; for a single fold that of a share of the test images.
        folds: how many.
    """

    mean: float
    error: float
    folds: int

    @property
    def ahead(self) -> bool:
        """Above by more than a standard error."""
        return self.mean > self.error


def difference(
    ones: Sequence[Mapping[str, Any]],
    others: Sequence[Mapping[str, Any]],
    measure: Callable[[Mapping[str, Any]], float],
) -> Difference | None:
    """Fold by fold, `measure` of the first less that of the second; None without a common fold."""
    known = {told["fold"]: told for told in others}
    pairs = [(told, known[told["fold"]]) for told in ones if told["fold"] in known]
    if not pairs:
        return None
    each = [measure(one) - measure(other) for one, other in pairs]
    if len(each) > 1:
        error = statistics.stdev(each) / math.sqrt(len(each))
    else:
        share = min(max(measure(pairs[0][0]), 0.0), 1.0)
        error = math.sqrt(share * (1 - share) / pairs[0][0]["sizes"]["test"])
    # Rounded, so that a difference of exactly one error is not ahead by the last digit.
    return Difference(round(statistics.mean(each), 9), round(error, 9), len(each))


def accuracy_on_test(told: Mapping[str, Any]) -> float:
    """At the posterior mean of the best epoch, as in the paper."""
    return float(told["at_best"]["test"]["mean"]["accuracy"])


def searched(results: Path, experiment: str) -> dict[str, list[dict[str, Any]]]:
    """All results of a search, by contender."""
    tried: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((results / FOLDER / experiment).glob("*/*.json")):
        told = runs.read_json(path)
        tried.setdefault(told["setting"]["contender"], []).append(told)
    return tried


def tuned(results: Path, experiment: str) -> dict[str, Setting]:
    """Each contender's setting with the best validation accuracy; a run that diverged has none."""
    best = {}
    for contender, tried in searched(results, experiment).items():
        ended = [told for told in tried if not told["diverged"]]
        if ended:
            best[contender] = Setting(**max(ended, key=validation_accuracy)["setting"])
    return best


def validation_accuracy(told: Mapping[str, Any]) -> float:
    """The highest of a run, at the posterior mean."""
    return max((line["validation_accuracy"] for line in told["history"]), default=-math.inf)


def _cifar10(folder: Path | None) -> Images:
    from bayesdiv.data import cifar

    return cifar.cifar10(folder)


def _cifar100(folder: Path | None) -> Images:
    from bayesdiv.data import cifar

    return cifar.cifar100(folder)


def _digits(folder: Path | None, rare: int | None = None) -> Images:
    """Handwritten digits of scikit-learn as colour images; `rare` makes one of them a class."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels * 15).to(torch.uint8).reshape(-1, 1, 8, 8)
    y = torch.from_numpy(labels).long()
    classes: tuple[str, ...] = tuple(map(str, range(10)))
    if rare is not None:
        y, classes = (y == rare).long(), ("another", str(rare))
    return Images(images.expand(-1, 3, 8, 8), y, classes, torch.arange(len(y)) % 6, "digits")


def _synthetic(folder: Path | None) -> Images:
    """As many patches as the paper trains on, of noise: what a step costs depends on no image."""
    count = TRAINED + 512
    pixels = torch.empty(count, 3, 50, 50, dtype=torch.uint8).random_(256)
    batch = torch.full((count,), 2)
    batch[:256], batch[256:512] = 0, 1
    return Images(pixels, torch.arange(count) % 2, ("no cancer", "cancer"), batch, "synthetic")


TRAINED = 177_615
"""Patches that the paper trains on: 80 % of 80 % of 277,524."""

_IMAGES: dict[str, Callable[[Path | None], Images]] = {
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "digits": _digits,
    "rare_digit": partial(_digits, rare=8),
    "synthetic": _synthetic,
}
SETS = (*_IMAGES, "histopathology")
TOYS = ("digits", "rare_digit")


@lru_cache(maxsize=1)
def _read(data: str, folder: Path | None) -> Images:
    return _IMAGES[data](folder)


@lru_cache(maxsize=1)
def _images(data: str, noise: float | None, folder: Path | None, device: torch.device) -> Images:
    """Images on the device; with noise as floats, half as long on a GPU."""
    read = _read(data, folder)
    dtype = Execution.of(device).dtype
    if noise is not None:
        return read.noisy(noise, dtype=dtype, device=device)
    return replace(read, images=read.images.to(device), labels=read.labels.to(device))


@lru_cache(maxsize=1)
def _patches(folder: Path | None, device: torch.device) -> Any:
    from bayesdiv.data import histopathology
    from bayesdiv.data.downloads import data_folder

    around = folder or data_folder()
    packed = None if around is None else around / histopathology.CACHE
    if packed is not None and packed.is_file():
        read = histopathology.load_patches(packed)
    else:
        read = histopathology.read_patches(folder)
    return replace(read, images=read.images.to(device), labels=read.labels.to(device))


def parts(job: Job, folder: Path | None, device: torch.device) -> Parts:
    """The data of a run, on the device."""
    if job.data not in SETS:
        raise DataError(f"data must be one of {', '.join(SETS)}, got {job.data!r}")
    if job.data != "histopathology":
        return _images(job.data, job.place.noise, folder, device).fold(job.place.fold)
    from bayesdiv.data import histopathology

    patients = BY_PATIENT in job.place.tag
    split = histopathology.by_patient if patients else histopathology.at_random
    whole: Parts = _patches(folder, device).fold(job.place.fold, by=split)
    return whole


def compute_job(
    job: Job, folder: Path | None, device: torch.device, tell: Tell = lambda line: None
) -> dict[str, Any]:
    """The result of one run."""
    place = job.place
    told = run(parts(job, folder, device), job.setting, job.protocol, seed=place.fold, tell=tell)
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
        """Tell that a run has its result, or failed."""
        del self._running[job]

    def _is_open(self, name: str) -> bool:
        if name not in self._lists:
            return False
        return bool(self._waiting.get(name, True)) or name in self._running.values()


def computed(
    queue: Queue, machine: Machine, tell: Tell = lambda line: None
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Each run with its result, as they finish.

    A run that fails is told and does not stop the others; their names are raised at the end.
    """
    began, failed = time.monotonic(), []
    count = 0
    for job, result in _finished(queue, machine, began, tell):
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


def _finished(
    queue: Queue, machine: Machine, began: float, tell: Tell
) -> Iterator[tuple[Job, dict[str, Any] | Exception]]:
    def following() -> Job | None:
        return queue.take() if time.monotonic() - began < machine.limit else None

    if machine.processes == 1:
        while (job := following()) is not None:
            yield job, _attempt(job, machine, tell)
        return
    spawn = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // machine.processes)
    pool = ProcessPoolExecutor(machine.processes, spawn, torch.set_num_threads, (threads,))
    running: dict[Future[dict[str, Any] | Exception], Job] = {}
    with pool:
        while True:
            # Handed over one by one, so that none begins after the limit.
            while len(running) < machine.processes and (job := following()) is not None:
                running[pool.submit(_attempt, job, machine)] = job
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _attempt(job: Job, machine: Machine, tell: Tell | None = None) -> dict[str, Any] | Exception:
    try:
        return compute_job(job, machine.folder, machine.device, tell or _silent)
    except Exception as error:  # told by `computed`; the other runs go on
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
        tell: called with a line a run.
        changed: what to make of each plan, such as `toy`.
    """
    plans = {name: changed(plan(name)) for name in names}
    for whole in plans.values():
        _check_kind(whole, results)

    def jobs(name: str) -> list[Job]:
        found = missing(plans[name].jobs(results), results)
        tell(f"{name}: {len(found)} runs to do")
        return found

    queue = Queue(
        {name: partial(jobs, name) for name in plans},
        {name: whole.needs for name, whole in plans.items()},
    )
    began = time.monotonic()
    for job, told in computed(queue, machine, tell):
        runs.write_json(job.place.path(results), told)
        tell(f"{job.place} {_in_words(told)}, after {time.monotonic() - began:.0f} s")


def _in_words(told: Mapping[str, Any]) -> str:
    if told["diverged"]:
        return f"diverged in epoch {told['diverged_epoch']}"
    best = told["at_best"]
    if best is None:
        return f"took {told['seconds_per_epoch']:.2f} s an epoch"
    return (
        f"has validation {best['validation']['mean']['accuracy']:.1%}, test "
        f"{best['test']['mean']['accuracy']:.1%} at epoch {told['best_epoch']}, took "
        f"{told['seconds']:.0f} s"
    )


def compute(results: Path, names: Sequence[str], effort: Effort, tell: Tell) -> None:
    """Run these plans, and before them those that they need, on this machine."""
    changed = toy if effort is Effort.QUICK else lambda whole: whole
    ordered = dict.fromkeys(need for name in names for need in (*needed(name), name))
    execute(list(ordered), results, Machine.here(), tell, changed=changed)


def needed(name: str) -> list[str]:
    """The plans that must be run before this one, in their order."""
    before = [each for need in plan(name).needs for each in (*needed(need), need)]
    return list(dict.fromkeys(before))
