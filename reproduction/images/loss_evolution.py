"""The two parts of the loss over training on histopathology."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from reproduction.contenders import JS, THREE, title
from reproduction.images.comparing import NLL, TRAINING_NLL, Run, ahead, everyone
from reproduction.images.drawing import BAND, Curves, demand, dress, finished, line, panels
from reproduction.images.running import Requirement
from reproduction.verdict import Comparison, Verdict, judged

CURVES = Curves("Histopathology", "histopathology", THREE)
NEEDS = Requirement(("histopathology-folds",), THREE, measures=("NLL",))


def draw(results: Path, out: Path) -> list[Path]:
    """Negative log-likelihood of training and validation, and the divergence per weight."""
    told = CURVES.found(results)
    demand(bool(told), results)
    figure, (left, right) = panels(2, (12, 5.2))
    for name, runs in told.items():
        line(left, name, runs, "nll", bold=False)
        line(left, name, runs, "validation_nll", bold=True)
        line(right, name, runs, "divergence", bold=True, factor=1 / runs[0]["weights"])
    left.set(
        xlabel="epoch",
        ylabel="nats per patch",
        title="Negative log-likelihood: training (thin), validation (bold)",
    )
    right.set(xlabel="epoch", ylabel="nats per weight", title="Divergence, before λ")
    right.set_yscale("log")
    right.yaxis.set_major_formatter("{x:g}")
    right.yaxis.set_minor_formatter("{x:g}")
    dress(left)
    dress(right)
    return finished(
        figure,
        f"The two parts of the loss on histopathology{BAND}",
        results,
        out / "loss_evolution.svg",
    )


def verdict(results: Path) -> Verdict:
    """Whether JS-G has a higher training NLL than KL, and both JS losses a lower test NLL.

    All at the posterior mean of the best epoch. The paper's claim that the divergence of JS-G is
    above that of KL concerns equal q and p; for separately trained networks it is shown, not
    judged.
    """
    told = everyone(results, "histopathology", (*THREE, "lambda_kl"))
    kl = told.get("kl", [])
    fits = ahead(told.get("js_g", ()), kl, TRAINING_NLL)
    found = {"training NLL of JS-G above KL": fits}
    for name in JS:
        found[f"test NLL of {title(name)} below KL"] = ahead(kl, told.get(name, ()), NLL)
    claims = [
        Comparison(said, interval, unit="nats", factor=1)
        for said, interval in found.items()
        if interval is not None
    ]
    beside = [
        f"divergence of {title(name)} {_distance(runs):.3g} nats per weight"
        for name, runs in told.items()
    ]
    return judged(claims, wanted=3, beside=beside, missing=NEEDS.lacks(results))


def _distance(runs: Sequence[Run]) -> float:
    ended = [run for run in runs if run["at_best"] is not None]
    return fmean(run["at_best"]["divergence"] / run["weights"] for run in ended) if ended else 0.0
