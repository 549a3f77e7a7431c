"""The metrics by their keys in a result: what a table says about each, and which value is best."""

import math
import statistics
from collections.abc import Mapping, Sequence

from bayesdiv.metrics import TABLE as METRICS


def title(key: str) -> str:
    """The title of a metric, also of one that is not known here."""
    return METRICS[key].title if key in METRICS else key.replace("_", " ")


def margin(values: Sequence[float], share: float) -> float:
    """Half the 95 % interval of a mean over n splits, t σ √(1/n + share); infinite for one split.

    The share, test rows / training rows, is there since the training rows of splits overlap
    (Nadeau and Bengio 2003).
    """
    from scipy.stats import t

    if len(values) < 2:
        return math.inf
    factor = t.ppf(0.975, len(values) - 1) * math.sqrt(1 / len(values) + share)
    return float(factor * statistics.stdev(values))


def clearly_best(key: str, values: Mapping[str, Sequence[float]], share: float) -> str | None:
    """The name whose values are better than every other's, by 95 % intervals of differences.

    Examples:
        >>> clearly_best("nll", {"a": [1.0, 1.1, 1.0], "b": [2.0, 2.0, 2.1]}, share=0.3)
        'a'
    """
    if key not in METRICS or len(values) < 2 or len(next(iter(values.values()))) < 2:
        return None
    losses = {n: [METRICS[key].loss(v) for v in each] for n, each in values.items()}
    best = min(losses, key=lambda name: statistics.mean(losses[name]))
    for name in losses.keys() - {best}:
        ahead = [other - own for other, own in zip(losses[name], losses[best], strict=True)]
        middle = statistics.mean(ahead)
        if not middle > 0 or (math.isfinite(middle) and middle <= margin(ahead, share)):
            return None
    return best
