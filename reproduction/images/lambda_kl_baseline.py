"""KL with a tuned strength, the baseline that only rescales the penalty."""

from pathlib import Path

from reproduction.contenders import JS, THREE, title
from reproduction.images.comparing import ahead, everyone, over_kl
from reproduction.images.drawing import (
    BAND,
    Curves,
    demand,
    finished,
    magnified,
    mark_published,
    panel,
    panels,
)
from reproduction.images.plans import NOISE
from reproduction.images.running import Requirement
from reproduction.images.training_curves import PUBLISHED
from reproduction.intervals import CONFIDENCE, corrected
from reproduction.verdict import Comparison, Verdict, judged

SHOWN = (*THREE, "lambda_kl")
CURVES = Curves(f"CIFAR-10, noise {NOISE:g}", "cifar10", SHOWN, NOISE)
NEEDS = Requirement(("cifar10-folds",), SHOWN)


def draw(results: Path, out: Path) -> list[Path]:
    """Accuracy over epochs, and the validation part magnified with the published best."""
    figure, (left, right) = panels(2, (12, 5.2))
    demand(panel(left, CURVES, results), results)
    magnified(right, CURVES, results)
    mark_published(right, PUBLISHED)
    strength = {run["setting"]["strength"] for run in CURVES.found(results).get("lambda_kl", [])}
    told = ", ".join(f"λ = {value:g}" for value in sorted(strength)) or "not computed yet"
    heading = f"λKL ({told}; published 68.9): training (thin) and validation (bold) accuracy{BAND}"
    return finished(figure, heading, results, out / "lambda_kl_baseline.svg")


def verdict(results: Path) -> Verdict:
    """Whether λKL lies between KL and the better JS loss in test accuracy.

    The better of the two is chosen by its mean, so its interval has level 97.5 %.
    """
    told = everyone(results, CURVES.experiment, CURVES.contenders, CURVES.noise)
    tuned = told.get("lambda_kl", [])
    claims = over_kl(told, {"lambda_kl": PUBLISHED["lambda_kl"] - PUBLISHED["kl"]})
    confidence = corrected(CONFIDENCE, len(JS))
    over = {name: ahead(told.get(name, ()), tuned, confidence=confidence) for name in JS}
    known = {name: gained for name, gained in over.items() if gained is not None}
    if known:
        best = max(known, key=lambda name: known[name].mean)
        theirs = PUBLISHED["js_a"] - PUBLISHED["lambda_kl"]
        said = f"{title(best)} over λKL"
        claims.append(Comparison(said, known[best], theirs, confidence=confidence))
    return judged(claims, wanted=2, missing=NEEDS.lacks(results))
