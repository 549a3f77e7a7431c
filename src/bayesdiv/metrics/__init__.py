"""How good predictions are: pure functions of a `Predictive` and the true targets.

Every mean runs over all targets; every result is a tensor without axes unless said otherwise. What
a table or an axis says about a metric stands beside it, and in `TABLE`.
"""

from bayesdiv.metrics.classes import (
    accuracy,
    aurc,
    auroc,
    brier,
    brier_parts,
    confusion,
    ece,
    false_negative_rate,
    outlier_aupr,
    outlier_auroc,
    outlier_false_alarms,
    reliability,
    risk_coverage,
)
from bayesdiv.metrics.numbers import (
    HIGHEST,
    LEVEL,
    LOWEST,
    NATS,
    SHARE,
    TABLE,
    TARGET,
    Metric,
    coverage,
    crps,
    metric,
    nll,
    pinball,
    pit,
    rmse,
    sharpness,
)

__all__ = ["HIGHEST", "LEVEL", "LOWEST", "NATS", "SHARE", "TABLE", "TARGET", "Metric", "accuracy"]
__all__ += ["aurc", "auroc", "brier", "brier_parts", "confusion", "coverage", "crps", "ece"]
__all__ += ["false_negative_rate", "metric", "nll"]
__all__ += ["outlier_aupr", "outlier_auroc", "outlier_false_alarms", "pinball", "pit"]
__all__ += ["reliability", "risk_coverage", "rmse", "sharpness"]
