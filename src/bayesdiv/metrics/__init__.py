"""How good predictions are: pure functions of a `Predictive` and the true targets.

Every mean runs over all targets; every result is a tensor without axes unless said otherwise. What
a table or an axis says about a metric stands beside it, and in `TABLE`.
"""

from bayesdiv.metrics.classes import (
    BrierParts,
    Reliability,
    RiskCoverage,
    Roc,
    accuracy,
    aurc,
    auroc,
    brier,
    brier_parts,
    confusion,
    ece,
    false_negative_rate,
    reliability,
    risk_coverage,
    roc,
)
from bayesdiv.metrics.distribution import crps, nll, pit, sharpness
from bayesdiv.metrics.outliers import outlier_aupr, outlier_auroc, outlier_false_alarms
from bayesdiv.metrics.regression import coverage, interval_width, mae, pinball, rmse
from bayesdiv.metrics.table import (
    HIGHEST,
    LEVEL,
    LOWEST,
    NATS,
    SHARE,
    TABLE,
    TARGET,
    Aim,
    Metric,
    metric,
    nearest,
)

__all__ = ["HIGHEST", "LEVEL", "LOWEST", "NATS", "SHARE", "TABLE", "TARGET", "Aim", "BrierParts"]
__all__ += ["Metric", "Reliability", "RiskCoverage", "Roc", "accuracy", "aurc", "auroc", "brier"]
__all__ += ["brier_parts", "confusion", "coverage", "crps", "ece", "false_negative_rate"]
__all__ += ["interval_width", "mae", "metric", "nearest", "nll", "outlier_aupr", "outlier_auroc"]
__all__ += ["outlier_false_alarms", "pinball", "pit", "reliability", "risk_coverage", "rmse", "roc"]
__all__ += ["sharpness"]
