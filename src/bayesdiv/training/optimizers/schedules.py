"""How a learning rate runs over the updates, as a factor of its first value."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Cosine:
    """Rise linearly, then fall along half a cosine to 0.

        factor(t) = ½ (1 + cos(π (t - warm_up)/(steps - warm_up)))

    For `fit(…, schedule=LambdaLR(optimizer, Cosine(epochs * len(batches))))`.

    Examples:
        >>> [round(Cosine(4)(step), 2) for step in range(5)]
        [1.0, 0.85, 0.5, 0.15, 0.0]
    """

    steps: int
    warm_up: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up < self.steps:
            raise ValueError(
                f"warm_up must be at least 0 and below steps, got {self.warm_up} of {self.steps}"
            )

    def __call__(self, step: int) -> float:
        """The factor of a step, counted from 0."""
        if step < self.warm_up:
            return (step + 1) / (self.warm_up + 1)
        done = (step - self.warm_up) / (self.steps - self.warm_up)
        return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
