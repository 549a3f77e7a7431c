"""Where the results of the image experiments lie, and what can be read from them.

A run has one file, results/images/EXPERIMENT/CONTENDER[-TAG]/foldK[-noiseS].json, written when it
has finished.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from bayesdiv.app import runs
from bayesdiv.app.data.images import FOLDS
from reproduction.contenders import title
from reproduction.images.protocol import Setting

FOLDER = "images"
BY_PATIENT = "by-patient"
"""The tag of runs that are tested on patients of whom the network has seen no patch."""
SEEDS = ("seed2", "seed3")
"""Tags of further runs of a fold, which differ in their seed alone."""


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

    @property
    def seed(self) -> int:
        """Of weights, order and noise: another one for each fold and each further run of it.

        Examples:
            >>> Place("histopathology", "kl", 2).seed, Place("any", "kl", 2, tag="seed3").seed
            (2, 202)
        """
        last = self.tag.rpartition("-")[2]
        return self.fold + (100 * (SEEDS.index(last) + 1) if last in SEEDS else 0)

    def path(self, results: Path) -> Path:
        """The file."""
        named = f"{self.contender}-{self.tag}" if self.tag else self.contender
        noise = "" if self.noise is None else f"-noise{self.noise:g}"
        return results / FOLDER / self.experiment / named / f"fold{self.fold}{noise}.json"

    def __str__(self) -> str:
        tag = f" ({self.tag})" if self.tag else ""
        noise = "" if self.noise is None else f", noise {self.noise:g}"
        return f"{self.experiment}: {title(self.contender)}{tag}, fold {self.fold}{noise}"


def absent(places: Sequence[Place], results: Path) -> list[str]:
    """The results that are not there, in words."""
    return [str(place) for place in places if not place.path(results).exists()]


def found(places: Sequence[Place], results: Path) -> dict[Place, dict[str, Any]]:
    """Those results that are there."""
    paths = {place: place.path(results) for place in places}
    return {place: runs.read_json(path) for place, path in paths.items() if path.exists()}


def ran(
    results: Path, experiment: str, contender: str, noise: float | None = None, tag: str = ""
) -> list[dict[str, Any]]:
    """All results of a contender, by seed and fold; those of runs that diverged too."""
    tags = [tag, *("-".join(filter(None, (tag, seed))) for seed in SEEDS)]
    every = product(tags, range(1, FOLDS + 1))
    places = [Place(experiment, contender, fold, noise, each) for each, fold in every]
    return list(found(places, results).values())


def folds(
    results: Path, experiment: str, contender: str, noise: float | None = None, tag: str = ""
) -> list[dict[str, Any]]:
    """The same without those that never trained: what can be drawn."""
    told = ran(results, experiment, contender, noise, tag)
    return [each for each in told if each["at_best"] is not None]


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
