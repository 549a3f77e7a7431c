"""What results were computed with, as far as their files say."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Origin(NamedTuple):
    """What some results were computed with, as far as their files say."""

    hardware: str
    version: str
    torch: str
    settings: str

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Origin":
        """From a result file."""
        settings = told.get("settings") or told.get("protocol") or {}
        known = {key.replace("_", " "): _value(value) for key, value in settings.items()}
        text = ", ".join(f"{key} {value}" for key, value in known.items())
        hardware, version, torch = (
            str(told.get(key) or "not recorded") for key in ("hardware", "version", "torch")
        )
        return cls(hardware, version, torch, text)


def day(told: Mapping[str, Any]) -> str:
    """When a result was computed."""
    return str(told.get("date", "a day not recorded"))[:10]


def _value(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
