"""Calibration of a run: fitted to held-out rows, kept in its folder, applied to predictions."""

import hashlib
import math
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from torch import Tensor

from bayesdiv.app import runs
from bayesdiv.app.experiment import Experiment
from bayesdiv.calibration import Levels, Saved, Spread, Temperature
from bayesdiv.compute.noise import seeded

FILE = "calibration.json"
KINDS: dict[str, type[Saved]] = {"spread": Spread, "temperature": Temperature, "conformal": Levels}
"""In the order in which they apply."""


def fit(
    folder: Path, experiment: Experiment, x: Tensor, y: Tensor, kind: str, source: str = ""
) -> Saved:
    """Fit and keep one kind; what was fitted before and applies after it is dropped.

    The rows are those of the file `source`, or the test rows if it is empty.
    """
    before = list(KINDS)[: list(KINDS).index(kind)]
    kept = [one for one in fitted(folder) if one["kind"] in before]
    experiment.calibration = tuple(Saved.from_state(one["state"]) for one in kept)
    if kind == "spread":
        parts = experiment.model, experiment.likelihood, experiment.inputs(x), y
        samples = experiment.training.test_samples
        with seeded(experiment.training.seed):
            found: Saved = Spread.fit(*parts, samples=samples, batch_size=512)
    else:
        found = (Temperature if kind == "temperature" else Levels).fit(experiment.predict(x), y)
    experiment.calibration = (*experiment.calibration, found)
    told = {"kind": kind, "rows": len(y), "source": source, "sha256": digest(x, y)}
    runs.write_sealed(folder, FILE, {"fitted": [*kept, {**told, "state": found.state()}]})
    return found


def digest(*rows: Tensor, said: str = "") -> str:
    """SHA-256 of rows, by which a report knows those that a calibration was fitted to."""
    found = hashlib.sha256(said.encode())
    for each in rows:
        found.update(each.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def fitted(folder: Path) -> list[dict[str, Any]]:
    """For each kind of a run's calibration: rows, their file ("" for test), their digest, state."""
    return list(runs.read_sealed(folder, FILE)["fitted"]) if (folder / FILE).exists() else []


def named(calibration: Iterable[Saved]) -> str:
    """What was fitted, by the words of the command line."""
    kinds = [type(saved) for saved in calibration]
    return ", ".join(name for name, kind in KINDS.items() if kind in kinds)


def read(folder: Path) -> tuple[Saved, ...]:
    """The calibration of a run; none where the file is missing."""
    with runs.reported(folder / FILE, "read"):
        return tuple(Saved.from_state(one["state"]) for one in fitted(folder))


def unserved(calibration: Iterable[Saved], level: float) -> list[str]:
    """A note where a conformal calibration has too few rows for a level; else nothing."""
    share = Fraction(repr(float(level)))
    needed = math.ceil(share / (1 - share))
    return [
        f"the calibration has {len(each.scores)} held-out rows, which serve levels up to "
        f"{largest(len(each.scores))}; at level {level:g} every "
        f"{'set holds all classes' if each.score is None else 'interval is infinite'}: calibrate "
        f"with at least {needed} rows"
        for each in calibration
        if isinstance(each, Levels) and len(each.scores) < needed
    ]


def largest(rows: int) -> float:
    """The largest level, in four digits, that so many held-out rows serve."""
    return rows * 10_000 // (rows + 1) / 10_000
