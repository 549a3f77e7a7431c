"""What all calibration shares: numbers that can be saved, ranks, and thresholds by groups."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bayesdiv.predictive import Predictive

MOST_GROUPS = 1 << 20  # larger numbers are names, such as those of customers


@dataclass(frozen=True)
class Saved:
    """A frozen dataclass of numbers and tensors that can be written to a JSON file."""

    kinds: ClassVar[dict[str, type["Saved"]]] = {}

    def __init_subclass__(cls) -> None:
        Saved.kinds[cls.__name__] = cls

    def state(self) -> dict[str, object]:
        """Its kind and its numbers; those that are infinite as words, since JSON has none."""
        values = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"kind": type(self).__name__, **values}

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> Self:
        """The same value again; `Saved.from_state` takes any kind."""
        kind = Saved.kinds.get(str(state.get("kind")))
        if kind is None or not issubclass(kind, cls):
            raise ValueError(
                f"a saved value must be of kind {cls.__name__}, got {state.get('kind')}"
            )
        missing = [field.name for field in fields(kind) if field.name not in state]
        if missing:
            raise ValueError(f"a saved {kind.__name__} must have {', '.join(missing)}")
        return kind(**{field.name: _value(state[field.name]) for field in fields(kind)})


def _plain(value: object) -> object:
    if isinstance(value, Saved):
        return value.state()
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _value(value: object) -> object:
    if isinstance(value, Mapping):
        return Saved.from_state(value)
    if value is None:
        return None
    try:
        numbers = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"a saved calibration must hold numbers, got {value!r}") from None
    return torch.from_numpy(numbers) if numbers.ndim else numbers.item()


def rank(count: int, level: float) -> int:
    """Which of `count` ascending scores is the threshold: ⌈(count + 1) · level⌉, counted from 1.

    The level counts as the decimal number that it is written as: 0.55 of 100 is 55, not 56.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie inside (0, 1), got {level}")
    return math.ceil((count + 1) * Fraction(repr(float(level))))


def threshold(scores: Tensor, level: float) -> Tensor:
    """The conformal threshold of scores along their first axis; infinite where they are too few."""
    scores = scores.detach()
    if scores.isnan().any():
        raise ValueError(f"scores must be numbers, got {int(scores.isnan().sum())} NaN")
    wanted = rank(len(scores), level)
    if wanted > len(scores):
        return scores.new_full(scores.shape[1:], math.inf)
    return scores.sort(0).values[wanted - 1]


def thresholds_of(scores: Tensor, level: float, groups: Tensor | None) -> Tensor:
    """One threshold per group along a first axis; a single one without groups."""
    if groups is None:
        return threshold(scores, level).unsqueeze(0)
    if groups.shape != scores.shape[:1]:
        wanted = tuple(scores.shape[:1])
        raise ValueError(f"groups must have shape {wanted}, got {tuple(groups.shape)}")
    groups = _numbered(groups)
    count = int(groups.max()) + 1 if len(groups) else 1
    found = scores.new_full((count, *scores.shape[1:]), math.inf).detach()
    for group in groups.unique().tolist():
        found[group] = threshold(scores[groups == group], level)
    return found


def chosen(thresholds: Tensor, groups: Tensor | None, device: torch.device) -> Tensor:
    """The threshold of each row; that of a group without calibration rows is infinite."""
    if groups is None:
        if len(thresholds) > 1:
            raise ValueError(f"groups must be given: thresholds differ by {len(thresholds)} groups")
        return thresholds.to(device)
    known = torch.cat([thresholds, torch.full_like(thresholds[:1], math.inf)]).to(device)
    return known[_numbered(groups).to(device).clamp(max=len(thresholds))]


def _numbered(groups: Tensor) -> Tensor:
    wrong = groups[(groups < 0) | (groups != groups.long()) | (groups >= MOST_GROUPS)]
    if wrong.numel():
        raise ValueError(f"groups must be numbered 0, 1, 2, …, got {wrong[0].item()}")
    return groups.long()


def one_per_row(predictive: Predictive, y: Tensor) -> Tensor:
    """The targets, if rows are the only axis besides draws and outputs."""
    shape = tuple(predictive.conditional.batch_shape)
    if len(shape) != 2:
        raise ValueError(f"calibration needs batch shape (samples, rows), got {shape}")
    return predictive.checked(y)
