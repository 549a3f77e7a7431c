"""A deterministic network of the same architecture overfits noisy CIFAR-10."""

from pathlib import Path

from reproduction.contenders import JS, THREE, title
from reproduction.images.comparing import FINAL_ACCURACY, FINAL_GAP, ahead, everyone, reduction
from reproduction.images.drawing import BAND, Curves, demand, finished, magnified, panel, panels
from reproduction.images.plans import NOISE
from reproduction.images.running import Requirement
from reproduction.intervals import Interval
from reproduction.verdict import Comparison, Verdict, judged

SHOWN = (*THREE, "deterministic")
CURVES = Curves(f"CIFAR-10, noise {NOISE:g}", "cifar10", SHOWN, NOISE)
PUBLISHED = {"kl": (0.05, 0.63), "js_g": (0.08, 0.86), "js_a": (0.08, 0.86)}
"""Accuracy above the deterministic network's, and by which share the gap is smaller."""
BEYOND_KL = 1 - (1 - 0.86) / (1 - 0.63)
NEAR = 0.2
NEEDS = Requirement(("cifar10-folds",), SHOWN)


def draw(results: Path, out: Path) -> list[Path]:
    """Accuracy over epochs, and the validation part magnified."""
    figure, (left, right) = panels(2, (12, 5.2))
    demand(panel(left, CURVES, results), results)
    magnified(right, CURVES, results)
    heading = f"A deterministic network: training (thin) and validation (bold) accuracy{BAND}"
    return finished(figure, heading, results, out / "deterministic_baseline.svg")


def verdict(results: Path) -> Verdict:
    """Whether the deterministic network ends below the others, with a gap much larger than theirs.

    Test accuracy and gap (training minus validation accuracy) are those of the last epoch. The
    paper also finds that the gap of the JS losses is smaller than that of KL. A share of a gap
    agrees with the published one within 20 points. λKL is shown too.
    """
    names = (*CURVES.contenders, "lambda_kl")
    told = everyone(results, CURVES.experiment, names, CURVES.noise)
    plain = told.get("deterministic", [])
    found: list[Comparison | None] = []
    for name, (gain, cut) in PUBLISHED.items():
        above = ahead(told.get(name, ()), plain, FINAL_ACCURACY)
        found.append(above and Comparison(f"{title(name)} over deterministic", above, gain))
        less = reduction(told.get(name, ()), plain, FINAL_GAP)
        found.append(_share(f"gap of {title(name)} below the deterministic", less, cut))
    for name in JS:
        less = reduction(told.get(name, ()), told.get("kl", ()), FINAL_GAP)
        found.append(_share(f"gap of {title(name)} below that of KL", less, BEYOND_KL))
    claims = [one for one in found if one is not None]
    above = ahead(told.get("lambda_kl", ()), plain, FINAL_ACCURACY)
    beside = [] if above is None else [Comparison("λKL over deterministic", above).text]
    return judged(claims, wanted=8, beside=beside, missing=NEEDS.lacks(results))


def _share(name: str, less: Interval | None, theirs: float) -> Comparison | None:
    if less is None:
        return None
    return Comparison(name, less, theirs, unit="%", size=(theirs - NEAR, theirs + NEAR))
