"""Figure Cifar100: training, validation and test accuracy on CIFAR-100 with noise 0.5."""

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from bayesdiv.paper import images_results
from bayesdiv.paper.images import CONTENDERS
from bayesdiv.paper.images_results import THREE, accuracy_on_test, difference
from bayesdiv.paper.item import Effort, Outcome, Tell, Verdict
from bayesdiv.paper.training_curves import (
    COLOURS,
    Curves,
    demand,
    dress,
    finished,
    line,
    mean_best,
    note,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLAN = "cifar100"
CURVES = Curves("CIFAR-100, noise 0.5", "cifar100", THREE, 0.5)
PUBLISHED = {"kl": 0.2281, "js_g": 0.2451, "js_a": 0.2402}
"""Test accuracy."""


def missing(results: Path) -> list[str]:
    """Which runs have no file yet."""
    return images_results.absent(images_results.plan(PLAN).places(), results)


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """Train what is missing: minutes on a GPU, days on a CPU."""
    images_results.compute(results, [PLAN], effort, tell)


def draw(results: Path, out: Path) -> list[Path]:
    """Training and validation over epochs, and test accuracy beside the published."""
    told = CURVES.found(results)
    demand(bool(told), results)
    figure, (left, middle, right) = panels(3, (14, 4.8))
    for axes, key, title in (
        (left, "train_accuracy", "Training"),
        (middle, "validation_accuracy", "Validation"),
    ):
        for name, runs in told.items():
            line(axes, name, runs, key, bold=True)
        axes.set(xlabel="epoch", ylabel="accuracy", title=title)
        dress(axes)
    _bars(right, {name: mean(map(accuracy_on_test, runs)) for name, runs in told.items()})
    absent = [CONTENDERS[name].title for name in THREE if name not in told]
    if absent:
        note(left, f"not computed yet: {', '.join(absent)}")
    return finished(figure, CURVES.title, results, out / "cifar100.png")


def _bars(axes: "Axes", ours: dict[str, float]) -> None:
    for place, (name, theirs) in enumerate(PUBLISHED.items()):
        if name in ours:
            axes.bar(place - 0.2, ours[name], 0.36, color=COLOURS[name])
            axes.text(place - 0.2, ours[name], f"{ours[name]:.1%}", ha="center", va="bottom")
        axes.bar(place + 0.2, theirs, 0.36, color="white", edgecolor=COLOURS[name], hatch="//")
        axes.text(place + 0.2, theirs, f"{theirs:.1%}", ha="center", va="bottom")
    axes.bar([0], [0], color="#555555", label="ours")
    axes.bar([0], [0], color="white", edgecolor="#555555", hatch="//", label="published")
    axes.set_xticks(range(len(PUBLISHED)), labels=[CONTENDERS[name].title for name in PUBLISHED])
    axes.set(ylabel="accuracy", title="Test")
    axes.margins(y=0.12)
    dress(axes)


def verdict(results: Path) -> Verdict:
    """Whether both JS losses are above KL in test accuracy by more than its standard error."""
    told = CURVES.found(results)
    gains = {
        name: difference(told.get(name, []), told.get("kl", []), accuracy_on_test)
        for name in ("js_g", "js_a")
    }
    known = {name: gain for name, gain in gains.items() if gain is not None}
    if len(known) < len(gains):
        return Verdict(Outcome.OPEN, "there are no runs of KL and both JS losses yet")
    outcome = (Outcome.NOT, Outcome.PARTLY, Outcome.REPRODUCED)[
        sum(gain.ahead for gain in known.values())
    ]
    said = ", ".join(
        f"{CONTENDERS[name].title} {mean(map(accuracy_on_test, told[name])):.2%} "
        f"({100 * gain.mean:+.2f} ± {100 * gain.error:.2f} points)"
        for name, gain in known.items()
    )
    kl, validated = mean(map(accuracy_on_test, told["kl"])), mean_best(told["kl"])
    return Verdict(
        outcome,
        f"test accuracy KL {kl:.2%} (validation {validated:.2%}), {said}; published 22.81, 24.51 "
        "and 24.02 % from pretrained weights, ours begins from random ones",
    )
