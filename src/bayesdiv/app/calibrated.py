"""Calibration of a run: fitted to held-out rows, kept in its folder, applied to predictions."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from bayesdiv.app import runs
from bayesdiv.app.experiment import Experiment
from bayesdiv.calibration import Levels, Saved, Spread, Temperature
from bayesdiv.compute.streams import seeded

FILE = "calibration.json"
KINDS: dict[str, type[Saved]] = {"spread": Spread, "temperature": Temperature, "conformal": Levels}
"""In the order in which they apply."""


def fit(
    folder: Path, experiment: Experiment, x: Tensor, y: Tensor, kind: str, source: str = ""
) -> Saved:
    """Fit and keep one kind; what was fitted before and applies after it is dropped.

    The rows are those of the file `source`, or the test rows if it is empty.
    """
    order = list(KINDS.values())
    before = order[: order.index(KINDS[kind])]
    experiment.calibration = tuple(c for c in experiment.calibration if type(c) in before)
    if kind == "spread":
        with seeded(experiment.training.seed):
            found: Saved = Spread.fit(
                experiment.model,
                experiment.likelihood,
                experiment.inputs(x),
                y,
                samples=experiment.rounds(experiment.training.draws),
                batch_size=512,
            )
    else:
        found = (Temperature if kind == "temperature" else Levels).fit(experiment.predict(x), y)
    experiment.calibration = (*experiment.calibration, found)
    states = [saved.state() for saved in experiment.calibration]
    earlier = {one["kind"]: one for one in fitted(folder)}
    told = [earlier.get(name, {"kind": name}) for name in _kinds(experiment.calibration[:-1])]
    told.append({"kind": kind, "rows": len(y), "source": source, "sha256": digest(x, y)})
    runs.write_sealed(folder, FILE, {"calibration": states, "fitted": told})
    return found


def digest(x: Tensor, y: Tensor) -> str:
    """SHA-256 of rows, by which a report knows those that a calibration was fitted to."""
    found = hashlib.sha256()
    for rows in (x, y):
        found.update(rows.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def fitted(folder: Path) -> list[dict[str, Any]]:
    """For each kind that a run is calibrated by: its rows, their file ("" for test), their digest.

    Only the kind is known of a calibration that an earlier version has kept.
    """
    if not (folder / FILE).exists():
        return []
    content: Any = runs.read_sealed(folder, FILE)
    return content.get("fitted") or [{"kind": name} for name in _kinds(read(folder))]


def named(calibration: Sequence[Saved]) -> str:
    """What was fitted, by the words of the command line."""
    return ", ".join(_kinds(calibration))


def _kinds(calibration: Sequence[Saved]) -> list[str]:
    kinds = [type(saved) for saved in calibration]
    return [name for name, kind in KINDS.items() if kind in kinds]


def read(folder: Path) -> tuple[Saved, ...]:
    """The calibration of a run; none where the file is missing."""
    if not (folder / FILE).exists():
        return ()
    content: Any = runs.read_sealed(folder, FILE)
    try:
        return tuple(map(Saved.from_state, content["calibration"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise runs.RunError(f"{folder / FILE} is damaged: {error}") from None
