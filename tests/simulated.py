"""Results that no network was trained for: worlds in which it is known what a verdict must be.

A world maps where a run stands (experiment, contender, fold, noise, tag) to what is measured of it.
`plant` puts a world in the place of the files that the items read.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from reproduction.images import comparing, pretrained_start, time_per_epoch, tuned_cifar10
from reproduction.images.plans import read_settings
from reproduction.images.protocol import SEARCHES, Setting
from reproduction.images.running import Requirement
from reproduction.images.searching import candidates
from reproduction.published import NLL, RMSE
from reproduction.regression import results as regression_results

FOLDS = 5
SPREADS = {
    "accuracy": 0.005,
    "final": 0.005,
    "validation": 0.005,
    "gap": 0.015,
    "auc": 0.008,
    "missed": 0.04,
    "nll": 0.015,
    "ece": 0.008,
    "training_nll": 0.02,
}
"""Standard deviations of a run, about those of the committed results."""
BASE = {
    "accuracy": 0.5,
    "final": 0.5,
    "validation": 0.5,
    "gap": 0.3,
    "auc": 0.88,
    "missed": 0.35,
    "nll": 0.4,
    "ece": 0.1,
    "training_nll": 0.35,
}


@dataclass(frozen=True)
class Where:
    experiment: str
    contender: str
    fold: int
    noise: float | None
    tag: str


@dataclass
class World:
    """Means of what is measured; how runs scatter about them; what a search found; table values.

    Args:
        means: from where a run stands to means that differ from `BASE`.
        scale: of the scatter, in the unit of `SPREADS`.
        rng: of the scatter.
        diverged: whether a run diverged.
        seconds: per epoch, by contender.
        settings: what a search found.
        columns: from (data, contender, key) to the values of 20 splits.
        rows: how many test rows are answered, row by row, the same rows in every fold; 0 is none.
        kept: in how many folds the answers are kept.
    """

    means: Callable[[Where], dict[str, float]]
    scale: float
    rng: np.random.Generator
    diverged: Callable[[Where], bool] = lambda where: False
    seconds: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    columns: Callable[[str, str, str], list[float | None]] | None = None
    rows: int = 0
    kept: int = FOLDS
    _suits: dict[tuple[Any, ...], np.ndarray] = field(default_factory=dict)

    def run(self, where: Where) -> dict[str, Any]:
        shared = np.random.default_rng([where.fold, int(100 * (where.noise or 0))])
        values = {}
        for key, mean in (BASE | self.means(where)).items():
            noise = shared.normal() + self.rng.normal()
            values[key] = mean + self.scale * SPREADS[key] * noise
        told = as_run(where, values, self.diverged(where))
        if self.rows:
            self._answer(told, where, values)
        return told

    def _answer(self, told: dict[str, Any], where: Where, values: dict[str, float]) -> None:
        """Answer every test row; some rows suit a contender, in all folds alike."""
        key = (where.experiment, where.contender, where.noise, where.tag)
        if key not in self._suits:
            self._suits[key] = 0.25 * self.rng.normal(size=self.rows)
        best, final = told["at_best"]["test"]["mean"], told["at_end"]["test"]["mean"]
        told["sizes"]["test"] = self.rows
        for mean, name, share in (
            (best, "right", values["accuracy"]),
            (best, "found", 1 - values["missed"]),
            (final, "right", values["final"]),
        ):
            bits = self.rng.random(self.rows) < share + self._suits[key]
            if name == "found":
                found = int(bits.sum())
                mean["confusion"] = [[1, 0], [self.rows - found, found]]
            else:
                mean["accuracy"] = float(bits.mean())
            if where.fold <= self.kept:
                mean[name] = np.packbits(bits).tobytes().hex()


def as_run(where: Where, values: dict[str, float], diverged: bool) -> dict[str, Any]:
    missed = round(1_000_000 * values["missed"])
    mean = {key: values[key] for key in ("accuracy", "auc", "nll", "ece")}
    mean |= dict.fromkeys(("missed", "missed_equal"), values["missed"])
    mean["confusion"] = [[1, 0], [missed, 1_000_000 - missed]]
    validation = {"mean": {"accuracy": values["validation"]}}
    best = {"epoch": 1, "divergence": 1.0, "validation": validation, "test": {"mean": mean}}
    final = {"mean": {"accuracy": values["final"]}}
    alpha = 0.3 if "js" in where.contender else None
    return {
        "fold": where.fold,
        "tag": where.tag,
        "noise": where.noise,
        "diverged": diverged,
        "best_epoch": 1,
        "at_best": best,
        "at_end": {"validation": validation, "test": final, "gap": values["gap"]},
        "history": [{"nll": values["training_nll"]}],
        "weights": 1,
        "sizes": {"train": 3, "validation": 1, "test": 1},
        "setting": {"contender": where.contender, "alpha": alpha, "strength": 1.0, "start": 0.1},
    }


FINE_TUNED = {"plain": "deterministic", "all_kl": "kl", "all_jsa": "js_a", "all_jsg": "js_g"}
"""Ways to fine-tune, and the loss that each stands for."""


def plant(world: World, monkeypatch) -> None:
    def ran(results, experiment, contender, noise=None, tag=""):
        places = (Where(experiment, contender, fold, noise, tag) for fold in range(1, FOLDS + 1))
        return [world.run(place) for place in places]

    def fine_tuned(results):
        return {way: ran(results, "histopathology", name) for way, name in FINE_TUNED.items()}

    monkeypatch.setattr(comparing, "ran", ran)
    monkeypatch.setattr(pretrained_start, "told", fine_tuned)
    monkeypatch.setattr(pretrained_start.Needs, "lacks", lambda self, results: [])
    monkeypatch.setattr(Requirement, "lacks", lambda self, results: [])
    monkeypatch.setattr(time_per_epoch, "_told", lambda results: _timed(world))
    monkeypatch.setattr(tuned_cifar10, "tuned", lambda results, experiment: world.settings)
    monkeypatch.setattr(
        tuned_cifar10, "searched", lambda results, experiment: {n: [{}] for n in world.settings}
    )
    if world.columns is not None:
        monkeypatch.setattr(regression_results, "found", lambda results: _tables(world))


def _timed(world: World) -> dict[str, Any]:
    return {
        name: {
            "history": [
                {"seconds": seconds * (1 + world.scale * 0.02 * world.rng.normal())}
                for _ in range(6)
            ],
            "seconds_per_epoch": seconds,
            "hardware": "none",
        }
        for name, seconds in world.seconds.items()
    }


CONTENDERS = ("kl", "js_g", "js_a", "lambda_kl")


def _tables(world: World) -> dict[str, dict[str, dict[str, Any]]]:
    assert world.columns is not None
    return {
        data: {
            name: {key: world.columns(data, name, key) for key in ("rmse", "nll")}
            for name in CONTENDERS
        }
        for data in (*RMSE, "building", "wine_red")
    }


def null(seed: int, *, level: bool = True) -> World:
    """No loss differs from another, and a search finds whatever it happens to.

    All folds are tested on the same rows; 1 to 5 of them keep their answers.

    Args:
        seed: of everything.
        level: whether the JS losses are as good and as fast as KL; else they are worse by the
            margin within which a rule calls them level.
    """
    rng = np.random.default_rng(seed)
    splits = rng.normal(size=20)

    def columns(data, name, key):
        worse = 0.0 if level or not name.startswith("js") else {"rmse": 0.3, "nll": 0.15}[key]
        return (3 + worse + 0.6 * splits + 0.2 * rng.normal(size=20)).tolist()

    settings = {}
    for name in SEARCHES:
        tried = list(candidates(None, name, count=33).values())[1:]
        settings[name] = tried[rng.integers(len(tried))]
    seconds = dict.fromkeys(("kl", "js_g", "js_a"), 10.0)
    seconds["js_g"] *= 1 if level else 1.1
    found = {"seconds": seconds, "settings": settings, "columns": columns}
    return World(lambda where: {}, 1.0, rng, rows=500, kept=1 + seed % FOLDS, **found)


SWAPPED = {"kl": "js_a", "js_a": "kl", "js_g": "kl", "deterministic": "js_a"}
SWAPPED |= {"unmodified_js_a": "js_a", "unmodified_js_g": "js_g", "authors_kl": "js_a"}


def published(seed: int = 0) -> World:
    """The paper's own figures, with little scatter."""
    rng = np.random.default_rng(seed)
    theirs = {row["noise"]: row for row in read_settings("paper_cifar10")}[0.9]
    settings = {
        name: Setting(name, **given)
        for name, given in theirs.items()
        if name in ("kl", "js_g", "js_a")
    }
    seconds = {"kl": 1140.0, "js_g": 1168.0, "js_a": 1856.0}
    return World(
        _published, 0.05, rng, seconds=seconds, settings=settings, columns=_published_column
    )


def swapped(seed: int = 0) -> World:
    """The paper's figures with KL in the place of JS and JS in that of KL."""
    world = published(seed)

    def means(where: Where) -> dict[str, float]:
        if "modified" in where.contender or where.tag.startswith("alpha"):
            other = where.contender.removeprefix("unmodified_")
            own = other if where.contender != other else f"unmodified_{other}"
        else:
            own = SWAPPED.get(where.contender, where.contender)
        return _published(replace(where, contender=own))

    def columns(data, name, key):  # the paper's rows differ in who is ahead: here KL is on all
        values = _published_column(data, "kl", key)
        return [1.3 * value for value in values] if name.startswith("js") else values

    settings = dict(world.settings, js_a=replace(world.settings["js_a"], strength=0.1))
    seconds = {"kl": 1856.0, "js_g": 1140.0, "js_a": 1140.0}
    return replace(world, means=means, columns=columns, settings=settings, seconds=seconds)


def all_diverged(seed: int = 0) -> World:
    """The paper's figures, but every run of a JS loss diverged."""
    world = published(seed)

    def columns(data, name, key):
        values = _published_column(data, name, key)
        return [None] * len(values) if name.startswith("js") else values

    return replace(world, diverged=lambda where: where.contender.startswith("js"), columns=columns)


def _published(where: Where) -> dict[str, float]:
    if where.experiment.startswith("cifar100"):
        known = {"kl": 0.2281, "js_g": 0.2451, "js_a": 0.2402}
        gap = {"kl": 0.3, "js_a": 0.2, "js_g": 0.4}
        return {
            "accuracy": known.get(where.contender, 0.23),
            "gap": gap.get(where.contender, 0.3),
        }
    if where.experiment.startswith("histopathology"):
        return _histopathology(where.contender)
    return _cifar10(where.contender, where.noise or 0.9)


def _cifar10(contender: str, noise: float) -> dict[str, float]:
    name = contender.removeprefix("authors_")
    lead = {"kl": 0.0, "lambda_kl": 0.0040, "js_g": 0.0206, "js_a": 0.0206}.get(name, -0.05)
    final = {"kl": 0.05, "lambda_kl": 0.055, "js_g": 0.08, "js_a": 0.08}.get(name, 0.0)
    kept = {"kl": 0.37, "lambda_kl": 0.37, "js_g": 0.14, "js_a": 0.14}.get(name, 1.0)
    return {
        "accuracy": 0.3972 + lead * noise / 0.9,
        "validation": 0.3972 + lead,
        "final": 0.33 + final,
        "gap": 0.6 * kept,
    }


def _histopathology(name: str) -> dict[str, float]:
    base = {"kl": 0.0, "lambda_kl": 0.005, "js_g": 0.02, "js_a": 0.03}
    base |= {"unmodified_js_g": 0.0, "unmodified_js_a": 0.0}
    lead = base.get(name, -0.01)
    fewer = {"js_g": 0.117, "js_a": 0.128}.get(name, 0.0)
    return {
        "accuracy": 0.85 + lead,
        "auc": 0.9 + lead,
        "missed": 0.35 * (1 - fewer),
        "nll": {"js_g": 0.0706, "js_a": 0.0689}.get(name, 0.0810),
        "ece": {"js_g": 0.0158, "js_a": 0.0091}.get(name, 0.0323),
        "training_nll": {"js_g": 0.39, "js_a": 0.38}.get(name, 0.35),
        "gap": {"js_g": 0.1, "js_a": 0.1}.get(name, 0.2),
    }


def _published_column(data: str, name: str, key: str) -> list[float | None]:
    """20 splits with the published mean and spread; a split is as hard for every loss."""
    table = {"rmse": RMSE, "nll": NLL}[key]
    if data not in table:
        return [1.0] * 20
    given = table[data][name if name in table[data] else "kl"]
    z = stats.norm.ppf((np.arange(20) + 0.5) / 20)
    return (given.mean + given.spread * z / z.std(ddof=1)).tolist()
