"""A target that is one of some classes."""

from collections import Counter
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data.columns import codes_of, label_of, labels_of, quoted
from bayesdiv.app.data.splits import ensure
from bayesdiv.calibration import Promised
from bayesdiv.likelihoods import Classes, Likelihood
from bayesdiv.metrics import TABLE as METRICS
from bayesdiv.predictive import Predictive

if TYPE_CHECKING:
    from pandas import Series

MOST_NAMED = 20  # classes in a description


@dataclass(frozen=True)
class Classification:
    """A target that is one of some classes; y is the index of its name in `classes`.

    Examples:
        >>> Classification(("benign", "malignant")).classes[1]
        'malignant'
    """

    classes: tuple[str, ...]
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll", "ece", "false_negative_rate")
    main: ClassVar[str] = "accuracy"
    log_scale: ClassVar[float] = 0.0

    @classmethod
    def check(cls, target: "Series") -> None:
        counts = Counter(map(label_of, target))
        rule = f"target {target.name!r} must have at least 2 classes"
        ensure(len(counts) > 1, f"{rule}, got {quoted(counts)} alone")
        single = quoted([label for label, count in counts.items() if count == 1], 3)
        rule = f"every class of target {target.name!r} must have at least 2 rows, got one of "
        ensure(not single, rule + single, ": choose another --target, or drop those rows")

    @classmethod
    def fit(cls, target: "Series") -> Self:
        return cls(labels_of(target))

    @classmethod
    def strata(cls, target: "Series") -> NDArray[np.int64] | None:
        return codes_of(target, labels_of(target))

    @property
    def description(self) -> str:
        more = len(self.classes) - MOST_NAMED
        named = ", ".join(self.classes[:MOST_NAMED])
        return f"{len(self.classes)} classes: {named}{f' and {more} more' if more > 0 else ''}"

    @property
    def outputs(self) -> int:
        return len(self.classes)

    @property
    def shifted(self) -> dict[str, int]:
        """All of them, of which only differences count."""
        return {"targets": self.outputs, "free": self.outputs - 1}

    def encode(self, target: "Series") -> Tensor:
        return torch.from_numpy(codes_of(target, self.classes))

    def likelihood(self) -> Likelihood:
        return Classes()

    def measured(self, predictive: Predictive, y: Tensor) -> dict[str, float]:
        """The metrics of predictions; what is missed only of two classes, if there is any."""
        missable = self.outputs == 2 and bool((y == 1).any())
        keys = [key for key in self.metrics if missable or key != "false_negative_rate"]
        return {key: METRICS[key].function(predictive, y).item() for key in keys}

    def columns(self, predictive: Predictive, level: float) -> dict[str, Tensor | list[str]]:
        """The likeliest class, all probabilities, entropy and its epistemic and aleatoric parts.

        After a calibration there is the set that holds the true class with probability `level`.
        """
        probabilities = predictive.probabilities
        found: dict[str, Tensor | list[str]] = {
            "predicted_class": [self.classes[k] for k in probabilities.argmax(-1).tolist()],
            **{f"probability_{name}": probabilities[:, k] for k, name in enumerate(self.classes)},
            "entropy": predictive.entropy,
            "mutual_information": predictive.mutual_information,
            "expected_entropy": predictive.entropy - predictive.mutual_information,
        }
        if isinstance(predictive, Promised):
            sets = predictive.sets(level).tolist()
            found["predicted_set"] = [" | ".join(compress(self.classes, row)) for row in sets]
        return found
