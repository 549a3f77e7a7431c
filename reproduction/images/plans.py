"""Plans of the image experiments: which runs there are, and with which settings."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.quasirandom import SobolEngine

from bayesdiv.app import runs
from bayesdiv.app.nets.resnet import small_stem
from reproduction.images.protocol import (
    CONTENDERS,
    OURS,
    PAPER,
    PAPER_START,
    Protocol,
    Setting,
    stepped,
)
from reproduction.images.results import BY_PATIENT, FOLDER, Place, tuned

NOISE = 0.9
"""The noise level of the paper's curves, at which settings are searched."""


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
    for row in read_settings(name):
        if row.get("noise") == noise:
            return {"": Setting(contender, start=PAPER_START, **row[contender])}
    raise ValueError(f"noise must be one of the paper's table, got {noise}")


def read_settings(name: str) -> list[dict[str, Any]]:
    """The rows of a file of settings in this package, such as paper_cifar10 or ours_cifar10."""
    import yaml  # type: ignore[import-untyped]

    text = resources.files("reproduction.images").joinpath("settings", f"{name}.yaml").read_text()
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
        *("timing", "synthetic", THREE, _TIMED, _FOR_HISTOPATHOLOGY),
        needs=("histopathology-tuning",),
    ),
}


def plan(name: str) -> Plan:
    """A plan by its name."""
    if name not in PLANS:
        raise ValueError(f"a plan must be one of {', '.join(PLANS)}, got {name!r}")
    return PLANS[name]


def needed(name: str) -> list[str]:
    """The plans that must be run before this one, in their order."""
    before = [each for need in plan(name).needs for each in (*needed(need), need)]
    return list(dict.fromkeys(before))


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
