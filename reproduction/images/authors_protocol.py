"""Beyond the paper: CIFAR-10 with the authors' settings beside ours.

The authors' program differs from the paper's text, and its settings belong to its own scales; here
they meet the exact formulas. Their protocol is run as far as it is consistent: one prior scale of
0.1 for all layers and losses, start at rho = -10, images in a fixed order, constant learning rate.
Beside it the same with their formulas verbatim, which take standard deviations for variances in KL
and JS-G (`ScaleAsVariance`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, mean
from typing import Any, NamedTuple

from reproduction import tables
from reproduction.contenders import THREE, title
from reproduction.images.comparing import Measure, ahead, by_fold, everyone
from reproduction.images.drawing import demand
from reproduction.images.plans import NOISE
from reproduction.images.results import folds
from reproduction.images.running import Requirement
from reproduction.images.training_curves import PUBLISHED
from reproduction.intervals import Interval, student
from reproduction.verdict import Badge, Comparison, Verdict, inside, judged, together

NEEDS = Requirement(("cifar10-paper", "cifar10-authors"))
AUTHORS, VERBATIM, OURS, LARGE = "cifar10-paper", "cifar10-authors", "cifar10", "cifar10-224"
TITLES = {
    AUTHORS: "authors' protocol",
    VERBATIM: "authors' formulas",
    OURS: "ours",
    LARGE: "ours, 224 px",
}
JUDGED = {AUTHORS: ("kl", "js_a"), VERBATIM: ("authors_kl", "js_a")}
VALIDATION = Measure(lambda run: float(run["at_best"]["validation"]["mean"]["accuracy"]), 0.0)
PARTS = ("validation", "test")
NEAR = 0.02  # within two points of the published validation accuracy counts as met


class Accuracy(NamedTuple):
    """A mean over folds, at the posterior mean and averaged over draws of the weights."""

    mean: float
    averaged: float

    @property
    def text(self) -> str:
        """As the table shows it, in per cent."""
        return f"{100 * self.mean:.2f} / {100 * self.averaged:.2f}"


def draw(results: Path, out: Path) -> list[Path]:
    """A row for each loss; validation and test accuracy of each protocol, and the published one."""
    told = {experiment: _told(results, experiment) for experiment in TITLES}
    demand(any(told.values()), results)
    rows = [
        [
            title(name),
            *(_cell(told[experiment].get(name), part) for experiment in TITLES for part in PARTS),
            f"{100 * PUBLISHED[name]:.2f}" if name in PUBLISHED else "–",
        ]
        for name in THREE
    ]
    heads = [f"{title}: {part}" for title in TITLES.values() for part in PARTS]
    head = ["divergence", *heads, "published validation"]
    return tables.write(out, "authors_protocol", head, rows, _note(told))


def _told(results: Path, experiment: str) -> dict[str, list[dict[str, Any]]]:
    """Runs by loss; those with the authors' formulas stand under the same names."""
    own = {"kl": "authors_kl", "js_g": "authors_js_g"} if experiment == VERBATIM else {}
    every = {name: folds(results, experiment, own.get(name, name), NOISE) for name in THREE}
    return {name: runs for name, runs in every.items() if runs}


def _cell(runs: Sequence[Mapping[str, Any]] | None, part: str) -> str:
    return "–" if not runs else _accuracy(runs, part).text


def _accuracy(runs: Sequence[Mapping[str, Any]], part: str) -> Accuracy:
    """Of the best epoch by validation at the posterior mean."""
    ways = (mean(run["at_best"][part][way]["accuracy"] for run in runs) for way in Accuracy._fields)
    return Accuracy(*ways)


def _note(told: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> str:
    """What was run, as the results say it."""
    said = [
        f"{TITLES[experiment]}: {_in_words(next(iter(each.values())))}"
        for experiment, each in told.items()
        if each
    ]
    return (
        f"CIFAR-10, noise {NOISE:g}: accuracy in per cent at the posterior mean / averaged over "
        f"draws of the weights, best epoch by validation; {'; '.join(said)}. The authors' protocol "
        "also starts at rho = -10 and keeps the order of the images and the learning rate. The "
        'published figure of JS-A is that of "the JS loss".'
    )


def _in_words(runs: Sequence[Mapping[str, Any]]) -> str:
    protocol = runs[0]["protocol"]
    count = f"{len(runs)} folds" if len(runs) > 1 else "1 fold"
    return (
        f"{protocol['pixels']} pixels, {protocol['epochs']} epochs, batches of "
        f"{protocol['batch_size']}, prior {protocol['prior']}, {protocol['test_samples']} draws, "
        f"{count}"
    )


def verdict(results: Path) -> Verdict:
    """Whether the authors' settings give the published accuracies, with exact formulas or theirs.

    The direction: JS-A is ahead of KL in test accuracy. The size: the whole intervals of KL and
    JS-A over folds lie within two points of the published validation accuracies. Both are judged
    for the exact formulas and for those of the authors' program, verbatim.
    """
    claims: list[Comparison] = []
    sizes: list[Badge] = []
    said: list[str] = []
    for experiment, (kl, js) in JUDGED.items():
        told = everyone(results, experiment, (kl, js), NOISE)
        if len(told) < 2:
            continue
        gained = ahead(told[js], told[kl])
        if gained is not None:
            theirs = PUBLISHED["js_a"] - PUBLISHED["kl"]
            claims.append(Comparison(f"JS-A over KL, {TITLES[experiment]}", gained, theirs))
        for name, published in ((kl, PUBLISHED["kl"]), (js, PUBLISHED["js_a"])):
            reached = student(list(by_fold(told[name], VALIDATION).values()))
            sizes.append(inside(reached, published - NEAR, published + NEAR))
            said.append(_beside(experiment, name, reached, published, told[name]))
    verdict = judged(claims, wanted=2, beside=said, missing=NEEDS.lacks(results))
    return replace(verdict, size=together(sizes) if sizes else verdict.size)


def _beside(
    experiment: str,
    name: str,
    reached: Interval,
    published: float,
    runs: Sequence[Mapping[str, Any]],
) -> str:
    """The best epoch, the last one, and the published figure."""
    ended = [run["at_end"] for run in runs if run["at_end"] is not None]
    last = ""
    if ended:
        final = fmean(end["validation"]["mean"]["accuracy"] for end in ended)
        last = f", {final:.2%} at the last epoch"
    return (
        f"{title(name)} validates {reached.mean:.2%} with the {TITLES[experiment]}{last} "
        f"(published {published:.2%})"
    )
