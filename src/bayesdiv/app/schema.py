"""What the files of a run must hold, looked at once when the run is opened."""

import dataclasses
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from bayesdiv.app.runs import RunError

SETTINGS: dict[str, Any] = {
    "format": int,
    "version": str,
    "data": dict[str, Any],
    "target": str,
    "num_data": int,
    "fingerprint": str,
    "task": dict[str, Any],
    "shape": tuple[int, ...],
    "encoder": dict[str, Any] | None,
    "network": dict[str, Any],
    "divergence": dict[str, Any] | None,
    "training": dict[str, Any],
}
RESULT: dict[str, Any] = {
    "test": dict[str, float],
    "validation": dict[str, float],
    "best_epoch": int,
    "seconds": float,
}


def check(path: Path, content: Any, wanted: Mapping[str, Any]) -> None:
    """Complain of the first entry of a file that is missing or of the wrong kind."""
    if not isinstance(content, Mapping):
        raise RunError(f"{path} is damaged: it must hold names and values")
    for name, kind in wanted.items():
        if name not in content or not fits(content[name], kind):
            got = f"got {str(content[name])[:60]!r}" if name in content else "and is missing"
            raise RunError(f"{path} is damaged: {name!r} must be {_said(kind)}, {got}")


def made(kind: type, values: Mapping[str, Any]) -> Any:
    """A dataclass from its fields as JSON, each of its declared kind.

    Examples:
        >>> from bayesdiv.app.data.columns import Numeric
        >>> made(Numeric, {"name": "age", "loc": 30, "scale": "wide"})
        Traceback (most recent call last):
        TypeError: 'scale' of Numeric must be float, got 'wide'
    """
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name in values and not fits(values[field.name], hints[field.name]):
            got, said = str(values[field.name])[:60], _said(hints[field.name])
            raise TypeError(f"{field.name!r} of {kind.__name__} must be {said}, got {got!r}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def fits(value: Any, kind: Any) -> bool:
    """Whether a value from JSON is of a kind, as an annotation has it; a whole number is a float.

    Examples:
        >>> fits([64, 64], tuple[int, ...]), fits(True, int), fits(None, float | None)
        (True, False, True)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is tuple:
        each = inner[:1] * len(value) if ... in inner and isinstance(value, list | tuple) else inner
        is_list = isinstance(value, list | tuple) and len(each) == len(value)
        return is_list and all(map(fits, value, each))
    if origin is dict:
        is_map = isinstance(value, Mapping)
        return is_map and (inner[1] is Any or all(fits(v, inner[1]) for v in value.values()))
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (isinstance(value, float) or abs(value) < sys.float_info.max)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return kind is Any or isinstance(value, kind)


def _said(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
