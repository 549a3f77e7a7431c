"""Figures acc_histo and roc: test accuracy on histopathology over five runs, and ROC curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from reproduction.images.plans import THREE
from reproduction.images.protocol import CONTENDERS
from reproduction.images.results import BY_PATIENT, accuracy_on_test, difference, folds
from reproduction.images.running import Requirement
from reproduction.images.test_accuracy import boxes, counted
from reproduction.images.training_curves import COLOURS, STYLES, demand, dress, finished, panels
from reproduction.item import Outcome, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (*THREE, "lambda_kl", "deterministic")
SPLITS = {"": "random split, as in the paper", BY_PATIENT: "unseen patients"}
NEEDS = Requirement(("histopathology-folds", "histopathology-patients"), SHOWN)
missing, compute = NEEDS.missing, NEEDS.compute


def draw(results: Path, out: Path) -> list[Path]:
    """Boxes of both splits beside the ROC curves of the random one."""
    told = {tag: _told(results, tag) for tag in SPLITS}
    demand(any(told.values()), results)
    figure, (left, right) = panels(2, (13, 5.4))
    boxes(left, dict(_group(tag, each) for tag, each in told.items() if _common(each)))
    left.set(ylabel="test accuracy", title="Test accuracy of the folds")
    _curves(right, told[""])
    title = "Histopathology: minimum, quartiles, median and maximum over folds"
    return finished(figure, title, results, out / "histopathology.png")


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
        lines.append(f"{CONTENDERS[name].title}: {_area(runs):.3f}")
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
    """Whether both JS losses beat KL in every run and in the area under the ROC curve.

    Reproduced if both have a higher test accuracy in all folds and a larger mean area; partly if
    one of them has a higher mean accuracy. All of this on the random split, as in the paper; the
    differences on unseen patients are told, not judged.
    """
    told = _told(results, "")
    if any(name not in told for name in THREE):
        return Verdict(Outcome.OPEN, "there are no runs of KL and both JS losses yet")
    sentences, everywhere, on_average = [], True, 0
    for name in ("js_g", "js_a"):
        gained = difference(told[name], told["kl"], accuracy_on_test)
        if gained is None:
            return Verdict(Outcome.OPEN, "KL and the JS losses have no fold in common yet")
        known = {run["fold"]: accuracy_on_test(run) for run in told["kl"]}
        both = [run for run in told[name] if run["fold"] in known]
        won = sum(accuracy_on_test(run) > known[run["fold"]] for run in both)
        larger = _area(told[name]) > _area(told["kl"])
        everywhere &= won == len(both) and larger
        on_average += gained.mean > 0
        sentences.append(
            f"{CONTENDERS[name].title} {100 * gained.mean:+.2f} ± {100 * gained.error:.2f} points "
            f"over KL, ahead in {won} of {len(both)} runs, area {_area(told[name]):.3f} against "
            f"{_area(told['kl']):.3f}"
        )
    outcome = Outcome.PARTLY if on_average else Outcome.NOT
    outcome = Outcome.REPRODUCED if everywhere else outcome
    kl = mean(map(accuracy_on_test, told["kl"]))
    judged = f"KL {kl:.2%}; {'; '.join(sentences)} (published: ahead in all five)"
    return Verdict(outcome, judged + _on_patients(_common(_told(results, BY_PATIENT))))


def _on_patients(told: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Differences to KL over the common folds of unseen patients; nothing without KL."""
    gains = {
        name: difference(told[name], told["kl"], accuracy_on_test)
        for name in ("js_g", "js_a")
        if {name, "kl"} <= told.keys()
    }
    said = [
        f"{CONTENDERS[name].title} {100 * gain.mean:+.2f} ± {100 * gain.error:.2f}"
        for name, gain in gains.items()
        if gain is not None
    ]
    if not said:
        return ""
    kl = mean(map(accuracy_on_test, told["kl"]))
    return (
        f"; on unseen patients KL {kl:.2%}, {', '.join(said)} points "
        f"({counted(len(told['kl']))} that all have)"
    )
