"""Figure train_unmod: the JS divergences before the paper's modification, on histopathology."""

from pathlib import Path

from reproduction.images.deterministic_baseline import magnified
from reproduction.images.protocol import CONTENDERS
from reproduction.images.results import difference, validation_accuracy
from reproduction.images.running import Requirement
from reproduction.images.training_curves import BAND, Curves, demand, finished, panel, panels
from reproduction.item import Outcome, Verdict

PAIRS = {"js_a": "unmodified_js_a", "js_g": "unmodified_js_g"}
SHOWN = tuple(name for pair in PAIRS.items() for name in pair)
CURVES = Curves("Histopathology", "histopathology", SHOWN)
PUBLISHED = {"js_a": 0.03, "js_g": 0.02}
"""By how much the unmodified ones validate worse."""
NEEDS = Requirement(("histopathology-folds",), SHOWN)
missing, compute = NEEDS.missing, NEEDS.compute


def draw(results: Path, out: Path) -> list[Path]:
    """Accuracy over epochs, and the validation part magnified."""
    figure, (left, right) = panels(2, (12, 5.2))
    demand(panel(left, CURVES, results), results)
    magnified(right, CURVES, results)
    title = f"Unmodified JS divergences: training (thin) and validation (bold) accuracy{BAND}"
    return finished(figure, title, results, out / "unmodified_js.png")


def verdict(results: Path) -> Verdict:
    """Whether each modified divergence validates better than its unmodified one.

    Reproduced if both do by more than a standard error of the paired difference over folds, partly
    if one does. Every one of the four has its own search of the same size. At α = ½ a divergence is
    its unmodified self: where both searches end there, this is told.
    """
    told = CURVES.found(results)
    gains = {
        name: difference(told.get(name, []), told.get(other, []), validation_accuracy)
        for name, other in PAIRS.items()
    }
    known = {name: gain for name, gain in gains.items() if gain is not None}
    if len(known) < len(PAIRS):
        return Verdict(Outcome.OPEN, "there are no runs of all four divergences yet")
    outcome = (Outcome.NOT, Outcome.PARTLY, Outcome.REPRODUCED)[
        sum(gain.ahead for gain in known.values())
    ]
    said = "; ".join(
        f"{CONTENDERS[name].title} {100 * gain.mean:+.2f} ± {100 * gain.error:.2f} points over the "
        f"unmodified one (published about +{100 * PUBLISHED[name]:.0f})"
        for name, gain in known.items()
    )
    for name, other in PAIRS.items():
        if {run["setting"]["alpha"] for run in (*told[name], *told[other])} == {0.5}:
            said += (
                f"; both searches chose α = 0.5 for {CONTENDERS[name].title}, where it is the "
                "unmodified one"
            )
    return Verdict(outcome, said)
