"""Test NLL, test loss and calibration error on histopathology."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from reproduction import tables
from reproduction.contenders import JS, THREE, title
from reproduction.images.comparing import ECE, NLL, everyone, reduction
from reproduction.images.drawing import demand
from reproduction.images.plans import ALL
from reproduction.images.results import folds
from reproduction.images.running import Requirement
from reproduction.verdict import Comparison, Verdict, judged

COLUMNS = {"nll": "test NLL", "loss": "test loss", "ece": "ECE"}
WAYS = {"mean": "at the mean", "averaged": "averaged"}
PUBLISHED = {
    "kl": {"nll": 0.0810, "loss": 177.6, "ece": 0.0323},
    "js_g": {"nll": 0.0706, "loss": 201.2, "ece": 0.0158},
    "js_a": {"nll": 0.0689, "loss": 15151.3, "ece": 0.0091},
}
NEEDS = Requirement(("histopathology-folds",), THREE, measures=("NLL", "ECE"))


def _told(results: Path) -> dict[str, list[dict[str, Any]]]:
    every = {name: folds(results, "histopathology", name) for name in ALL}
    return {name: told for name, told in every.items() if told}


def draw(results: Path, out: Path) -> list[Path]:
    """Means over folds at the best epoch, both at the posterior mean and averaged over draws."""
    told = _told(results)
    demand(bool(told), results)
    rows = [
        [
            f"{title(name)}, {said}",
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
    """Whether both JS losses have a lower test NLL and ECE than KL, by the published shares.

    All at the posterior mean, as in the authors' program.
    """
    told = everyone(results, "histopathology", (*THREE, "lambda_kl"))
    found = {
        (name, key): reduction(told.get(name, ()), told.get("kl", ()), measure)
        for name in (*JS, "lambda_kl")
        for key, measure in (("nll", NLL), ("ece", ECE))
    }
    known = {
        (name, key): Comparison(
            f"{COLUMNS[key]} of {title(name)} below KL", less, _theirs(name, key), unit="%"
        )
        for (name, key), less in found.items()
        if less is not None
    }
    claims = [one for (name, _), one in known.items() if name in PUBLISHED]
    beside = [one.text for (name, _), one in known.items() if name not in PUBLISHED]
    return judged(claims, wanted=4, beside=beside, missing=NEEDS.lacks(results))


def _theirs(name: str, key: str) -> float | None:
    return 1 - PUBLISHED[name][key] / PUBLISHED["kl"][key] if name in PUBLISHED else None
