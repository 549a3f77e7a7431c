"""Plans of the image experiments: which runs there are, and with which settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from bayesdiv.app import runs
from bayesdiv.app.nets.images import small_stem
from reproduction.contenders import THREE
from reproduction.images.protocol import (
    OURS,
    PAPER,
    PAPER_START,
    Protocol,
    Setting,
)
from reproduction.images.results import BY_PATIENT, FOLDER, SEEDS, Place, tuned
from reproduction.images.searching import candidates, refined, wide

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
    """A list of runs, the most useful first.

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

    def expected(self, results: Path) -> list[Place]:
        """Where all results are to lie: those of a search as far as its tries are known by now."""
        if self.experiment.endswith("-tuning"):
            return [job.place for job in self.jobs(results)]
        return self.places()


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
            given = row[contender.removeprefix("authors_")]
            return {"": Setting(contender, start=PAPER_START, **given)}
    raise ValueError(f"noise must be one of the paper's table, got {noise}")


def read_settings(name: str) -> list[dict[str, Any]]:
    """The rows of a file of settings in this package, such as paper_cifar10 or ours_cifar10."""
    import yaml  # type: ignore[import-untyped]

    text = resources.files("reproduction.images").joinpath("settings", f"{name}.yaml").read_text()
    rows: list[dict[str, Any]] = yaml.safe_load(text)
    return rows


TUNED = ("kl", "lambda_kl", "js_g", "js_a", "deterministic")
ALL = (*TUNED, "unmodified_js_g", "unmodified_js_a")
PAIRED = ("js_g", "js_a", "unmodified_js_g", "unmodified_js_a")
NOISES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The paper's noise levels."""
SKEWS = (0.1, 0.3)
"""Where a modified divergence and its unmodified self differ, as they do not at ½."""
_HISTOPATHOLOGY = replace(OURS, epochs=30)
_CIFAR100 = replace(OURS, pixels=32, stem=small_stem)
_LARGE = replace(OURS, pixels=224, epochs=8, test_samples=4, evaluation_size=1000)
_SHORT_PAPER = replace(PAPER, pixels=64, epochs=25)
_TIMED = replace(OURS, pixels=224, batch_size=256, epochs=6, test_samples=0)


def _in_search(protocol: Protocol) -> Protocol:
    """A search reads the accuracy at the mean: many draws would be a third of its time."""
    return replace(protocol, test_samples=2, averaged_every=protocol.epochs)


def _skewed(results: Path, contender: str, skew: float) -> dict[str, Setting]:
    """The chosen setting of the modified divergence with a fixed alpha."""
    (best,) = _FOR_HISTOPATHOLOGY(results, contender.removeprefix("unmodified_")).values()
    return {"": replace(best, contender=contender, alpha=skew)}


_FOR_CIFAR10 = partial(chosen, experiments=("cifar10-tuning",))
_FOR_CIFAR100 = partial(chosen, experiments=("cifar100-tuning",))
_FOR_HISTOPATHOLOGY = partial(chosen, experiments=("histopathology-tuning",))
_PUBLISHED = partial(published, name="paper_cifar10", noise=NOISE)
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
        folds=_FOLDS,
        noises=(NOISE,),
        needs=("cifar10-refined",),
    ),
    "cifar10-noise": Plan(
        *("cifar10", "cifar10", TUNED, replace(OURS, test_samples=8), _FOR_CIFAR10),
        folds=_FOLDS,
        noises=(NOISE, 0.5, 0.1, 0.7, 0.3, 0.2, 0.4, 0.6, 0.8),
        needs=("cifar10-folds",),
    ),
    "cifar10-wide": Plan(
        *("cifar10-wide-tuning", "cifar10", TUNED, _in_search(OURS), partial(wide, count=20)),
        noises=(NOISE,),
    ),
    "cifar10-224": Plan(
        *("cifar10-224", "cifar10", (*THREE, "deterministic"), _LARGE, _FOR_CIFAR10),
        noises=(NOISE,),
        needs=("cifar10-refined",),
    ),
    "cifar10-224-folds": Plan(
        *("cifar10-224-folds", "cifar10", TUNED, replace(_LARGE, epochs=50), _FOR_CIFAR10),
        folds=_FOLDS,
        noises=(NOISE,),
        needs=("cifar10-refined",),
    ),
    "cifar10-paper": Plan(
        *("cifar10-paper", "cifar10", THREE, _SHORT_PAPER, _PUBLISHED),
        folds=_FOLDS,
        noises=(NOISE,),
    ),
    "cifar10-authors": Plan(
        *("cifar10-authors", "cifar10", ("authors_kl", "authors_js_g", "js_a"), _SHORT_PAPER),
        _PUBLISHED,
        folds=_FOLDS,
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
        *("histopathology", "histopathology", TUNED, _HISTOPATHOLOGY, _FOR_HISTOPATHOLOGY),
        folds=_FOLDS,
        splits=(BY_PATIENT,),
        needs=("histopathology-tuning",),
    ),
    "histopathology-seeds": Plan(
        *("histopathology", "histopathology", TUNED, _HISTOPATHOLOGY, _FOR_HISTOPATHOLOGY),
        folds=_FOLDS,
        splits=(*SEEDS, *(f"{BY_PATIENT}-{seed}" for seed in SEEDS)),
        needs=("histopathology-tuning",),
    ),
    "cifar100": Plan(
        *("cifar100", "cifar100", (*THREE, "deterministic"), _CIFAR100, _FOR_CIFAR10),
        noises=(0.5,),
        needs=("cifar10-refined",),
    ),
    "cifar100-tuning": Plan(
        *(
            "cifar100-tuning",
            "cifar100",
            TUNED,
            _in_search(_CIFAR100),
            partial(candidates, count=7),
        ),
        noises=(0.5,),
    ),
    "cifar100-folds": Plan(
        *("cifar100-folds", "cifar100", TUNED, replace(_CIFAR100, epochs=50), _FOR_CIFAR100),
        folds=_FOLDS,
        noises=(0.5,),
        needs=("cifar100-tuning",),
    ),
    "timing": Plan(
        *("time-per-epoch", "synthetic", THREE, _TIMED, _FOR_HISTOPATHOLOGY),
        needs=("histopathology-tuning",),
    ),
} | {
    f"histopathology-alpha{skew:g}": Plan(
        *("histopathology", "histopathology", PAIRED, _HISTOPATHOLOGY),
        partial(_skewed, skew=skew),
        folds=_FOLDS,
        splits=(f"alpha{skew:g}",),
        needs=("histopathology-tuning",),
    )
    for skew in SKEWS
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
