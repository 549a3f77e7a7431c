"""Confusion matrices on histopathology: how many patches each loss misses."""

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from reproduction.contenders import THREE, title
from reproduction.images.comparing import MISSED, everyone, reduction
from reproduction.images.drawing import demand, finished, panels
from reproduction.images.results import folds
from reproduction.images.running import Requirement
from reproduction.verdict import Comparison, Verdict, judged

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PUBLISHED = {"js_g": -0.117, "js_a": -0.128}
"""Change of the number of false negatives against KL."""
CLASSES = ("no IDC", "IDC")
NEEDS = Requirement(("histopathology-folds",), THREE)


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
        axes.set_title(title(name) + line, fontsize="medium")
    heading = "Histopathology, test patches, mean over folds; missed: against KL"
    return finished(figure, heading, results, out / "confusion.svg")


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
            shade = "#ffffff" if shares[i][j] > 0.7 else "#1b1b1b"  # on blue, in any theme
            weight = "bold" if (i, j) == (1, 0) else "normal"
            axes.text(j, i, text, ha="center", va="center", color=shade, weight=weight)
    axes.set_xticks([0, 1], labels=CLASSES)
    axes.set_yticks([0, 1], labels=CLASSES)
    axes.set(xlabel="predicted", ylabel="true")


def verdict(results: Path) -> Verdict:
    """Whether both JS losses miss fewer positive patches than KL, by about the published share.

    The change is a share of the number that KL misses; λKL is shown too.
    """
    told = everyone(results, "histopathology", (*THREE, "lambda_kl"))
    fewer = {
        name: reduction(told.get(name, ()), told.get("kl", ()), MISSED)
        for name in (*PUBLISHED, "lambda_kl")
    }
    known = {
        name: Comparison(
            f"fewer missed by {title(name)}",
            found,
            -PUBLISHED[name] if name in PUBLISHED else None,
            unit="%",
        )
        for name, found in fewer.items()
        if found is not None
    }
    claims = [known[name] for name in PUBLISHED if name in known]
    beside = [known["lambda_kl"].text] if "lambda_kl" in known else []
    return judged(claims, wanted=2, beside=beside, missing=NEEDS.lacks(results))
