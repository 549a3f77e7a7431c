"""The weights of the best epoch, kept where they are and put back at the end."""

import copy
import math
import warnings
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

State = dict[str, dict[str, Tensor]]


def state_of(parts: Mapping[str, nn.Module]) -> State:
    """A copy of all that the modules hold, on their devices."""
    return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}


class Kept(NamedTuple):
    """An epoch, its score and the weights: one value, so that Ctrl-C meets it whole."""

    epoch: int
    score: float
    state: State


class Best:
    """Remembers the weights of the best epoch: `Best(model=net, objective=objective)`.

    That is the one with the lowest score, the first of equal ones.
    """

    def __init__(self, **parts: nn.Module) -> None:
        self.parts, self.noted = parts, 0
        self.kept = Kept(0, math.inf, state_of(parts))

    def after(self, epoch: int, score: float) -> bool:
        """Note an epoch; whether it is the best so far."""
        self.noted += 1
        better = score < self.kept.score
        if better:
            self.kept = Kept(epoch, score, state_of(self.parts))
        return better

    def restore(self) -> int:
        """Put the best weights back; the epoch that they are from, 0 for those at the start."""
        if self.kept.epoch == 0 and self.noted:
            told = f"none of {self.noted} scores was finite: the weights are those of the start"
            warnings.warn(told, stacklevel=2)
        for name, part in self.parts.items():
            part.load_state_dict(self.kept.state[name])
        return self.kept.epoch
