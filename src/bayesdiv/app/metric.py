"""Metrics and numbers as people read them: titles, digits, and which value is best."""

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
    """The name whose values are better than every other's, by 95 % intervals of differences."""
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


def rounded(value: float, places: int) -> str:
    """A number with some decimals; one too small for them with three digits of its own."""
    return f"{value:.3g}" if 0 < abs(value) < 1e-3 else f"{value:.{places}f}"


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation, or the value alone: 2.000±1.414, 2e-30±1.41e-30."""
    mean = statistics.mean(values)
    if abs(mean) >= 1e6:
        return f"{mean:.4g}"
    digits = 3 if abs(mean) < 10 else 2 if abs(mean) < 100 else 1
    if len(values) == 1:
        return rounded(mean, digits)
    deviation = statistics.stdev(values)
    if max(abs(mean), deviation) < 1e-3:
        return f"{rounded(mean, digits)}±{rounded(deviation, digits)}"
    return f"{mean:.{digits}f}±{deviation:.{digits}f}"


def percent(value: float) -> str:
    """A share in percent, such as 91.2 %."""
    return f"{100 * value:.1f} %"


def number(value: float) -> str:
    """A number with the digits that a reader can use: 1,235,000, 0.01235, 150.2, 1e+12."""
    text = f"{value:.4g}"
    return f"{float(text):,.0f}" if 1000 <= abs(float(text)) < 1e9 else text
