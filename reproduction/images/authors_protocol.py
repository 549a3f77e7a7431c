"""Beyond the paper: CIFAR-10 with the authors' settings beside ours.

The authors' program differs from the paper's text, and its settings belong to its own scales; here
they meet the exact formulas. Their protocol is run as far as it is consistent: one prior scale of
0.1 for all layers and losses, start at rho = -10, images in a fixed order, constant learning rate.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from reproduction import tables
from reproduction.images.plans import NOISE, THREE
from reproduction.images.protocol import CONTENDERS
from reproduction.images.results import folds
from reproduction.images.running import Requirement
from reproduction.images.training_curves import PUBLISHED, demand
from reproduction.item import Outcome, Verdict

NEEDS = Requirement(("cifar10-paper", "cifar10-folds", "cifar10-224"), THREE)
missing, compute = NEEDS.missing, NEEDS.compute
AUTHORS, OURS, LARGE = "cifar10-paper", "cifar10", "cifar10-224"
TITLES = {AUTHORS: "authors' protocol", OURS: "ours", LARGE: "ours, 224 px"}
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
            CONTENDERS[name].title,
            *(_cell(told[experiment].get(name), part) for experiment in TITLES for part in PARTS),
            f"{100 * PUBLISHED[name]:.2f}" if name in PUBLISHED else "–",
        ]
        for name in THREE
    ]
    heads = [f"{title}: {part}" for title in TITLES.values() for part in PARTS]
    head = ["divergence", *heads, "published validation"]
    return tables.write(out, "authors_protocol", head, rows, _note(told))


def _told(results: Path, experiment: str) -> dict[str, list[dict[str, Any]]]:
    every = {name: folds(results, experiment, name, NOISE) for name in THREE}
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
    """Whether the authors' settings give the published validation accuracies with exact formulas.

    Reproduced if KL and JS-A both come within two points of theirs at the best epoch, partly if one
    of them does. The paper gives a single figure for "the JS loss", which stands beside JS-A.
    """
    told, ours = _told(results, AUTHORS), _told(results, OURS)
    if any(name not in told for name in THREE):
        return Verdict(Outcome.OPEN, "the authors' settings of KL and both JS losses are not run")
    found = {name: _accuracy(runs, "validation").mean for name, runs in told.items()}
    judged = [name for name in THREE if name in PUBLISHED]
    met = sum(abs(found[name] - PUBLISHED[name]) <= NEAR for name in judged)
    outcome = Outcome.REPRODUCED if met == len(judged) else Outcome.PARTLY if met else Outcome.NOT
    said = ", ".join(_beside(name, found[name], told[name], ours.get(name)) for name in THREE)
    return Verdict(outcome, f"validation accuracy with the authors' settings: {said}")


def _beside(
    name: str,
    value: float,
    runs: Sequence[Mapping[str, Any]],
    ours: Sequence[Mapping[str, Any]] | None,
) -> str:
    """The best epoch, the last one, the published figure and ours."""
    known = []
    ended = [run["at_end"] for run in runs if run["at_end"] is not None]
    if ended:
        last = mean(end["validation"]["mean"]["accuracy"] for end in ended)
        known.append(f"{last:.2%} at the last epoch")
    if name in PUBLISHED:
        known.append(f"published {PUBLISHED[name]:.2%}")
    if ours:
        known.append(f"ours {_accuracy(ours, 'validation').mean:.2%}")
    return f"{CONTENDERS[name].title} {value:.2%}" + (f" ({', '.join(known)})" if known else "")
