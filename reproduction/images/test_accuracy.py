"""Test accuracy on CIFAR-10 against the noise, over folds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.contenders import JS, THREE, title
from reproduction.images.comparing import ACCURACY, Run, ahead, by_fold, everyone, of_rows, over_kl
from reproduction.images.drawing import (
    COLOURS,
    STYLES,
    boxes,
    counted,
    demand,
    dress,
    finished,
    panels,
)
from reproduction.images.plans import NOISE, NOISES
from reproduction.images.results import accuracy_on_test, folds
from reproduction.images.running import Requirement
from reproduction.images.training_curves import GAIN
from reproduction.intervals import Interval, student
from reproduction.verdict import Comparison, Verdict, judged

SHOWN = (*THREE, "lambda_kl", "deterministic")
NEEDS = Requirement(("cifar10-noise",), THREE)


def draw(results: Path, out: Path) -> list[Path]:
    """A box for each loss at each noise level, and the difference to KL beside it."""
    told = _drawn(results)
    demand(bool(told), results)
    figure, (left, right) = panels(2, (13, 5.2))
    boxes(left, {_named(noise, each): _scores(each) for noise, each in told.items()})
    left.set(xlabel="noise (standard deviation)", ylabel="test accuracy", title="Test accuracy")
    for name in JS:
        gains = {n: g for n, each in told.items() if (g := _gain(each, name)) is not None}
        shown = {noise: gain for noise, gain in gains.items() if gain.n > 1}
        aside = -0.006 if name == "js_g" else 0.006  # or one would hide the other
        right.errorbar(
            [noise + aside for noise in shown],
            [100 * gain.mean for gain in shown.values()],
            [100 * (gain.high - gain.mean) for gain in shown.values()],
            color=COLOURS[name],
            ls=STYLES[name],
            marker="o",
            capsize=3,
            lw=2,
        )
    right.axhline(0, color=COLOURS["kl"], lw=1.5)
    right.set_xticks(list(told))
    right.set(
        xlabel="noise (standard deviation)",
        ylabel="points above KL",
        title="Difference to KL, 95 % intervals",
    )
    dress(right)
    heading = "CIFAR-10 with noise: minimum, quartiles, median and maximum over folds"
    return finished(figure, heading, results, out / "test_accuracy.svg")


def verdict(results: Path) -> Verdict:
    """Whether both JS losses are ahead of KL at every noise level, and by more with more noise.

    The growth is the slope of the difference over the noise levels, fold by fold. The paper gives a
    figure only at noise 0.9, which is compared with JS-A. A level that was not run is undecided.
    """
    told = {n: everyone(results, "cifar10", (*THREE, "lambda_kl"), n) for n in NOISES}
    growth = [one for name in JS if (one := _growth(told, name)) is not None]
    claims, beside = [], []
    for noise in reversed(NOISES):
        size = GAIN if noise == NOISE else None
        claims += over_kl(told[noise], {"js_g": None, "js_a": size}, f" at noise {noise:g}")
        tuned = over_kl(told[noise], {"lambda_kl": None}, f" at noise {noise:g}")
        beside += [one.text for one in [*tuned, *_over_lambda_kl(told[noise], noise)]]
    wanted = len(JS) * (len(NOISES) + 1)
    every = [*claims, *growth]
    return judged(every, wanted=wanted, beside=beside, missing=NEEDS.lacks(results))


def _over_lambda_kl(told: Mapping[str, Sequence[Run]], noise: float) -> list[Comparison]:
    found = {name: ahead(told.get(name, ()), told.get("lambda_kl", ())) for name in JS}
    return [
        Comparison(f"{title(name)} over λKL at noise {noise:g}", gained)
        for name, gained in found.items()
        if gained is not None
    ]


def _growth(told: Mapping[float, Mapping[str, Sequence[Run]]], name: str) -> Comparison | None:
    """How much the lead over KL grows for 0.1 more noise; None with a single level.

    A slope is a weighted sum of leads. The test rows of all levels show the same images, so the
    variance of drawing them again is at most about that of a sum of independent leads.
    """
    leads: dict[int, dict[float, float]] = {}
    for noise, each in told.items():
        ones, others = (by_fold(each.get(n, ()), ACCURACY) for n in (name, "kl"))
        for fold in ones.keys() & others.keys():
            leads.setdefault(fold, {})[noise] = ones[fold] - others[fold]
    known = {fold: lead for fold, lead in leads.items() if len(lead) > 1}
    if not known:
        return None
    weights = {fold: _weights(list(lead)) for fold, lead in known.items()}
    slopes = [
        sum(weights[fold][noise] * gained for noise, gained in lead.items())
        for fold, lead in known.items()
    ]
    rows = 0.0
    for noise, each in told.items():
        own = [fold for fold in known if noise in weights[fold]]
        if own:
            share = sum(weights[fold][noise] for fold in own) / len(known)
            rows += share**2 * of_rows(each[name], each["kl"], own, ACCURACY)
    said = f"growth of the lead of {title(name)} for 0.1 more noise"
    return Comparison(said, student(slopes, rows=rows))


def _weights(noises: Sequence[float]) -> dict[float, float]:
    """Of each level in the slope of a line through all of them, for 0.1 more noise."""
    apart = np.asarray(noises) - np.mean(noises)
    return dict(zip(noises, (0.1 * apart / (apart**2).sum()).tolist(), strict=True))


def _drawn(results: Path) -> dict[float, dict[str, list[dict[str, Any]]]]:
    """Runs by noise level and contender, where there is any."""
    every = {n: {name: folds(results, "cifar10", name, n) for name in SHOWN} for n in NOISES}
    return {noise: each for noise, each in every.items() if any(each.values())}


def _named(noise: float, each: Mapping[str, Sequence[Run]]) -> str:
    """The noise level, and under it how many folds there are."""
    return f"{noise:g}\n{counted(max(map(len, each.values())))}"


def _scores(each: Mapping[str, Sequence[Run]]) -> dict[str, list[float]]:
    return {name: [accuracy_on_test(told) for told in runs] for name, runs in each.items() if runs}


def _gain(each: Mapping[str, Sequence[Run]], name: str) -> Interval | None:
    return ahead(each.get(name, ()), each.get("kl", ()))
