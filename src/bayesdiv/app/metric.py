"""The metrics by their keys in a result: what a table says about each, and which value is best."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

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


def clearly_best(key: str, values: Mapping[str, Sequence[float]], share: float) -> str | None:
    """The name whose values are better than those of every other, if the splits show it.

    The 95 % interval of each mean difference over n splits must leave out 0; its half width is
    t σ √(1/n + test rows / training rows), where the second term is there since the training rows
    of splits overlap (Nadeau and Bengio 2003).

    Args:
        key: of the metric.
        values: over the same splits.
        share: test rows over training rows.

    Examples:
        >>> clearly_best("nll", {"a": [1.0, 1.1, 1.0], "b": [2.0, 2.0, 2.1]}, share=0.3)
        'a'
        >>> clearly_best("nll", {"a": [1.0, 2.1, 1.0], "b": [2.0, 1.0, 2.1]}, share=0.3)
    """
    from scipy.stats import t

    if key not in METRICS or len(values) < 2 or len(next(iter(values.values()))) < 2:
        return None
    losses = {n: [METRICS[key].loss(v) for v in each] for n, each in values.items()}
    best = min(losses, key=lambda name: statistics.mean(losses[name]))
    for name in losses.keys() - {best}:
        ahead = [other - own for other, own in zip(losses[name], losses[best], strict=True)]
        splits = len(ahead)
        factor = t.ppf(0.975, splits - 1) * math.sqrt(1 / splits + share)
        middle = statistics.mean(ahead)
        if not middle > 0 or (math.isfinite(middle) and middle <= factor * statistics.stdev(ahead)):
            return None
    return best
