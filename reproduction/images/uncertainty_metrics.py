"""Table Tab:comp2: test NLL, test loss and calibration error on histopathology."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from reproduction import tables
from reproduction.images.plans import ALL, THREE
from reproduction.images.protocol import CONTENDERS
from reproduction.images.results import folds
from reproduction.images.running import Requirement
from reproduction.images.training_curves import demand
from reproduction.item import Outcome, Verdict

COLUMNS = {"nll": "test NLL", "loss": "test loss", "ece": "ECE"}
WAYS = {"mean": "at the mean", "averaged": "averaged"}
PUBLISHED = {
    "kl": {"nll": 0.0810, "loss": 177.6, "ece": 0.0323},
    "js_g": {"nll": 0.0706, "loss": 201.2, "ece": 0.0158},
    "js_a": {"nll": 0.0689, "loss": 15151.3, "ece": 0.0091},
}
NEEDS = Requirement(("histopathology-folds",), THREE)
missing, compute = NEEDS.missing, NEEDS.compute


def _told(results: Path) -> dict[str, list[dict[str, Any]]]:
    every = {name: folds(results, "histopathology", name) for name in ALL}
    return {name: told for name, told in every.items() if told}


def draw(results: Path, out: Path) -> list[Path]:
    """Means over folds at the best epoch, both at the posterior mean and averaged over draws."""
    told = _told(results)
    demand(bool(told), results)
    rows = [
        [
            f"{CONTENDERS[name].title}, {said}",
            *(_cell(runs, way, key) for key in COLUMNS),
            *(_published(name, key) if way == "mean" else "" for key in COLUMNS),
        ]
        for name, runs in told.items()
        for way, said in WAYS.items()
        if way == "mean" or name != "deterministic"
    ]
    head = ["divergence", *COLUMNS.values(), *(f"{t}, published" for t in COLUMNS.values())]
    count = max(map(len, told.values()))
    samples = next(iter(told.values()))[0]["protocol"]["test_samples"]
    note = (
        f"Histopathology, test patches, best epoch, mean ± standard deviation over {count} folds, "
        f"averaged over {samples} draws of the weights where said; the loss is (λD + Σ NLL)/N, "
        "whose λ and number of weights and patches are not those of the paper."
    )
    return tables.write(out, "uncertainty_metrics", head, rows, note)


def _cell(runs: Sequence[dict[str, Any]], way: str, key: str) -> str:
    values = [run["at_best"]["test"][way][key] for run in runs]
    spread = f" ± {stdev(values):.2g}" if len(values) > 1 else ""
    return f"{mean(values):.4g}{spread}"


def _published(name: str, key: str) -> str:
    return f"{PUBLISHED[name][key]:g}" if name in PUBLISHED else "–"


def verdict(results: Path) -> Verdict:
    """Whether both JS losses have a lower test NLL and a lower ECE than KL, means over folds.

    At the posterior mean, as in the authors' program. Reproduced if all four hold, partly if some.
    """
    told = _told(results)
    if any(name not in told for name in THREE):
        return Verdict(Outcome.OPEN, "there are no runs of KL and both JS losses yet")
    found = {
        name: {k: mean(r["at_best"]["test"]["mean"][k] for r in told[name]) for k in ("nll", "ece")}
        for name in THREE
    }
    met = sum(found[name][k] < found["kl"][k] for name in ("js_g", "js_a") for k in ("nll", "ece"))
    outcome = Outcome.REPRODUCED if met == 4 else Outcome.PARTLY if met else Outcome.NOT
    said = "; ".join(
        f"{CONTENDERS[name].title} NLL {own['nll']:.4f} (published {PUBLISHED[name]['nll']:.4f}), "
        f"ECE {own['ece']:.4f} ({PUBLISHED[name]['ece']:.4f})"
        for name, own in found.items()
    )
    return Verdict(outcome, said)
