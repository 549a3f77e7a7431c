"""Numbers with the digits that a reader can use."""

import statistics
from collections.abc import Sequence


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
