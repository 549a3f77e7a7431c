"""Runs of image experiments compared: what is measured of a run, and by how much one is ahead.

A run that diverged has the worst value there is, never none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from reproduction.contenders import title
from reproduction.images.results import BY_PATIENT, ran
from reproduction.intervals import CONFIDENCE, Interval, row_variance, student
from reproduction.verdict import Comparison

Run = Mapping[str, Any]


class Measure(NamedTuple):
    """What is read of a run.

    Args:
        read: from a run that ended to a number.
        worst: the number of a run that diverged.
        rows: the entry with an answer per test row, where the number is their mean or 1 less that.
        at: where that entry is, at the best epoch or at the end.
        worst_below: the number of a run that diverged where the claim is that it lies below; None
            is `worst`.
    """

    read: Callable[[Run], float]
    worst: float
    rows: str | None = None
    at: str = "at_best"
    worst_below: float | None = None

    def of(self, run: Run) -> float:
        """The number, or the worst one."""
        return self.worst if run["diverged"] or run["at_best"] is None else self.read(run)

    @property
    def below(self) -> "Measure":
        """The same of the runs that others are claimed to be above."""
        return self if self.worst_below is None else self._replace(worst=self.worst_below)


def _on_test(key: str) -> Callable[[Run], float]:
    """At the posterior mean of the best epoch by validation, as in the paper."""
    return lambda run: float(run["at_best"]["test"]["mean"][key])


def _missed(run: Run) -> float:
    missed, right = run["at_best"]["test"]["mean"]["confusion"][1]
    return float(missed / max(missed + right, 1))


ACCURACY = Measure(_on_test("accuracy"), 0.0, "right")
AREA = Measure(_on_test("auc"), 0.0)
MISSED = Measure(_missed, 1.0, "found")
"""The share of positive patches that are called negative."""
# A network that gives the right class a probability of 1e-7, the guard of the authors' program.
NLL = Measure(_on_test("nll"), 16.1)
ECE = Measure(_on_test("ece"), 1.0)
# Claimed to be higher for JS-G than for KL: the lowest is the worst for JS-G, not for KL.
TRAINING_NLL = Measure(
    lambda run: float(run["history"][run["best_epoch"] - 1]["nll"]), 0.0, worst_below=NLL.worst
)
FINAL_ACCURACY = Measure(
    lambda run: float(run["at_end"]["test"]["mean"]["accuracy"]), 0.0, "right", "at_end"
)
FINAL_GAP = Measure(lambda run: float(run["at_end"]["gap"]), 1.0)
"""Training less validation accuracy after the last epoch."""


def by_fold(runs: Iterable[Run], measure: Measure) -> dict[int, float]:
    """The value of each fold, the mean over its seeds."""
    found: dict[int, list[float]] = {}
    for run in runs:
        found.setdefault(run["fold"], []).append(measure.of(run))
    return {fold: fmean(values) for fold, values in found.items()}


def average(runs: Iterable[Run], measure: Measure) -> float:
    """The mean over folds."""
    return fmean(by_fold(runs, measure).values())


def ahead(
    ones: Sequence[Run],
    others: Sequence[Run],
    measure: Measure = ACCURACY,
    *,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """How far the first are above the second, fold by fold; None without a common fold."""
    one, other = by_fold(ones, measure), by_fold(others, measure.below)
    shared = [fold for fold in one if fold in other]
    if not shared:
        return None
    rows = of_rows(ones, others, shared, measure)
    return student([one[f] - other[f] for f in shared], confidence=confidence, rows=rows)


def reduction(ones: Sequence[Run], others: Sequence[Run], measure: Measure) -> Interval | None:
    """How far the first are below the second, as a share of the second's mean."""
    found = ahead(others, ones, measure)
    base = average(others, measure) if others else 0.0
    return None if found is None or not base else found.times(1 / base)


def of_rows(
    ones: Sequence[Run], others: Sequence[Run], folds: Sequence[int], measure: Measure
) -> float:
    """The variance of drawing the shared test rows again; 0 where none are shared or kept.

    It is estimated from those folds of which both sides keep answers. If only some seeds of a fold
    keep them, those stand for all, which makes the variance too large rather than too small.
    """
    if any(BY_PATIENT in run.get("tag", "") for run in ones):
        return 0.0
    one, other = (_kept(side, measure) for side in (ones, others))
    differences = [one[fold] - other[fold] for fold in folds if fold in one and fold in other]
    return row_variance(np.stack(differences), len(folds)) if differences else 0.0


Answers = np.ndarray[tuple[int], np.dtype[np.float64]]


def _kept(runs: Iterable[Run], measure: Measure) -> dict[int, Answers]:
    """The answers of each fold, the mean over those of its seeds that keep them."""
    found: dict[int, list[Answers]] = {}
    for run in runs:
        own = (
            None
            if run["diverged"] or measure.rows is None
            else answers(run, measure.rows, measure.at)
        )
        if own is not None:
            found.setdefault(run["fold"], []).append(own)
    return {fold: np.mean(every, axis=0) for fold, every in found.items()}


def answers(run: Run, key: str, at: str = "at_best") -> Answers | None:
    """One number per test row, from the bits that a result keeps; None where it keeps none."""
    told = run.get(at)
    if told is None or key not in told["test"]["mean"]:
        return None
    told = told["test"]["mean"]
    rows = sum(told["confusion"][1]) if key == MISSED.rows else run["sizes"]["test"]
    packed = np.frombuffer(bytes.fromhex(told[key]), dtype=np.uint8)
    return np.unpackbits(packed, count=rows).astype(np.float64)


def over_kl(
    told: Mapping[str, Sequence[Run]],
    published: Mapping[str, float | None],
    where: str = "",
    *,
    measure: Measure = ACCURACY,
    confidence: float = CONFIDENCE,
) -> list[Comparison]:
    """Each named loss above KL in a measure, where both have runs."""
    found = []
    for name, theirs in published.items():
        gained = ahead(told.get(name, ()), told.get("kl", ()), measure, confidence=confidence)
        if gained is not None:
            said = f"{title(name)} over KL{where}"
            found.append(Comparison(said, gained, theirs, confidence=confidence))
    return found


def everyone(
    results: Path,
    experiment: str,
    names: Sequence[str],
    noise: float | None = None,
    tag: str = "",
) -> dict[str, list[dict[str, Any]]]:
    """All runs of some contenders, those that diverged too, where there are any."""
    every = {name: ran(results, experiment, name, noise, tag) for name in names}
    return {name: runs for name, runs in every.items() if runs}
