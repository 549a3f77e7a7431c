"""Where the results of the image experiments lie, and what can be read from them.

A run has one file, results/images/EXPERIMENT/CONTENDER[-TAG]/foldK[-noiseS].json, written when it
has finished.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bayesdiv.app import runs
from bayesdiv.app.data.images import FOLDS
from reproduction.images.protocol import CONTENDERS, Setting

FOLDER = "images"
BY_PATIENT = "by-patient"
"""The tag of runs that are tested on patients of whom the network has seen no patch."""


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
    # Rounded, so that a difference of exactly one error is not ahead by the last digit; adding 0
    # turns -0 into 0.
    return Difference(round(statistics.mean(each), 9) + 0.0, round(error, 9), len(each))


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
