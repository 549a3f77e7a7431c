"""Figure dnn_Cifar: a deterministic network of the same architecture overfits noisy CIFAR-10."""

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from reproduction.images.plans import NOISE, THREE
from reproduction.images.protocol import CONTENDERS
from reproduction.images.running import Requirement
from reproduction.images.training_curves import (
    BAND,
    Curves,
    demand,
    dress,
    finished,
    line,
    panel,
    panels,
)
from reproduction.item import Outcome, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (*THREE, "deterministic")
CURVES = Curves(f"CIFAR-10, noise {NOISE:g}", "cifar10", SHOWN, NOISE)
PUBLISHED = {"kl": (0.05, 0.63), "js": (0.08, 0.86)}
"""Validation accuracy above the deterministic network's, and by which share the gap is smaller."""
HALF = 0.5  # a gap that is halved counts as much smaller
NEEDS = Requirement(("cifar10-folds",), SHOWN)
missing, compute = NEEDS.missing, NEEDS.compute


def draw(results: Path, out: Path) -> list[Path]:
    """Accuracy over epochs, and the validation part magnified."""
    figure, (left, right) = panels(2, (12, 5.2))
    demand(panel(left, CURVES, results), results)
    magnified(right, CURVES, results)
    title = f"A deterministic network: training (thin) and validation (bold) accuracy{BAND}"
    return finished(figure, title, results, out / "deterministic_baseline.png")


def magnified(axes: "Axes", curves: Curves, results: Path) -> None:
    """Validation accuracy alone, in limits that show the second half of the mean curves."""
    means = [
        line(axes, name, runs, "validation_accuracy", bold=True)
        for name, runs in curves.found(results).items()
    ]
    values = [value for each in means for value in each[len(each) // 2 :]]
    margin = 0.1 * (max(values) - min(values)) + 0.005
    axes.set_ylim(min(values) - margin, max(values) + margin)
    axes.set(xlabel="epoch", ylabel="accuracy", title="Validation, magnified")
    dress(axes)


def verdict(results: Path) -> Verdict:
    """Whether the deterministic network ends below the others, with a gap twice theirs or more.

    Validation accuracy and gap (training less validation) are those at the end of training, at the
    posterior mean, as means over folds. Reproduced if both hold for KL and for the better JS loss.
    """
    told = CURVES.found(results)
    ended = {name: _at_end(runs) for name, runs in told.items()}
    known = {name: end for name, end in ended.items() if end is not None}
    if not {"kl", "deterministic"} <= known.keys() or not known.keys() & {"js_g", "js_a"}:
        return Verdict(
            Outcome.OPEN, "there are no runs of the deterministic network and others yet"
        )
    js = max(known.keys() & {"js_g", "js_a"}, key=lambda name: known[name][0])
    accuracy, gap = known["deterministic"]
    met, sentences = 0, [f"deterministic {accuracy:.2%} at the end, gap {100 * gap:.1f} points"]
    for name, (published_gain, published_cut) in zip(("kl", js), PUBLISHED.values(), strict=True):
        own, own_gap = known[name]
        cut = 1 - own_gap / gap if gap > 0 else 0.0
        met += (own > accuracy) + (cut >= HALF)
        sentences.append(
            f"{CONTENDERS[name].title} {100 * (own - accuracy):+.1f} points (published "
            f"+{100 * published_gain:.0f}), gap {cut:.0%} smaller (published {published_cut:.0%})"
        )
    outcome = Outcome.REPRODUCED if met == 4 else Outcome.PARTLY if met else Outcome.NOT
    return Verdict(outcome, "; ".join(sentences))


def _at_end(runs: list[dict[str, Any]]) -> tuple[float, float] | None:
    """Validation accuracy and gap of the last epoch, means over the folds that got there."""
    ends = [run["at_end"] for run in runs if run["at_end"] is not None]
    if not ends:
        return None
    accuracy = mean(end["validation"]["mean"]["accuracy"] for end in ends)
    return accuracy, mean(end["gap"] for end in ends)
