"""Histopathology from ImageNet weights, as in the paper: how many tumours each loss misses.

The paper starts from a ResNet-18 with ImageNet weights; here an EfficientNet-lite0 is fine-tuned
(benchmarks/pretrained), and tested on patients of whom it has seen no patch. Tumours are counted as
missed at the cut at which 90 % of the healthy test patches are not called, so that no loss wins by
calling more. Each strength gives the pull of one weight decay: the KL here is a λKL, and KL at
strength 1 was not run.
"""

import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayesdiv.app import runs
from bayesdiv.app.data.downloads import data_folder
from reproduction import tables
from reproduction.contenders import title
from reproduction.images.comparing import Measure, Run, average, by_fold, reduction
from reproduction.images.confusion import PUBLISHED
from reproduction.images.departures import EPOCHS, PATCHES, PIXELS
from reproduction.images.drawing import demand
from reproduction.item import Effort, Tell
from reproduction.verdict import Comparison, Verdict, judged

HARNESS = Path("benchmarks", "pretrained")
SHOWN = {
    "plain": "plain fine-tuning",
    "last_kl": "last layer, λKL",
    "last_jsa": "last layer, JS-A",
    "all_kl": "all weights, λKL",
    "all_jsa": "all weights, JS-A",
    "all_jsg": "all weights, JS-G",
}
FOLDS = 5
SEEN = 96  # pixels at which the harness shows a patch of 50
CLAIMED = {"js_a": "all_jsa", "js_g": "all_jsg"}


def _score(key: str, worst: float) -> Measure:
    return Measure(lambda run: float(run["at_best"]["test"]["mean"][key]), worst)


MISSED = _score("missed_equal", 1.0)
"""The share of tumours that are missed at 90 % specificity."""
MISSED_BY_VALIDATION = _score("missed", 1.0)
"""The same at the cut of validation patients, where losses differ in specificity too."""
COLUMNS = {
    "missed, validation's cut": MISSED_BY_VALIDATION,
    "AUC": _score("auc", 0.5),
    "NLL": _score("nll", 16.1),
    "ECE": _score("ece", 1.0),
}


def folder(results: Path) -> Path:
    """Where the harness keeps its results: beside the folder of all others."""
    return results.parent / HARNESS / "results"


def told(results: Path) -> dict[str, list[dict[str, Any]]]:
    """The runs of each way to fine-tune, in the form that all comparisons read."""
    every = {name: [_run(path) for path in _files(results, name)] for name in SHOWN}
    return {name: found for name, found in every.items() if found}


def _files(results: Path, name: str) -> list[Path]:
    return sorted(folder(results).glob(f"final-patches-{name}-[0-9].json"))


def _run(path: Path) -> dict[str, Any]:
    read = runs.read_json(path)
    best = {"test": {"mean": read["scores"]["test"]}}
    return {**read, "fold": read["seed"] + 1, "at_best": best}


class Needs(NamedTuple):
    """The runs of the harness."""

    ways: tuple[str, ...] = tuple(SHOWN)

    def missing(self, results: Path) -> list[str]:
        """Which runs have no file yet."""
        have = {path.name for path in folder(results).glob("final-patches-*.json")}
        return [
            f"pretrained start: {SHOWN[name]}, fold {fold + 1}"
            for name in self.ways
            for fold in range(FOLDS)
            if f"final-patches-{name}-{fold}.json" not in have
        ]

    def compute(self, results: Path, effort: Effort, tell: Tell) -> None:
        """Run the harness: about half an hour on a GPU, with the pieces that its pack.py writes."""
        if effort is Effort.QUICK:
            tell("there is no toy of a pretrained network")
            return
        data, home = data_folder(), Path(__file__).parents[2] / HARNESS
        if data is None or not (data / "lite0.safetensors").exists():
            raise runs.RunError(
                f"BAYESDIV_DATA must name a folder with lite0.safetensors, got {data}: see "
                f"{HARNESS / 'README.md'}"
            )
        there = str(folder(results))
        for stage in ("tune", "final"):
            tell(f"{stage}: the runs that have no file")
            given = ["--data", str(data), "--runs", there, "--known", there, "--case", "patches"]
            command = [sys.executable, str(home / "run.py"), *given, "--stage", stage]
            subprocess.run(command, check=True)

    def lacks(self, results: Path) -> list[str]:
        """What of the paper's plan was not done, as the runs say it."""
        found = [run for each in told(results).values() for run in each]
        gone = len(self.missing(results))
        said = [f"{gone} of {FOLDS * len(SHOWN)} runs"] if gone else []
        if not found:
            return said
        trained = round(statistics.median(run["num_data"] for run in found))
        tries = len(list(folder(results).glob("tune-patches-all_kl-*.json")))
        return [
            *said,
            "KL at strength 1 (λKL)",
            "ResNet-18 (EfficientNet-lite0)",
            f"{PIXELS} pixels ({SEEN})",
            f"{EPOCHS} epochs ({found[0]['epochs']})",
            f"{PATCHES:,} patches ({trained:,} to train on)",
            "random split (unseen patients)",
            "cut at probability ½ (at 90 % specificity)",
            f"TPE ({tries} settings)",
        ]


NEEDS = Needs()


def draw(results: Path, out: Path) -> list[Path]:
    """A row for each way to fine-tune."""
    every = told(results)
    demand(bool(every), results)
    rows = [_row(every, name) for name in every]
    head = ["fine-tuning", "missed at 90 % specificity", "fewer than λKL, %", *COLUMNS]
    first = next(iter(every.values()))[0]
    note = (
        f"EfficientNet-lite0 from ImageNet weights, {first['epochs']} epochs on histopathology "
        f"patches at {SEEN} pixels, tested on unseen patients: mean ± standard deviation over "
        f"folds; fewer missed than by λKL on all weights, with a 95 % interval (published: JS-A "
        f"{-100 * PUBLISHED['js_a']:.1f}, JS-G {-100 * PUBLISHED['js_g']:.1f} fewer than KL). "
        f"Computed on {first['device']} with torch {first['torch']}."
    )
    return tables.write(out, "pretrained_start", head, rows, note)


def _row(every: Mapping[str, Sequence[Run]], name: str) -> list[str]:
    fewer = None
    if name != "all_kl":
        fewer = reduction(every[name], every.get("all_kl", ()), MISSED)
    return [
        SHOWN[name],
        _spread(every[name], MISSED),
        "–" if fewer is None else fewer.times(100).text(1),
        *(_spread(every[name], measure) for measure in COLUMNS.values()),
    ]


def _spread(found: Sequence[Run], measure: Measure) -> str:
    values = list(by_fold(found, measure).values())
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{average(found, measure):.3f}{spread}"


def verdict(results: Path) -> Verdict:
    """Whether both JS losses miss fewer tumours than KL, by about the published share.

    All weights are Bayesian around the ImageNet weights. The change is a share of what KL misses at
    90 % specificity, over folds of different unseen patients. KL is a λKL here. Shown too: the cut
    of validation patients, a Bayesian last layer alone, and plain fine-tuning.
    """
    every = told(results)
    fewer = {
        name: reduction(every.get(way, ()), every.get("all_kl", ()), MISSED)
        for name, way in CLAIMED.items()
    }
    claims = [
        Comparison(f"fewer missed by {title(name)} than by λKL", found, -PUBLISHED[name], unit="%")
        for name, found in fewer.items()
        if found is not None
    ]
    beside = _beside(every) if claims else []
    return judged(claims, wanted=len(CLAIMED), beside=beside, missing=NEEDS.lacks(results))


def _beside(every: Mapping[str, Sequence[Run]]) -> list[str]:
    """Comparisons that are not judged."""
    pairs = {
        "fewer missed by λKL than by plain fine-tuning": ("all_kl", "plain", MISSED),
        "fewer missed by JS-A than by plain fine-tuning": ("all_jsa", "plain", MISSED),
        "fewer missed by JS-A in the last layer alone": ("last_jsa", "last_kl", MISSED),
        "fewer missed by JS-A at validation's cut": ("all_jsa", "all_kl", MISSED_BY_VALIDATION),
    }
    found = {
        said: reduction(every.get(one, ()), every.get(other, ()), measure)
        for said, (one, other, measure) in pairs.items()
    }
    return [
        Comparison(said, interval, unit="%").text
        for said, interval in found.items()
        if interval is not None
    ]
