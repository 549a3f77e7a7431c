"""The JS divergences before the paper's modification, on histopathology."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from reproduction.contenders import title
from reproduction.images.comparing import Run, ahead, everyone
from reproduction.images.drawing import BAND, Curves, demand, finished, magnified, panel, panels
from reproduction.images.plans import SKEWS
from reproduction.images.running import Requirement
from reproduction.verdict import Comparison, Verdict, judged

PAIRS = {"js_a": "unmodified_js_a", "js_g": "unmodified_js_g"}
SHOWN = tuple(name for pair in PAIRS.items() for name in pair)
CURVES = Curves("Histopathology", "histopathology", SHOWN)
PUBLISHED = {"js_a": 0.03, "js_g": 0.02}
"""By how much the unmodified ones validate worse."""
NEEDS = Requirement(("histopathology-folds", *(f"histopathology-alpha{a:g}" for a in SKEWS)), SHOWN)


def draw(results: Path, out: Path) -> list[Path]:
    """Accuracy over epochs, and the validation part magnified."""
    figure, (left, right) = panels(2, (12, 5.2))
    demand(panel(left, CURVES, results), results)
    magnified(right, CURVES, results)
    heading = f"Unmodified JS divergences: training (thin) and validation (bold) accuracy{BAND}"
    return finished(figure, heading, results, out / "unmodified_js.svg")


def verdict(results: Path) -> Verdict:
    """Whether each modified divergence is ahead of its unmodified one in test accuracy.

    Each of the four has its own search of the same size, and each pair is also run with equal
    settings at fixed alphas. At α = ½ the two are the same: if both searches choose it, the
    comparison says nothing.
    """
    claims, beside = [], []
    for name, other in PAIRS.items():
        told = everyone(results, "histopathology", (name, other))
        if _same(told):
            beside.append(
                f"both searches chose α = 0.5 for {title(name)}, where it is the unmodified one"
            )
            continue
        claims += _pair(told, name, other, "")
    for skew in SKEWS:
        tagged = everyone(results, "histopathology", SHOWN, tag=f"alpha{skew:g}")
        for name, other in PAIRS.items():
            claims += _pair(tagged, name, other, f" at α = {skew:g}")
    wanted = len(PAIRS) * (1 + len(SKEWS)) - len(beside)
    return judged(claims, wanted=wanted, beside=beside, missing=NEEDS.lacks(results))


def _same(told: Mapping[str, Sequence[Run]]) -> bool:
    """Whether both of a pair have runs, all of them with α = ½."""
    return {run["setting"]["alpha"] for runs in told.values() for run in runs} == {0.5}


def _pair(told: Mapping[str, Sequence[Run]], name: str, other: str, where: str) -> list[Comparison]:
    gained = ahead(told.get(name, ()), told.get(other, ()))
    said = f"{title(name)} over the unmodified one{where}"
    return [] if gained is None else [Comparison(said, gained, PUBLISHED[name])]
