"""A network for tables."""

from dataclasses import dataclass
from itertools import pairwise

from torch import nn


@dataclass(frozen=True)
class MLP:
    """Fully connected layers with ReLU between them (the paper's regression: 50 hidden units).

    Args:
        inputs: numbers per row.
        outputs: numbers out.
        hidden: units of each hidden layer.

    Examples:
        >>> MLP(inputs=8, outputs=1).build()[0]
        Linear(in_features=8, out_features=50, bias=True)
    """

    inputs: int
    outputs: int
    hidden: tuple[int, ...] = (50,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if min(self.inputs, self.outputs, *self.hidden) < 1:
            raise ValueError(f"every layer must have at least one unit, got {self}")

    def build(self) -> nn.Sequential:
        """The network, its weights drawn at random."""
        widths = [self.inputs, *self.hidden, self.outputs]
        layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers[:-1])
