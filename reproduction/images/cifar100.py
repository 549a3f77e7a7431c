"""Figure Cifar100: training, validation and test accuracy on CIFAR-100 with noise 0.5."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from reproduction.images.plans import THREE
from reproduction.images.protocol import CONTENDERS
from reproduction.images.results import accuracy_on_test, difference
from reproduction.images.running import Requirement
from reproduction.images.training_curves import (
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
from reproduction.item import Outcome, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (*THREE, "deterministic")
CURVES = Curves("CIFAR-100, noise 0.5", "cifar100", SHOWN, 0.5)
PUBLISHED = {"kl": 0.2281, "js_g": 0.2451, "js_a": 0.2402}
"""Test accuracy; the paper has no deterministic network here."""
NEEDS = Requirement(("cifar100",), SHOWN)
missing, compute = NEEDS.missing, NEEDS.compute


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
    _bars(right, told)
    absent = [CONTENDERS[name].title for name in SHOWN if name not in told]
    if absent:
        note(left, f"not computed yet: {', '.join(absent)}")
    return finished(figure, CURVES.title, results, out / "cifar100.png")


def _bars(axes: "Axes", told: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """At the best epoch, at the last one, and published where it is."""
    for place, name in enumerate(SHOWN):
        runs, colour = told.get(name, []), COLOURS[name]
        looks: list[tuple[float | None, dict[str, Any]]] = [
            (mean(map(accuracy_on_test, runs)) if runs else None, {"color": colour}),
            (_at_end(runs), {"color": colour, "alpha": 0.4}),
            (PUBLISHED.get(name), {"color": "white", "edgecolor": colour, "hatch": "//"}),
        ]
        shown = [(value, look) for value, look in looks if value is not None]
        for beside, (value, look) in enumerate(shown):
            at = place + 0.3 * (beside - (len(shown) - 1) / 2)
            axes.bar(at, value, 0.27, **look)
            text = f"{100 * value:.1f}"
            axes.text(at, value, text, ha="center", va="bottom", fontsize="small")
    axes.bar([0], [0], color="#555555", label="ours, best epoch")
    axes.bar([0], [0], color="#555555", alpha=0.4, label="ours, last epoch")
    axes.bar([0], [0], color="white", edgecolor="#555555", hatch="//", label="published")
    axes.set_xticks(range(len(SHOWN)), labels=[CONTENDERS[name].title for name in SHOWN])
    axes.set(ylabel="accuracy", title="Test (labels in %)")
    axes.margins(y=0.12)
    dress(axes)


def _at_end(runs: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean test accuracy after the last epoch of the runs that got there."""
    ended = [run["at_end"] for run in runs if run["at_end"] is not None]
    return mean(end["test"]["mean"]["accuracy"] for end in ended) if ended else None


def verdict(results: Path) -> Verdict:
    """Whether both JS losses are above KL in test accuracy by more than its standard error.

    A deterministic network, which the paper does not show here, is told beside them.
    """
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
        f"and 24.02 % from pretrained weights, ours begins from random ones{_point(told)}",
    )


def _point(told: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """The deterministic network against the better JS loss, both at their best epochs."""
    runs = told.get("deterministic")
    if not runs:
        return ""
    best = max(("js_g", "js_a"), key=lambda name: mean(map(accuracy_on_test, told[name])))
    gained = difference(runs, told[best], accuracy_on_test)
    end = _at_end(runs)
    against = "" if gained is None else f", {100 * gained.mean:+.2f} points over "
    against += CONTENDERS[best].title if against else ""
    at_end = "" if end is None else f", and {end:.2%} at the last one"
    return (
        f"; a deterministic network has {mean(map(accuracy_on_test, runs)):.2%} at its best "
        f"epoch{against}{at_end}"
    )
