"""Figure train_lamdakl: KL with a tuned strength, the baseline that only rescales the penalty."""

from pathlib import Path

from reproduction.images.deterministic_baseline import magnified
from reproduction.images.plans import NOISE, THREE
from reproduction.images.protocol import CONTENDERS
from reproduction.images.results import difference, validation_accuracy
from reproduction.images.running import Requirement
from reproduction.images.training_curves import (
    BAND,
    PUBLISHED,
    Curves,
    demand,
    finished,
    mark_published,
    mean_best,
    panel,
    panels,
)
from reproduction.item import Outcome, Verdict

SHOWN = (*THREE, "lambda_kl")
CURVES = Curves(f"CIFAR-10, noise {NOISE:g}", "cifar10", SHOWN, NOISE)
NEEDS = Requirement(("cifar10-folds",), SHOWN)
missing, compute = NEEDS.missing, NEEDS.compute


def draw(results: Path, out: Path) -> list[Path]:
    """Accuracy over epochs, and the validation part magnified with the published best."""
    figure, (left, right) = panels(2, (12, 5.2))
    demand(panel(left, CURVES, results), results)
    magnified(right, CURVES, results)
    mark_published(right, PUBLISHED)
    strength = {run["setting"]["strength"] for run in CURVES.found(results).get("lambda_kl", [])}
    told = ", ".join(f"λ = {value:g}" for value in sorted(strength)) or "not computed yet"
    title = f"λKL ({told}; published 68.9): training (thin) and validation (bold) accuracy{BAND}"
    return finished(figure, title, results, out / "lambda_kl_baseline.png")


def verdict(results: Path) -> Verdict:
    """Whether λKL lies between KL and the better JS loss in best validation accuracy.

    Reproduced if λKL is above KL and JS above λKL, each by more than a standard error of the paired
    difference over folds; partly if one of the two holds.
    """
    told = CURVES.found(results)
    js = [name for name in ("js_g", "js_a") if name in told]
    if not {"kl", "lambda_kl"} <= told.keys() or not js:
        return Verdict(Outcome.OPEN, "there are no runs of KL, λKL and a JS loss yet")
    best = max(js, key=lambda name: mean_best(told[name]))
    over_kl = difference(told["lambda_kl"], told["kl"], validation_accuracy)
    over_lambda = difference(told[best], told["lambda_kl"], validation_accuracy)
    if over_kl is None or over_lambda is None:
        return Verdict(Outcome.OPEN, "the losses have no fold in common yet")
    outcome = (Outcome.NOT, Outcome.PARTLY, Outcome.REPRODUCED)[over_kl.ahead + over_lambda.ahead]
    return Verdict(
        outcome,
        f"KL {mean_best(told['kl']):.2%}, λKL {mean_best(told['lambda_kl']):.2%} "
        f"({100 * over_kl.mean:+.2f} ± {100 * over_kl.error:.2f} points), "
        f"{CONTENDERS[best].title} {mean_best(told[best]):.2%} ({100 * over_lambda.mean:+.2f} ± "
        f"{100 * over_lambda.error:.2f} over λKL); published 39.72, 40.12 and 41.78 %",
    )
