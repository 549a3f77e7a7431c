"""The metrics by their keys in a result: what a table says about each, and which value is best."""

import math
from collections.abc import Callable, Sequence

from bayesdiv.metrics import TABLE as METRICS


def title(key: str) -> str:
    """The title of a metric, also of one that is not known here.

    Examples:
        >>> title("nll"), title("mean_width")
        ('NLL', 'mean width')
    """
    return METRICS[key].title if key in METRICS else key.replace("_", " ")


def best(key: str, values: Sequence[float], shown: Callable[[float], str]) -> set[int]:
    """Which values are best, as far as the digits that are shown say; none if all are alike.

    Examples:
        >>> best("accuracy", [0.9, 0.95, 0.94], str), best("coverage", [0.95, 0.88], str)
        ({1}, {1})
        >>> best("nll", [2.0], str)
        set()
    """
    usable = [value for value in values if math.isfinite(value)]
    texts = [shown(value) for value in values]
    if len(set(texts)) < 2 or not usable or key not in METRICS:
        return set()
    chosen = shown(min(usable, key=METRICS[key].loss))
    return {place for place, text in enumerate(texts) if text == chosen}
