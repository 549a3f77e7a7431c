"""What a search is and what it finds: values alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from optuna.pruners import BasePruner, MedianPruner


@dataclass(frozen=True)
class Search:
    """Where a search is kept, how long it runs and which values are best.

    Args:
        storage: an SQLite file, or the URL of any database that Optuna takes.
        name: of the study there.
        trials: how many to finish in all, those of former calls included.
        seed: one process with the same seed tries the same settings.
        best: `min` or `max`.
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
    best: Callable[..., Any] = min
    pruner: BasePruner = field(default_factory=MedianPruner)
    heartbeat: int = 10
    retries: int = 3

    def __post_init__(self) -> None:
        least = {"trials": 1, "heartbeat": 1, "seed": 0, "retries": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if self.best not in (min, max):
            raise ValueError(f"best must be min or max, got {self.best!r}")


class Tried(NamedTuple):
    """One trial: `value` is the last one seen for a pruned trial, None where there is none."""

    number: int
    settings: dict[str, Any]
    value: float | None
    state: str  # waiting, running, complete, pruned, failed, or stopped by the user
    reason: str
    seconds: float | None
    retry_of: int | None  # the trial that was killed


Tell = Callable[[Sequence[Tried]], None]
