"""Test accuracy on histopathology over five runs, and ROC curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from reproduction.contenders import JS, THREE, title
from reproduction.images.comparing import ACCURACY, AREA, Run, ahead, everyone, over_kl
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
from reproduction.images.results import BY_PATIENT, accuracy_on_test, folds
from reproduction.images.running import Requirement
from reproduction.verdict import Badge, Comparison, Verdict, judged, together

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (*THREE, "lambda_kl", "deterministic")
SPLITS = {"": "random split, as in the paper", BY_PATIENT: "unseen patients"}
NEEDS = Requirement(
    ("histopathology-folds",),
    THREE,
    beyond=("histopathology-patients", "histopathology-seeds"),
    measures=("accuracy", "area"),
)


def draw(results: Path, out: Path) -> list[Path]:
    """Boxes of both splits beside the ROC curves of the random one."""
    told = {tag: _told(results, tag) for tag in SPLITS}
    demand(any(told.values()), results)
    figure, (left, right) = panels(2, (13, 5.4))
    boxes(left, dict(_group(tag, each) for tag, each in told.items() if _common(each)))
    left.set(ylabel="test accuracy", title="Test accuracy of the folds")
    _curves(right, told[""])
    title = "Histopathology: minimum, quartiles, median and maximum over folds"
    return finished(figure, title, results, out / "histopathology.svg")


def _told(results: Path, tag: str) -> dict[str, list[dict[str, Any]]]:
    every = {name: folds(results, "histopathology", name, tag=tag) for name in SHOWN}
    return {name: runs for name, runs in every.items() if runs}


def _common(told: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The runs of those folds that all contenders have: patients differ from fold to fold."""
    every = [{run["fold"] for run in runs} for runs in told.values()]
    shared = set.intersection(*every) if every else set()
    kept = {name: [run for run in runs if run["fold"] in shared] for name, runs in told.items()}
    return kept if shared else {}


def _group(
    tag: str, told: Mapping[str, Sequence[dict[str, Any]]]
) -> tuple[str, dict[str, list[float]]]:
    """What stands under a group of boxes, and their accuracies over the common folds."""
    kept = _common(told)
    scores = {name: [accuracy_on_test(run) for run in runs] for name, runs in kept.items()}
    return f"{SPLITS[tag]} ({counted(len(next(iter(scores.values()))))})", scores


def _curves(axes: "Axes", told: dict[str, list[dict[str, Any]]]) -> None:
    """The first fold's curve of each loss, the mean area over folds in words."""
    lines = []
    for name, runs in told.items():
        if name not in THREE:
            continue
        curve = runs[0]["at_best"]["test"]["mean"].get("roc")
        if curve is None:
            continue
        axes.plot(
            curve["false_positive_rate"],
            curve["true_positive_rate"],
            ls=STYLES[name],
            color=COLOURS[name],
            lw=2,
        )
        lines.append(f"{title(name)}: {_area(runs):.3f}")
    axes.plot([0, 1], [0, 1], color="#999999", lw=1, zorder=0)
    if lines:
        text = "\n".join(["area, mean over folds", *lines])
        axes.text(0.97, 0.05, text, ha="right", transform=axes.transAxes)
    axes.set(
        xlabel="false positive rate",
        ylabel="true positive rate",
        title="ROC of the first fold, random split",
        xlim=(0, 1),
        ylim=(0, 1.01),
    )
    dress(axes)


def _area(runs: list[dict[str, Any]]) -> float:
    return mean(float(run["at_best"]["test"]["mean"].get("auc", 0.5)) for run in runs)


def verdict(results: Path) -> Verdict:
    """Whether both JS losses beat KL in accuracy and area under the ROC curve, in all five runs.

    The size is the paper's "in all five runs", here in all pairs of runs of the same fold and seed;
    a tie is not ahead. The split is random, as in the paper; the differences on unseen patients,
    whose folds test different patches, and those of λKL are shown too.
    """
    told = everyone(results, "histopathology", SHOWN)
    claims = over_kl(told, {"js_g": None, "js_a": None}, " in accuracy")
    areas = over_kl(told, {"js_g": None, "js_a": None}, " in the area under ROC", measure=AREA)
    beside = [one.text for one in over_kl(told, {"lambda_kl": None}, " in accuracy")]
    beside += _over_lambda_kl(told)
    won = {name: _won(told, name) for name in JS if name in told}
    beside += [f"{title(name)} ahead in {own} of {of} runs" for name, (own, of) in won.items()]
    patients = everyone(results, "histopathology", SHOWN, tag=BY_PATIENT)
    others = {name: None for name in (*JS, "lambda_kl")}
    beside += [one.text for one in over_kl(patients, others, " on unseen patients")]
    found = judged([*claims, *areas], wanted=4, beside=beside, missing=NEEDS.lacks(results))
    if found.direction is Badge.OPEN:
        return found
    everywhere = [Badge.YES if own == of else Badge.NO for own, of in won.values()]
    return replace(found, size=together(everywhere))


def _over_lambda_kl(told: Mapping[str, Sequence[Run]]) -> list[str]:
    found = {
        f"{title(name)} over λKL in {where}": ahead(
            told.get(name, ()), told.get("lambda_kl", ()), measure
        )
        for where, measure in (("accuracy", ACCURACY), ("the area under ROC", AREA))
        for name in JS
    }
    return [Comparison(said, gained).text for said, gained in found.items() if gained is not None]


def _won(told: Mapping[str, Sequence[Run]], name: str) -> tuple[int, int]:
    """In how many pairs of runs of a fold and seed a loss is ahead of KL, of how many."""
    ones, others = (
        {(run["fold"], run.get("seed")): ACCURACY.of(run) for run in told.get(each, ())}
        for each in (name, "kl")
    )
    shared = ones.keys() & others.keys()
    return sum(ones[pair] > others[pair] for pair in shared), len(shared)
