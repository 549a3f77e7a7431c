"""Training and validation accuracy, epoch by epoch, of KL and the two JS losses."""

from pathlib import Path

from reproduction.contenders import THREE
from reproduction.images.comparing import everyone, over_kl
from reproduction.images.drawing import (
    BAND,
    Curves,
    demand,
    finished,
    mark_published,
    panel,
    panels,
)
from reproduction.images.plans import NOISE
from reproduction.images.running import Requirement
from reproduction.verdict import Verdict, judged

PUBLISHED = {"kl": 0.3972, "lambda_kl": 0.4012, "js_a": 0.4178}
"""Highest validation accuracy on CIFAR-10 at noise 0.9; the paper gives one for "the JS loss"."""
GAIN = PUBLISHED["js_a"] - PUBLISHED["kl"]
CIFAR10 = Curves(f"CIFAR-10, noise {NOISE:g}", "cifar10", THREE, NOISE)
HISTOPATHOLOGY = Curves("histopathology", "histopathology", THREE)
LARGE = "cifar10-224-folds"
NEEDS = Requirement(("cifar10-folds", "histopathology-folds"), THREE, beyond=(LARGE,))


def draw(results: Path, out: Path) -> list[Path]:
    """Both data sets, the published best accuracies as marks at the edge."""
    figure, (left, right) = panels(2, (12, 5.2))
    shown = [panel(left, CIFAR10, results), panel(right, HISTOPATHOLOGY, results)]
    demand(any(shown), results)
    mark_published(left, {name: PUBLISHED[name] for name in ("kl", "js_a")})
    title = f"Training (thin) and validation (bold) accuracy{BAND}"
    return finished(figure, title, results, out / "training_curves.svg")


def verdict(results: Path) -> Verdict:
    """Whether both JS losses are more accurate than KL on the test images of both data sets.

    The epoch was chosen on validation images, so test images judge. The size is the +2.06 points
    that the paper reports for "the JS loss" on CIFAR-10, compared here with JS-A. λKL is shown too,
    and CIFAR-10 at 224 pixels.
    """
    claims, beside = [], []
    names = (*THREE, "lambda_kl")
    for curves, theirs in ((CIFAR10, GAIN), (HISTOPATHOLOGY, None)):
        told = everyone(results, curves.experiment, names, curves.noise)
        where = f" on {curves.title}"
        claims += over_kl(told, {"js_g": None, "js_a": theirs}, where)
        beside += [one.text for one in over_kl(told, {"lambda_kl": None}, where)]
    large = everyone(results, LARGE, names, NOISE)
    others = dict.fromkeys(names[1:])
    beside += [one.text for one in over_kl(large, others, " on CIFAR-10 at 224 pixels")]
    return judged(claims, wanted=4, beside=beside, missing=NEEDS.lacks(results))
