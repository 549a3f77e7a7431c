"""Training, validation and test accuracy on CIFAR-100 with noise 0.5."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from reproduction.contenders import JS, THREE, title
from reproduction.images.comparing import ACCURACY, average, everyone, over_kl
from reproduction.images.drawing import (
    COLOURS,
    Curves,
    demand,
    dress,
    finished,
    line,
    note,
    panels,
)
from reproduction.images.results import accuracy_on_test
from reproduction.images.running import Requirement
from reproduction.verdict import Verdict, judged

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (*THREE, "lambda_kl", "deterministic")
NOISE = 0.5
CURVES = Curves(f"CIFAR-100, noise {NOISE:g}", "cifar100", SHOWN, NOISE)
FOLDS = CURVES._replace(experiment="cifar100-folds")
"""Five folds with their own search, where they have been run."""
PUBLISHED = {"kl": 0.2281, "js_g": 0.2451, "js_a": 0.2402}
"""Test accuracy; the paper has no deterministic network here."""
NEEDS = Requirement(("cifar100-folds",), SHOWN)


def draw(results: Path, out: Path) -> list[Path]:
    """Training and validation over epochs, and test accuracy beside the published."""
    told = _curves(results).found(results)
    demand(bool(told), results)
    figure, (left, middle, right) = panels(3, (14, 4.8))
    for axes, key, heading in (
        (left, "train_accuracy", "Training"),
        (middle, "validation_accuracy", "Validation"),
    ):
        for name, runs in told.items():
            line(axes, name, runs, key, bold=True)
        axes.set(xlabel="epoch", ylabel="accuracy", title=heading)
        dress(axes)
    _bars(right, told)
    absent = [title(name) for name in SHOWN if name not in told]
    if absent:
        note(left, f"not computed yet: {', '.join(absent)}")
    return finished(figure, CURVES.title, results, out / "cifar100.svg")


def _curves(results: Path) -> Curves:
    return FOLDS if FOLDS.found(results) else CURVES


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
    axes.bar([0], [0], color="none", edgecolor="#808080", hatch="//", label="published")
    axes.set_xticks(range(len(SHOWN)), labels=[title(name) for name in SHOWN])
    axes.set(ylabel="accuracy", title="Test (labels in %)")
    axes.margins(y=0.12)
    dress(axes)


def _at_end(runs: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean test accuracy after the last epoch of the runs that got there."""
    ended = [run["at_end"] for run in runs if run["at_end"] is not None]
    return mean(end["test"]["mean"]["accuracy"] for end in ended) if ended else None


def verdict(results: Path) -> Verdict:
    """Whether both JS losses are ahead of KL in test accuracy, by about the published points.

    λKL and a deterministic network, which the paper does not show here, are shown too.
    """
    told = everyone(results, _curves(results).experiment, SHOWN, NOISE)
    theirs = {name: PUBLISHED[name] - PUBLISHED["kl"] for name in JS}
    claims = over_kl(told, theirs)
    others = over_kl(told, {"lambda_kl": None, "deterministic": None})
    beside = [one.text for one in others]
    if "kl" in told:
        beside.append(f"KL {average(told['kl'], ACCURACY):.2%} (published {PUBLISHED['kl']:.2%})")
    end = _at_end([run for run in told.get("deterministic", ()) if run["at_end"]])
    if end is not None:
        beside.append(f"the deterministic network has {end:.2%} at its last epoch")
    return judged(claims, wanted=2, beside=beside, missing=NEEDS.lacks(results))
