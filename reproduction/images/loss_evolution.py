"""Figure loss: the two parts of the loss over training on histopathology."""

from pathlib import Path
from statistics import mean
from typing import Any

from reproduction.images.plans import THREE
from reproduction.images.protocol import CONTENDERS
from reproduction.images.running import Requirement
from reproduction.images.training_curves import BAND, Curves, demand, dress, finished, line, panels
from reproduction.item import Outcome, Verdict

CURVES = Curves("Histopathology", "histopathology", THREE)
NEEDS = Requirement(("histopathology-folds",), THREE)
missing, compute = NEEDS.missing, NEEDS.compute


def draw(results: Path, out: Path) -> list[Path]:
    """Negative log-likelihood of training and validation, and the divergence a weight."""
    told = CURVES.found(results)
    demand(bool(told), results)
    figure, (left, right) = panels(2, (12, 5.2))
    for name, runs in told.items():
        line(left, name, runs, "nll", bold=False)
        line(left, name, runs, "validation_nll", bold=True)
        line(right, name, runs, "divergence", bold=True, factor=1 / runs[0]["weights"])
    left.set(
        xlabel="epoch",
        ylabel="nats a patch",
        title="Negative log-likelihood: training (thin), validation (bold)",
    )
    right.set(xlabel="epoch", ylabel="nats a weight", title="Divergence, before λ")
    right.set_yscale("log")
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_formatter("{x:g}")
    dress(left)
    dress(right)
    return finished(
        figure,
        f"The two parts of the loss on histopathology{BAND}",
        results,
        out / "loss_evolution.png",
    )


def verdict(results: Path) -> Verdict:
    """Whether JS-G has a higher training nll than KL, and the JS losses a lower test nll.

    At the posterior mean of the best epoch, means over folds; reproduced if all three hold, partly
    if one or two do. That the divergence of JS-G is above KL's is the paper's third claim, which
    holds of its values for equal q and p alone: it is told, not judged.
    """
    told = CURVES.found(results)
    if len(told) < len(THREE):
        return Verdict(Outcome.OPEN, "there are no runs of KL and both JS losses yet")
    fitted = {name: mean(_line(run)["nll"] for run in runs) for name, runs in told.items()}
    unseen = {
        name: mean(run["at_best"]["test"]["mean"]["nll"] for run in runs)
        for name, runs in told.items()
    }
    distance = {
        name: mean(run["at_best"]["divergence"] / run["weights"] for run in runs)
        for name, runs in told.items()
    }
    met = sum(
        (
            fitted["js_g"] > fitted["kl"],
            unseen["js_g"] < unseen["kl"],
            unseen["js_a"] < unseen["kl"],
        )
    )
    outcome = Outcome.REPRODUCED if met == 3 else Outcome.PARTLY if met else Outcome.NOT
    said = "; ".join(
        f"{CONTENDERS[name].title} training {fitted[name]:.3f}, test {unseen[name]:.3f} nats a "
        f"patch, divergence {distance[name]:.3g} a weight"
        for name in THREE
    )
    return Verdict(outcome, said)


def _line(run: dict[str, Any]) -> dict[str, Any]:
    """The history's line of the best epoch."""
    entry: dict[str, Any] = run["history"][run["best_epoch"] - 1]
    return entry
