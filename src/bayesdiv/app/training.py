"""An experiment trained: best weights kept, run written, resumed where it was stopped."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bayesdiv.app import runs
from bayesdiv.app.data.splits import Splits
from bayesdiv.app.experiment import Experiment, Training, built, evaluate
from bayesdiv.app.nets.tables import Away
from bayesdiv.app.settings import describe, restore
from bayesdiv.divergence import Divergence
from bayesdiv.model.bayesianize import plain
from bayesdiv.outliers import Mahalanobis, Threshold
from bayesdiv.training.best import Best, Kept, state_of
from bayesdiv.training.fit import Diverged, Epoch, EpochLoss

SECONDS_BETWEEN_CHECKPOINTS = 5.0
UNLIKE = "unlike.json"  # which rows are unlike those of the run
MOST_COLUMNS = 300  # of x; the squared number of these is written
MOST_SCORES = 2000  # distances of validation rows, enough for false alarms of 1 in 1,000
_RUNNING = 40  # updates per epoch below which running statistics lag behind the weights

Tell = Callable[[Epoch, Mapping[str, float]], None]


def train(
    splits: Splits,
    divergence: Divergence | None,
    training: Training,
    *,
    folder: Path | None = None,
    source: Mapping[str, Any] | None = None,
    tell: Tell = lambda epoch, validation: None,
) -> tuple[Experiment, dict[str, Any]]:
    """Train, keep the weights of the best validation NLL, evaluate on the test part.

    Args:
        splits: the data.
        divergence: what holds the weights near the prior; None for a deterministic network.
        training: how.
        folder: where the run is written; a stopped run there is resumed.
        source: how the data were loaded, kept with the run.
        tell: called after each epoch with it and its validation metrics.
    """
    experiment = built(splits, divergence, training, _pretrained(training.pretrained))
    settings, shift = describe(experiment, splits, source or {}), splits.task.log_scale
    updates = -(-splits.num_data // experiment.training.batch_size)
    lagging = experiment.images is not None and updates < _RUNNING
    with nullcontext() if folder is None else runs.owned(Path(folder)):
        keeper = Keeper(experiment, folder)
        done = keeper.begin(settings)
        try:
            for epoch in experiment.epochs(splits.train, keeper.optimizer, done):
                # The likelihood of the target in its own units, as in all that is shown.
                total, nll, held = epoch.loss
                epoch = epoch._replace(loss=EpochLoss(total + shift, nll + shift, held))
                if lagging:
                    experiment.estimate_statistics(splits.train)
                found = evaluate(experiment, splits, splits.validation, experiment.watch)
                keeper.after(epoch, found)
                tell(epoch, found)
            best = keeper.restore_best()
            if isinstance(experiment.model, Away):
                experiment.model.settle(splits.train.x)
            if experiment.images is not None:
                experiment.estimate_statistics(splits.train)
            return experiment, keeper.finish(splits, best_epoch=best)
        except KeyboardInterrupt:
            keeper.checkpoint()
            raise


def _pretrained(given: str | None) -> dict[str, Tensor] | None:
    """The initial weights: of a file, or the means of a run."""
    if given is None:
        return None
    path = Path(given)
    run = path.parent if path.name == runs.WEIGHTS else path  # of a run they hold means and scales
    if (run / runs.SETTINGS).is_file() or path.is_dir():
        model = plain(restore(run)[0].model)
        return {name.partition(".")[2]: own for name, own in model.state_dict().items()}
    try:
        return dict(load_file(given))
    except (OSError, SafetensorError) as error:
        raise ValueError(f"pretrained must be a .safetensors file, got {given}: {error}") from None


class Keeper:
    """Remembers the best weights and history, and writes them if there is a folder."""

    def __init__(self, experiment: Experiment, folder: Path | None = None) -> None:
        self.experiment, self.folder = experiment, folder
        self.parts, self.history = experiment.parts, experiment.history
        self.optimizer = experiment.optimizer()
        self.learning: dict[str, Any] = {**self.parts, "optimizer": self.optimizer}
        self.best = Best(**self.parts)
        # An epoch and all states after it: one value, so that Ctrl-C meets it whole.
        self.last = 0, state_of(self.learning)
        self.began = self.saved_at = time.perf_counter()
        self.identity = ""

    def begin(self, settings: dict[str, Any]) -> int:
        """Write the settings, or take up the run that is there; how many epochs are done."""
        self.identity = runs.identity(settings)
        if self.folder is None:
            return 0
        path, checkpoint = self.folder / runs.SETTINGS, self.folder / runs.CHECKPOINT
        if (self.folder / runs.METRICS).exists():
            raise runs.RunError(f"{self.folder} holds a finished run: choose another folder")
        there = {}
        if path.exists():
            there = runs.read_json(path)
            runs.check_format(path, there)
            _check_same(self.folder, there, settings)
        if there.get("data") != settings["data"]:  # or the same rows in a file that has moved
            runs.write_json(path, settings)
        if checkpoint.exists():
            runs.check_identity(checkpoint, settings)
            runs.load_state(checkpoint, {f"best {name}": part for name, part in self.parts.items()})
            state = state_of(self.parts)  # before the modules take what they held last
            told = runs.load_state(checkpoint, self.learning)
            self.best.kept = Kept(told["best_epoch"], told["best_nll"], state)
            self.last = told["epoch"], state_of(self.learning)
            self.began -= told["seconds"]
            self.history[:] = runs.read_history(self.folder, told["epoch"])
        runs.start_history(self.folder, self.history)
        return self.last[0]

    def after(self, epoch: Epoch, validation: dict[str, float]) -> None:
        """Note an epoch."""
        line = {"epoch": epoch.number, **epoch.loss._asdict()}
        line |= {"strength": epoch.strength, "seconds": epoch.seconds}
        line |= {f"validation_{name}": value for name, value in validation.items()}
        self.history.append(line)
        if self.folder is not None:
            runs.append_history(self.folder, line)
        self.best.after(epoch.number, validation["nll"])
        # Without a folder nothing is gone back to, and a copy of all would be for nothing.
        self.last = epoch.number, self.last[1] if self.folder is None else state_of(self.learning)
        if time.perf_counter() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Save all that a resumed run needs of the last whole epoch, unless it is finished."""
        if self.folder is None or (self.folder / runs.METRICS).exists():
            return
        (epoch, states), best = self.last, self.best.kept
        runs.save_state(
            self.folder / runs.CHECKPOINT,
            {**states, **{f"best {name}": state for name, state in best.state.items()}},
            settings=self.identity,
            epoch=epoch,
            best_nll=best.score,
            best_epoch=best.epoch,
            seconds=time.perf_counter() - self.began,
        )
        self.saved_at = time.perf_counter()

    def restore_best(self) -> int:
        """Put the best weights back, of some epoch that was trained; its number."""
        if self.best.kept.epoch == 0:
            said = "the validation NLL was not finite after any epoch: lower the learning rate or "
            raise Diverged(f"{said}the strength, or look for extreme values in the data")
        return self.best.restore()

    def finish(self, splits: Splits, **known: float) -> dict[str, Any]:
        """Write weights and metrics; the metrics last, since they mark a run as finished."""
        result: dict[str, Any] = {
            "test": evaluate(self.experiment, splits, splits.test),
            "validation": evaluate(self.experiment, splits, splits.validation),
            "seconds": time.perf_counter() - self.began,
            **known,
        }
        if self.folder is not None:
            write_unlike(self.folder, splits)
            weights = state_of(self.parts)
            runs.save_state(self.folder / runs.WEIGHTS, weights, settings=self.identity)
            runs.write_json(self.folder / runs.METRICS, result)
            (self.folder / runs.CHECKPOINT).unlink(missing_ok=True)
        return result


def _check_same(folder: Path, there: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to continue with other settings or rows; a file may have moved with its rows."""
    changed = runs.differences(there, wanted)
    count = "num_data" in changed  # from which some settings of the training follow
    given = ("data.",) if count else ("data.", "training.", "divergence")
    if "fingerprint" in changed and not any(name.startswith(given) for name in changed):
        told = f" ({there.get('num_data')} to train on, now {wanted['num_data']})"
        how = told if count else ""
        said = f"was started with different rows{how}: restore them, or choose another folder"
        raise runs.RunError(f"{folder} holds a run that {said}")
    free = {"version", "fingerprint"} if "fingerprint" in changed else {"version", "data.data"}
    for name in sorted(changed.keys() - free):
        said = f"holds a run with other settings: {name} is {changed[name]}; choose another folder"
        raise runs.RunError(f"{folder} {said}")


def write_unlike(folder: Path, splits: Splits) -> None:
    """Keep the usual Mahalanobis distances of validation rows of a table, for `unlike`."""
    if splits.num_features > MOST_COLUMNS or not len(splits.validation.x):
        return
    y = None if splits.train.y.is_floating_point() else splits.train.y
    try:
        distance = Mahalanobis.fit(splits.train.x.flatten(1), y)
    except ValueError:  # rows that do not vary, at least not within a class, have no distance
        return
    scores = distance(splits.validation.x.flatten(1))[:MOST_SCORES].tolist()
    runs.write_sealed(folder, UNLIKE, {"distance": distance.state(), "scores": scores})


def unlike(folder: Path, x: Tensor, false_alarms: float) -> Tensor | None:
    """Which encoded rows are unlike those of training, with false alarms; None where not known."""
    if not (folder / UNLIKE).exists():
        return None
    with runs.reported(folder / UNLIKE, "read"):
        saved = runs.read_sealed(folder, UNLIKE)
        distance = Mahalanobis.from_state(saved["distance"])
        scores = torch.tensor(saved["scores"], dtype=torch.float64)
    return Threshold.fit(scores, false_alarms).flags(distance(x.flatten(1)))
