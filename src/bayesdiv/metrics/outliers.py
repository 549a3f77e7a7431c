"""How well a score separates unusual rows from usual ones: functions of the scores of both.

Scores are those of `bayesdiv.outliers`, larger where a row is less usual.
"""

import math

import torch
from torch import Tensor


def outlier_auroc(usual: Tensor, unusual: Tensor) -> Tensor:
    """Probability that an unusual row scores higher than a usual one, ties counted half.

    Examples:
        >>> outlier_auroc(torch.tensor([0.1, 0.4]), torch.tensor([0.3, 0.8]))
        tensor(0.7500)
    """
    from torchmetrics.functional.classification import binary_auroc

    return binary_auroc(*_ranked(usual, unusual))


def outlier_aupr(usual: Tensor, unusual: Tensor) -> Tensor:
    """Area under the precision-recall curve, unusual rows positive: average precision.

    Unlike the others it depends on how many rows of either kind there are.

    Examples:
        >>> outlier_aupr(torch.tensor([0.1, 0.4]), torch.tensor([0.3, 0.8]))
        tensor(0.8333)
    """
    from torchmetrics.functional.classification import binary_average_precision

    return binary_average_precision(*_ranked(usual, unusual))


def outlier_false_alarms(usual: Tensor, unusual: Tensor, found: float = 0.95) -> Tensor:
    """Share of usual rows flagged where the share `found` of unusual ones is: FPR at 95 % TPR.

    Examples:
        >>> outlier_false_alarms(torch.tensor([0.1, 0.4]), torch.tensor([0.3, 0.8]))
        tensor(0.5000)
    """
    if not 0 < found <= 1:
        raise ValueError(f"found must lie in (0, 1], got {found}")
    _check(usual, unusual)
    # The tolerance is for a product such as 0.55 · 100, which is a little more than 55.
    wanted = math.ceil(found * unusual.numel() * (1 - 1e-12))
    limit = unusual.flatten().sort(descending=True).values[wanted - 1]
    return (usual >= limit).to(torch.get_default_dtype()).mean()


def _ranked(usual: Tensor, unusual: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks instead of scores, even on [0, 1], and which rows are unusual."""
    # torchmetrics would squash scores outside [0, 1], and the largest would become equal.
    _check(usual, unusual)
    scores = torch.cat([usual.flatten(), unusual.flatten()])
    values, level = scores.unique(return_inverse=True)
    labels = torch.cat([torch.zeros(usual.numel()), torch.ones(unusual.numel())]).to(level)
    return level / max(1, len(values) - 1), labels


def _check(usual: Tensor, unusual: Tensor) -> None:
    if not usual.numel() or not unusual.numel():
        got = f"{usual.numel()} and {unusual.numel()}"
        raise ValueError(f"there must be scores of usual and of unusual rows, got {got}")
    if usual.isnan().any() or unusual.isnan().any():
        raise ValueError("scores must be numbers, got NaN: flag such rows before")
