"""Which settings the searches of the image experiments try."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.quasirandom import SobolEngine

from reproduction.images.protocol import SEARCHES, Setting
from reproduction.images.results import tuned


def candidates(results: Path, contender: str, count: int = 5) -> dict[str, Setting]:
    """What a search tries: the first setting of the contender, then points spread evenly.

    Every contender gets as many, so that the budgets are equal.

    Examples:
        >>> list(candidates(Path(), "kl", count=2).values())[0]
        Setting(contender='kl', learning_rate=0.0003, strength=1.0, alpha=None, start=0.02)
    """
    told = SEARCHES[contender]
    ranges = list(told.ranges.items())
    if len(ranges) == 1:
        points = (torch.arange(count - 1).unsqueeze(1).double() + 0.5) / max(count - 1, 1)
    else:
        points = SobolEngine(len(ranges), scramble=True, seed=0).draw(count - 1).double()
    found = {"0": Setting(contender, **told.first)}
    for index, point in enumerate(points.tolist(), start=1):
        values = {
            name: _between(name, *ends, share)
            for (name, ends), share in zip(ranges, point, strict=True)
        }
        fixed = {name: value for name, value in told.first.items() if name not in told.ranges}
        found[str(index)] = Setting(contender, **fixed, **values)
    return found


def refined(results: Path, contender: str, count: int = 2) -> dict[str, Setting]:
    """Further tries next to the best so far of the search `cifar10-tuning`.

    Spread over a fifth of each range to either side, on a log scale for all but alpha.
    """
    best = tuned(results, "cifar10-tuning").get(contender)
    if best is None:
        return {}
    ranges = SEARCHES[contender].ranges
    points = SobolEngine(len(ranges), scramble=True, seed=1).draw(count).double().tolist()
    found = {}
    for index, point in enumerate(points, start=1):
        values: dict[str, Any] = {
            name: _between(name, *ends, _near(name, *ends, getattr(best, name), share))
            for (name, ends), share in zip(ranges.items(), point, strict=True)
        }
        found[f"near{index}"] = replace(best, **values)
    return found


def wide(results: Path, contender: str, count: int) -> dict[str, Setting]:
    """A larger search; JS-G is also tried at strength 1, as the paper runs it."""
    found = candidates(results, contender, count)
    if contender != "js_g":
        return found
    tried = candidates(results, contender, count=7).items()
    return found | {f"one{tag}": replace(setting, strength=1.0) for tag, setting in tried}


def _near(name: str, low: float, high: float, value: float, share: float) -> float:
    """The share of a range that lies near a value."""
    at = math.log(value / low) / math.log(high / low)
    if name == "alpha":
        at = (value - low) / (high - low)
    return min(max(at + 0.4 * (share - 0.5), 0.0), 1.0)


def _between(name: str, low: float, high: float, share: float) -> float:
    """A point of a range, rounded to digits that can be read."""
    if name != "alpha":
        return float(f"{math.exp(math.log(low) + share * math.log(high / low)):.3g}")
    return round(low + share * (high - low), 3)
