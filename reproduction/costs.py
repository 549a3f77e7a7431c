"""What the missing results would take on one H200, estimated from the runs that are committed.

A run of images takes the median of committed runs on the same data and pixels, as wall time (their
seconds over the runs that shared the card), times the ratio of epochs. A search of the regression
takes at most as many epochs as all its rounds together, each as long as an epoch of the committed
column of the same loss and set: a step of a stack takes about as long whatever its size.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayesdiv.app import runs
from reproduction.algorithms.results import TIMED
from reproduction.algorithms.training import WAYS, Size
from reproduction.images.data import TRAINED
from reproduction.images.plans import PLANS, Plan
from reproduction.images.results import FOLDER, Place
from reproduction.regression import results as regression_results
from reproduction.regression.halving import LOSSES, Search
from reproduction.regression.rows import SETS
from reproduction.regression.training import Protocol

SUPERSEDED = frozenset({"cifar10-224", "cifar100"})
"""Plans whose place a longer one has taken; their results are still shown."""


class Cost(NamedTuple):
    """What a plan lacks.

    Args:
        plan: as `python -m reproduction.running` takes it.
        missing: runs that have no result.
        runs: all runs of the plan.
        seconds: of all runs that are missing; NaN where no committed run is like them.
        basis: what that was estimated from.
    """

    plan: str
    missing: int
    runs: int
    seconds: float
    basis: str


class Known(NamedTuple):
    """A committed run of images: what it was of, and its wall time per epoch."""

    data: str
    pixels: int
    batch_size: int
    seconds: float


def costs(results: Path) -> list[Cost]:
    """Every plan that lacks results, in the order in which verdicts need them most."""
    known, counted = _known(results), set[Place]()
    images = []
    for name, whole in PLANS.items():
        # A run of two plans is counted in the first.
        places = [place for place in whole.expected(results) if place not in counted]
        counted |= {*places}
        cost = _of_images(name, whole, places, results, known)
        images.append(cost._replace(runs=len(whole.expected(results))))
    every = [*images, _of_algorithms(results, known), _of_regression(results)]
    return [cost for cost in every if cost.missing and cost.plan not in SUPERSEDED]


def _known(results: Path) -> list[Known]:
    paths = sorted((results / FOLDER).glob("*/*/*.json"))
    return [_per_epoch(told) for told in map(runs.read_json, paths) if not told["diverged"]]


def _per_epoch(told: dict[str, Any]) -> Known:
    protocol = told["protocol"]
    seconds = told["seconds"] / told.get("processes", 1) / protocol["epochs"]
    return Known(told["data"], protocol["pixels"], protocol["batch_size"], seconds)


def _of_images(
    name: str, whole: Plan, places: Sequence[Place], results: Path, known: Sequence[Known]
) -> Cost:
    gone = sum(not place.path(results).exists() for place in places)
    protocol = whole.protocol
    alike = [one for one in known if (one.data, one.pixels) == (whole.data, protocol.pixels)]
    same = [one for one in alike if one.batch_size == protocol.batch_size] or alike
    if not same:
        return Cost(name, gone, len(places), math.nan, "no committed run is like it")
    each = statistics.median(one.seconds for one in same) * protocol.epochs
    basis = f"{len(same)} runs: {each:.1f} s per run of {protocol.epochs} epochs"
    return Cost(name, gone, len(places), gone * each, basis)


def _of_algorithms(results: Path, known: Sequence[Known]) -> Cost:
    """Steps of a batch of 64 take at most as long as the committed ones of 256 images."""
    size, timed = Size(), [one.seconds for one in known if one.data == "synthetic"]
    gone = int(not (results / TIMED).exists())
    if not timed:
        return Cost("algorithms", gone, 1, math.nan, "no committed run is like it")
    step = statistics.median(timed) / (TRAINED // PLANS["timing"].protocol.batch_size)
    count = len(WAYS) * size.rounds * size.steps
    basis = f"{count} steps of at most {1000 * step:.0f} ms, as in `timing`"
    return Cost("algorithms", gone, 1, count * step, basis)


def _of_regression(results: Path) -> Cost:
    places = {
        (data, loss): regression_results.place(results, data, loss, regression_results.SEARCHED)
        for data in SETS
        for loss in LOSSES
    }
    gone = [key for key, path in places.items() if not path.exists()]
    committed = regression_results.found(results)
    if any(loss not in committed[data] for data, loss in gone):
        return Cost("regression-searched", len(gone), len(places), math.nan, "no committed column")
    search, epochs = Search(), Protocol().epochs
    tried = (len(search.rounds) + 1) * sum(search.lengths) + max(search.lengths)
    seconds = 0.0
    for data, loss in gone:
        told = committed[data][loss]
        programs = 1 if told.get("search") is None else 2  # a search and the final networks
        seconds += told["seconds"] / (programs * epochs) * tried
    basis = f"at most {tried:,} epochs per search, each as long as one of the committed column"
    return Cost("regression-searched", len(gone), len(places), seconds, basis)
