"""How a learning rate runs over the epochs, as a factor of its first value."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Cosine:
    """Rise linearly, then fall along half a cosine to 0.

        factor(t) = ½ (1 + cos(π (t - warm_up)/(epochs - warm_up)))

    Give it to torch: `LambdaLR(optimizer, Cosine(60))`, with one `step()` after each epoch. A
    learning rate that is a tensor is changed in place, as a recorded step needs it.

    Args:
        epochs: of the whole run.
        warm_up: epochs of the rise.

    Examples:
        >>> [round(Cosine(4)(epoch), 2) for epoch in range(5)]
        [1.0, 0.85, 0.5, 0.15, 0.0]
        >>> Cosine(10, warm_up=2)(0)
        0.3333333333333333
    """

    epochs: int
    warm_up: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up < self.epochs:
            raise ValueError(
                f"warm_up must be at least 0 and below epochs, got {self.warm_up} of {self.epochs}"
            )

    def __call__(self, epoch: int) -> float:
        """The factor in an epoch, counted from 0."""
        if epoch < self.warm_up:
            return (epoch + 1) / (self.warm_up + 1)
        done = (epoch - self.warm_up) / (self.epochs - self.warm_up)
        return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
