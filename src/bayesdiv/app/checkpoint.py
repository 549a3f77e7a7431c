"""What is kept of a training: its best weights and history, and all that a resumed run needs."""

import copy
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from torch.optim import Optimizer

from bayesdiv.app import runs
from bayesdiv.training.best import Kept, State, put_back, state_of
from bayesdiv.training.fit import Diverged, Epoch

SECONDS_BETWEEN_CHECKPOINTS = 5.0


class _Done(NamedTuple):
    """All that is known after an epoch.

    It is replaced as one value, so that Ctrl-C meets the old one whole or the new one whole.
    """

    epoch: int
    last: tuple[State, dict[str, Any]]  # parts and optimizer after that epoch
    best: Kept


class Keeper:
    """Remembers the best weights and history, and writes them if there is a folder."""

    def __init__(
        self,
        parts: Mapping[str, nn.Module],
        history: list[dict[str, Any]],
        optimizer: Optimizer,
        folder: Path | None,
    ) -> None:
        self.parts, self.history, self.optimizer, self.folder = parts, history, optimizer, folder
        self.done = _Done(0, self._whole_state(), Kept(0, math.inf, state_of(parts)))
        self.seconds_before, self.began = 0.0, time.perf_counter()
        self.saved_at = time.perf_counter()
        self.identity = ""

    def begin(self, settings: dict[str, Any]) -> int:
        """Write the settings, or take up the run that is there; how many epochs are done."""
        self.identity = runs.identity(settings)
        if self.folder is None:
            return 0
        if (self.folder / runs.METRICS).exists():
            raise runs.RunError(f"{self.folder} holds a finished run: choose another folder")
        if not (self.folder / runs.SETTINGS).exists():
            runs.write_json(self.folder / runs.SETTINGS, settings)
            runs.start_history(self.folder, [])
            return 0
        there = runs.read_json(self.folder / runs.SETTINGS)
        runs.check_format(self.folder / runs.SETTINGS, there)
        _check_same(self.folder, there, settings)
        if there["data"] != settings["data"]:  # the same rows, in a file that has moved
            there["data"] = settings["data"]
            runs.write_json(self.folder / runs.SETTINGS, there)
        if not (self.folder / runs.CHECKPOINT).exists():
            runs.start_history(self.folder, [])
            return 0
        runs.check_identity(self.folder / runs.CHECKPOINT, settings)
        return self._resume(self.folder)

    def _resume(self, folder: Path) -> int:
        best = {f"best {name}": part for name, part in self.parts.items()}
        runs.load_state(folder / runs.CHECKPOINT, best)
        state = state_of(self.parts)  # before the modules take what they held last
        told = runs.load_state(folder / runs.CHECKPOINT, self.parts, self.optimizer)
        kept = Kept(told["best_epoch"], told["best_nll"], state)
        self.done = _Done(told["epoch"], self._whole_state(), kept)
        self.seconds_before = told["seconds"]
        self.history[:] = runs.read_history(folder, self.done.epoch)
        runs.start_history(folder, self.history)
        return self.done.epoch

    def after(self, epoch: Epoch, validation: dict[str, float]) -> None:
        """Note an epoch."""
        line = {
            "epoch": epoch.number,
            **epoch.loss._asdict(),
            "strength": epoch.strength,
            "seconds": epoch.seconds,
            **{f"validation_{name}": value for name, value in validation.items()},
        }
        self.history.append(line)
        if self.folder is not None:
            runs.append_history(self.folder, line)
        nll, best = validation["nll"], self.done.best
        if nll < best.score:
            best = Kept(epoch.number, nll, state_of(self.parts))
        # Without a folder nothing is gone back to, and a copy of all would be for nothing.
        last = self.done.last if self.folder is None else self._whole_state()
        self.done = _Done(epoch.number, last, best)
        if time.perf_counter() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Save all that a resumed run needs, unless it is finished."""
        if self.folder is None or (self.folder / runs.METRICS).exists():
            return
        best = {f"best {name}": state for name, state in self.done.best.state.items()}
        runs.save_state(
            self.folder / runs.CHECKPOINT,
            {**self.parts, **best},
            self.optimizer,
            settings=self.identity,
            epoch=self.done.epoch,
            best_nll=self.done.best.score,
            best_epoch=self.done.best.epoch,
            seconds=self.seconds_before + time.perf_counter() - self.began,
        )
        self.saved_at = time.perf_counter()

    def restore_best(self) -> None:
        """Put the best weights back into the experiment; there must be some that were trained."""
        if self.done.best.epoch == 0:
            raise Diverged(
                "the validation NLL was not finite after any epoch: lower the learning rate or the "
                "strength, or look for extreme values in the data"
            )
        put_back(self.done.best.state, self.parts)

    def finish(self, result: dict[str, Any]) -> None:
        """Write weights and metrics; the metrics last, since they mark a run as finished."""
        if self.folder is not None:
            runs.save_state(self.folder / runs.WEIGHTS, self.parts, settings=self.identity)
            runs.write_json(self.folder / runs.METRICS, result)
            (self.folder / runs.CHECKPOINT).unlink(missing_ok=True)

    def back_to_the_last_epoch(self) -> None:
        """Undo the steps of an epoch that was broken off: only whole epochs can be repeated."""
        state, optimizer = self.done.last
        put_back(state, self.parts)
        self.optimizer.load_state_dict(optimizer)

    def _whole_state(self) -> tuple[State, dict[str, Any]]:
        return state_of(self.parts), copy.deepcopy(self.optimizer.state_dict())


def _check_same(folder: Path, there: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to continue with other settings or rows; a file may have moved with its rows."""
    same_rows = there["fingerprint"] == wanted["fingerprint"]
    for name, how in runs.differences(there, wanted).items():
        if name not in ("version", "fingerprint") and not (name == "data.data" and same_rows):
            raise runs.RunError(
                f"{folder} holds a run with other settings: {name} is {how}; choose another folder"
            )
    if not same_rows:
        raise runs.RunError(
            f"{folder} holds a run that was started with different rows: restore them, "
            "or choose another folder"
        )
