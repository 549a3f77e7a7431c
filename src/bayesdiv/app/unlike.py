"""Which rows are unlike those that a run was trained on, kept with the run."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesdiv.app import runs
from bayesdiv.app.data.splits import Splits
from bayesdiv.outliers import Mahalanobis, Threshold

FILE = "unlike.json"
MOST_COLUMNS = 300  # of x; the squared number of these is written
MOST_SCORES = 2000  # distances of validation rows, enough for false alarms of 1 in 1,000


def write(folder: Path, splits: Splits) -> None:
    """Keep how far rows usually are from the training rows: of tables, not of many pixels.

    The distance is Mahalanobis', of the encoded rows; those of the validation rows, which it is not
    fitted to, set its threshold.
    """
    if splits.num_features > MOST_COLUMNS or not len(splits.validation.x):
        return
    y = None if splits.train.y.is_floating_point() else splits.train.y
    try:
        distance = Mahalanobis.fit(splits.train.x.flatten(1), y)
    except ValueError:  # rows that do not vary, at least not within a class, have no distance
        return
    scores = distance(splits.validation.x.flatten(1))[:MOST_SCORES]
    content = {"distance": distance.state(), "scores": scores.tolist()}
    runs.write_sealed(folder, FILE, content)


def flags(folder: Path, x: Tensor, false_alarms: float) -> Tensor | None:
    """Which rows of x are unlike the training rows; None for a run that does not know.

    Args:
        folder: of the run.
        x: encoded rows.
        false_alarms: the share of rows like those of training that is flagged, at most, on average.
    """
    if not (folder / FILE).exists():
        return None
    saved: Any = runs.read_sealed(folder, FILE)
    try:
        distance = Mahalanobis.from_state(saved["distance"])
        scores = torch.tensor(saved["scores"], dtype=torch.float64)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise runs.RunError(f"{folder / FILE} is damaged: {error}") from None
    return Threshold.fit(scores, false_alarms).flags(distance(x.flatten(1)))
