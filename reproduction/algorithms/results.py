"""What both algorithms need: a file of trained networks and one of times, which needs a GPU."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bayesdiv.app import runs
from reproduction.algorithms.training import SIZES, WAYS, compared, timed
from reproduction.hardware import hardware
from reproduction.intervals import Interval, student
from reproduction.item import Effort, Tell, stamp

TRAINED = Path("algorithms", "trained.json")
TIMED = Path("algorithms", "timed.json")


class Results(NamedTuple):
    """What both algorithms are judged by; its `missing` and `compute` are the items'."""

    ways: tuple[str, ...] = tuple(WAYS)

    def missing(self, results: Path) -> list[str]:
        """Which of the two files is not there."""
        words = {TRAINED: "networks trained by exact rules and by samples", TIMED: "their times"}
        return [said for place, said in words.items() if not (results / place).exists()]

    def compute(self, results: Path, effort: Effort, tell: Tell) -> None:
        """Train on the CPU in a minute; time on a GPU, or at a toy size on a CPU."""
        size = SIZES[effort]
        if not (results / TRAINED).exists():
            told = {"settings": asdict(size), **stamp(), **compared(self.ways, size, tell)}
            runs.write_json(results / TRAINED, told)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if (results / TIMED).exists():
            return
        if effort is Effort.FULL and device.type == "cpu":
            tell("the times of a residual network at 224 pixels need a GPU")
            return
        times = timed(self.ways, size, device, tell)
        told = {"settings": asdict(size), **stamp(), "hardware": hardware(device), "times": times}
        runs.write_json(results / TIMED, told)


NEEDS = Results()


def read(results: Path, place: Path) -> dict[str, Any] | None:
    """A file, where it is there."""
    return runs.read_json(results / place) if (results / place).exists() else None


def apart(told: dict[str, Any], one: str, other: str) -> Interval:
    """Test accuracy of one way above another, seed by seed."""
    pairs = zip(told[one], told[other], strict=True)
    return student([own["accuracy"] - theirs["accuracy"] for own, theirs in pairs])


def learned(told: dict[str, Any], name: str) -> bool:
    """Whether the loss of every seed ends below half of where it was after the first epoch."""
    return all(run["losses"][-1] < 0.5 * run["losses"][0] for run in told[name])
