"""What a target column needs, from its values in a table to the report on its predictions."""

import pkgutil
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app import tasks
from bayesdiv.likelihoods import Likelihood
from bayesdiv.predictive import Predictive

if TYPE_CHECKING:
    from pandas import Series


class Task(Protocol):
    """A kind of target: a frozen dataclass `Name` in a file `app/tasks/name.py`.

    Its fields are what is learned from the training targets, plain numbers and strings, so that a
    run can be restored from them.
    """

    metrics: ClassVar[tuple[str, ...]]  # keys of `bayesdiv.metrics.TABLE` as in a table; with nll
    main: ClassVar[str]  # the metric that is drawn by epoch beside the NLL

    @classmethod
    def check(cls, target: "Series") -> None:
        """Complain of a column that is no such target."""

    @classmethod
    def fit(cls, target: "Series") -> Self:
        """The task with its units or classes, from training targets."""

    @classmethod
    def strata(cls, target: "Series") -> NDArray[np.int64] | None:
        """Groups that every part of the data gets its share of; None to draw rows freely."""

    @property
    def description(self) -> str: ...  # what the target is, for people
    @property
    def outputs(self) -> int: ...  # how many numbers the network gives
    @property
    def shifted(self) -> dict[str, int]: ...  # which it is less sure of away; arguments of `Away`
    @property
    def log_scale(self) -> float: ...  # what makes a negative log density one in target's units
    def encode(self, target: "Series") -> Tensor: ...  # targets as y
    def likelihood(self) -> Likelihood: ...  # from outputs to a distribution of y
    def measured(self, predictive: Predictive, y: Tensor) -> dict[str, float]:
        """The metrics of predictions, in the units of the target."""

    def columns(self, predictive: Predictive, level: float) -> dict[str, Tensor | list[str]]:
        """What `bayesdiv predict` adds to a table."""


def names() -> list[str]:
    """The tasks that there are, by the names of their files.

    Examples:
        >>> names()
        ['classification', 'counts', 'regression']
    """
    return sorted(found.name for found in pkgutil.iter_modules(tasks.__path__))


def named(name: str) -> type[Task]:
    """A task by its name.

    Examples:
        >>> named("counts").__name__
        'Counts'
        >>> named("ranks")
        Traceback (most recent call last):
        ValueError: task must be one of classification, counts, regression, got ranks
    """
    if name not in names():
        raise ValueError(f"task must be one of {', '.join(names())}, got {name}")
    module = import_module(f"{tasks.__name__}.{name}")
    return cast(type[Task], getattr(module, name.title().replace("_", "")))


def name_of(task: Task | type[Task]) -> str:
    """The name that `named` knows a task by."""
    return (task if isinstance(task, type) else type(task)).__module__.rpartition(".")[2]


def described(task: Task) -> dict[str, Any]:
    """A task as JSON, for `settings.task_of`."""
    return {"kind": name_of(task), **asdict(task)}  # type: ignore[call-overload]
