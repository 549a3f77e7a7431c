"""What was learned as plain values, and back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Saved:
    """A frozen dataclass of numbers and tensors that can be written to a JSON file.

    Examples:
        >>> from bayesdiv.calibration import Temperature
        >>> Temperature(1.5).state()
        {'kind': 'Temperature', 'value': 1.5}
        >>> Saved.from_state({"kind": "Temperature", "value": 1.5})
        Temperature(value=1.5)
    """

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
