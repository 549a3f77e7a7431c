"""Figure of confusion matrices: who is missed on histopathology, by loss."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from reproduction.images.plans import THREE
from reproduction.images.protocol import CONTENDERS
from reproduction.images.results import difference, folds
from reproduction.images.running import Requirement
from reproduction.images.training_curves import demand, finished, panels
from reproduction.item import Outcome, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PUBLISHED = {"js_g": -0.117, "js_a": -0.128}
"""Change of the number of false negatives against KL."""
CLASSES = ("no IDC", "IDC")
ENOUGH = 0.05  # fewer false negatives, as a share of KL's
NEEDS = Requirement(("histopathology-folds",), THREE)
missing, compute = NEEDS.missing, NEEDS.compute


def draw(results: Path, out: Path) -> list[Path]:
    """A matrix for each loss, means over folds of the counts on the same test patches."""
    told = _told(results)
    demand(bool(told), results)
    figure, every = panels(len(told), (4.2 * len(told) + 0.6, 4.6))
    for axes, (name, runs) in zip(every, told.items(), strict=True):
        _matrix(axes, _mean_counts(runs))
        change = _change(told, name)
        line = ""
        if change is not None:
            line = f"\nmissed {change:+.1%} (published {PUBLISHED[name]:+.1%})"
        axes.set_title(CONTENDERS[name].title + line, fontsize="medium")
    title = "Histopathology, test patches, mean over folds; missed: against KL"
    return finished(figure, title, results, out / "confusion.png")


def _told(results: Path) -> dict[str, list[dict[str, Any]]]:
    every = {name: folds(results, "histopathology", name) for name in THREE}
    return {name: runs for name, runs in every.items() if runs}


def _mean_counts(runs: list[dict[str, Any]]) -> list[list[float]]:
    counts = [run["at_best"]["test"]["mean"]["confusion"] for run in runs]
    return [[mean(count[i][j] for count in counts) for j in range(2)] for i in range(2)]


def _change(told: dict[str, list[dict[str, Any]]], name: str) -> float | None:
    """Relative change of the mean number of false negatives; None where KL has none to compare."""
    if name == "kl" or "kl" not in told:
        return None
    missed, before = (_mean_counts(told[each])[1][0] for each in (name, "kl"))
    return missed / before - 1 if before else None


def _matrix(axes: "Axes", counts: list[list[float]]) -> None:
    """Counts in words, shares of each true class as shades."""
    shares = [[cell / max(sum(row), 1) for cell in row] for row in counts]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.3)
    for i, row in enumerate(counts):
        for j, cell in enumerate(row):
            text = f"{cell:,.0f}\n{shares[i][j]:.1%}"
            shade = "white" if shares[i][j] > 0.7 else "black"
            weight = "bold" if (i, j) == (1, 0) else "normal"
            axes.text(j, i, text, ha="center", va="center", color=shade, weight=weight)
    axes.set_xticks([0, 1], labels=CLASSES)
    axes.set_yticks([0, 1], labels=CLASSES)
    axes.set(xlabel="called", ylabel="true")


def verdict(results: Path) -> Verdict:
    """Whether both JS losses miss at least 5 % fewer positive patches than KL; partly if one does.

    The difference must also be larger than its standard error over folds, paired.
    """
    told = _told(results)
    if len(told) < len(THREE):
        return Verdict(Outcome.OPEN, "there are no runs of KL and both JS losses yet")
    met, sentences = 0, []
    for name, theirs in PUBLISHED.items():
        change, gained = _change(told, name), difference(told["kl"], told[name], _missed)
        if change is None or gained is None:
            return Verdict(Outcome.OPEN, "KL misses nothing, or shares no fold with the others yet")
        met += change <= -ENOUGH and gained.ahead
        error = gained.error / mean(map(_missed, told["kl"]))
        sentences.append(
            f"{CONTENDERS[name].title} {change:+.1%} ± {error:.1%} (published {theirs:+.1%})"
        )
    outcome = (Outcome.NOT, Outcome.PARTLY, Outcome.REPRODUCED)[met]
    missed = _mean_counts(told["kl"])[1][0]
    return Verdict(
        outcome, f"false negatives against the {missed:.0f} of KL: {', '.join(sentences)}"
    )


def _missed(told: Mapping[str, Any]) -> float:
    """The share of positive patches that were called negative."""
    missed, right = told["at_best"]["test"]["mean"]["confusion"][1]
    return float(missed / max(missed + right, 1))
