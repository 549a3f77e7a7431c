"""What a search is and what it finds: values alone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from optuna.pruners import BasePruner, MedianPruner
from optuna.study import StudyDirection


@dataclass(frozen=True)
class Aim:
    """What a search is after: a metric, and `min` or `max` for which of its values is best.

    Examples:
        >>> Aim("ece", best=min)
        Aim(key='ece', best=<built-in function min>)
    """

    key: str
    best: Callable[[Iterable[float]], float] = min

    def __post_init__(self) -> None:
        if self.best not in (min, max):
            raise ValueError(f"best must be min or max, got {self.best!r}")

    @property
    def direction(self) -> StudyDirection:
        """The same in Optuna's word."""
        return StudyDirection.MINIMIZE if self.best is min else StudyDirection.MAXIMIZE


NLL = Aim("nll", min)
ACCURACY = Aim("accuracy", max)
RMSE = Aim("rmse", min)


@dataclass(frozen=True)
class Search:
    """Where a search is kept, how long it goes on and what it is after.

    Args:
        storage: an SQLite file, or the URL of any database that Optuna takes.
        name: of the study there.
        trials: how many are to be finished in all, those of former calls included.
        seed: one process with the same seed tries the same settings.
        aim: which values are best.
        workers: processes on this machine.
        pruner: which trials are broken off; the worse half by default.
        heartbeat: seconds between signs of life of a trial; after three without, it has failed.
        retries: how often a trial that was killed is tried again; the next call replaces it.

    Examples:
        >>> Search("study.db", trials=0)
        Traceback (most recent call last):
        ValueError: trials must be at least 1, got 0
    """

    storage: str | Path
    name: str = "search"
    trials: int = 30
    seed: int = 0
    aim: Aim = NLL
    workers: int = 1
    pruner: BasePruner = field(default_factory=MedianPruner)
    heartbeat: int = 10
    retries: int = 3

    def __post_init__(self) -> None:
        least = {"trials": 1, "workers": 1, "heartbeat": 1, "seed": 0, "retries": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)}")


class Tried(NamedTuple):
    """One trial: `value` is the last one seen for a pruned trial, None where there is none."""

    number: int
    settings: dict[str, Any]
    value: float | None
    state: str  # waiting, running, complete, pruned, failed, or stopped by hand
    reason: str
    seconds: float | None
    retry_of: int | None  # the trial that was killed


class Best(NamedTuple):
    """The settings of the best trial that came to its end."""

    number: int
    value: float
    settings: dict[str, Any]


Tell = Callable[[Sequence[Tried]], None]
