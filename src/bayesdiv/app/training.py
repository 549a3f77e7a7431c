"""An experiment trained: best weights kept, run written, resumed where it was stopped."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesdiv.app import runs
from bayesdiv.app.checkpoint import Keeper
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.experiment import Experiment, Training, built, evaluate
from bayesdiv.app.lock import owned
from bayesdiv.app.nets.away import Away
from bayesdiv.app.settings import describe
from bayesdiv.divergence import Divergence
from bayesdiv.training.fit import Epoch, EpochLoss

UNLIKE = "unlike.json"  # which rows are unlike those of the run
MOST_COLUMNS = 300  # of x; the squared number of these is written
MOST_SCORES = 2000  # distances of validation rows, enough for false alarms of 1 in 1,000
_RUNNING = 40  # updates per epoch below which running statistics lag behind the weights


def train(
    splits: Splits,
    divergence: Divergence | None,
    training: Training,
    *,
    folder: Path | None = None,
    source: Mapping[str, Any] | None = None,
    tell: Callable[[Epoch], None] = lambda epoch: None,
    weights: Mapping[str, Tensor] | None = None,
) -> tuple[Experiment, dict[str, Any]]:
    """Train, keep the weights of the best validation NLL, evaluate on the test part.

    Args:
        splits: the data.
        divergence: what holds the weights near the prior; None for a deterministic network.
        training: how.
        folder: where the run is written; a stopped run there is resumed. None writes nothing.
        source: how the data were loaded, kept with the run.
        tell: called after each epoch.
        weights: those that a pretrained network begins with.
    """
    experiment = built(splits, divergence, training, weights)
    settings = describe(experiment, splits, source or {})
    with nullcontext() if folder is None else owned(Path(folder)):
        return experiment, _trained(experiment, splits, settings, folder, tell)


def _trained(
    experiment: Experiment,
    splits: Splits,
    settings: dict[str, Any],
    folder: Path | None,
    tell: Callable[[Epoch], None],
) -> dict[str, Any]:
    optimizer = experiment.optimizer()
    keeper = Keeper(experiment.parts, experiment.history, optimizer, folder)
    done, began = keeper.begin(settings), time.perf_counter()
    lagging = (
        experiment.images is not None and splits.num_data < _RUNNING * experiment.training.size
    )
    try:
        for epoch in experiment.epochs(splits.train, optimizer, done):
            # The likelihood of the target in its own units, as in all that is shown.
            total, nll, divergence = epoch.loss
            shift = splits.task.log_scale
            epoch = epoch._replace(loss=EpochLoss(total + shift, nll + shift, divergence))
            if lagging:
                experiment.estimate_statistics(splits.train)
            keeper.after(epoch, evaluate(experiment, splits, splits.validation, experiment.watch))
            tell(epoch)
        keeper.restore_best()
        if isinstance(experiment.model, Away):
            experiment.model.settle(splits.train.x)
        if experiment.images is not None:
            experiment.estimate_statistics(splits.train)
        result = {
            "test": evaluate(experiment, splits, splits.test),
            "validation": evaluate(experiment, splits, splits.validation),
            "best_epoch": keeper.done.best.epoch,
            "seconds": keeper.seconds_before + time.perf_counter() - began,
        }
        if folder is not None:
            write_unlike(folder, splits)
        keeper.finish(result)
    except KeyboardInterrupt:
        keeper.back_to_the_last_epoch()
        keeper.checkpoint()
        raise
    return result


def write_unlike(folder: Path, splits: Splits) -> None:
    """Keep how far rows usually are from the training rows: of tables, not of many pixels.

    The distance is Mahalanobis', of the encoded rows; those of the validation rows, which it is not
    fitted to, set its threshold.
    """
    from bayesdiv.outliers import Mahalanobis

    if splits.num_features > MOST_COLUMNS or not len(splits.validation.x):
        return
    y = None if splits.train.y.is_floating_point() else splits.train.y
    try:
        distance = Mahalanobis.fit(splits.train.x.flatten(1), y)
    except ValueError:  # rows that do not vary, at least not within a class, have no distance
        return
    scores = distance(splits.validation.x.flatten(1))[:MOST_SCORES]
    content = {"distance": distance.state(), "scores": scores.tolist()}
    runs.write_sealed(folder, UNLIKE, content)


def unlike(folder: Path, x: Tensor, false_alarms: float) -> Tensor | None:
    """Which encoded rows are unlike those of training; None for a run that does not know.

    Of rows like those of training, at most this share is flagged on average.
    """
    from bayesdiv.outliers import Mahalanobis, Threshold

    if not (folder / UNLIKE).exists():
        return None
    saved: Any = runs.read_sealed(folder, UNLIKE)
    try:
        distance = Mahalanobis.from_state(saved["distance"])
        scores = torch.tensor(saved["scores"], dtype=torch.float64)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise runs.RunError(f"{folder / UNLIKE} is damaged: {error}") from None
    return Threshold.fit(scores, false_alarms).flags(distance(x.flatten(1)))
