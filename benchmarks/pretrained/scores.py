"""What a fine-tuned network is judged by, beside the scores of the field."""

import math

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_auroc

from benchmarks.field.scores import scores

SPECIFICITY = 0.9


def cut(tumour: Tensor, y: Tensor, specificity: float = SPECIFICITY) -> float:
    """The probability above which a patch is called, so that this share of healthy ones is not."""
    healthy = tumour[y == 0].sort().values
    return healthy[math.ceil(specificity * len(healthy)) - 1].item()


def missed(tumour: Tensor, y: Tensor, above: float) -> float:
    """The share of tumours that are not called."""
    return (tumour[y == 1] <= above).double().mean().item()


def of_two(logs: Tensor, y: Tensor, above: float) -> dict[str, float]:
    """Scores of two classes, the second of which must not be missed.

    Args:
        logs: log probabilities, (N, 2).
        y: classes.
        above: the cut that validation patients gave.
    """
    tumour = logs.double().softmax(-1)[:, 1]
    return scores(logs, y) | {
        "auc": binary_auroc(tumour, y).item(),
        "missed": missed(tumour, y, above),
        "specificity": (tumour[y == 0] <= above).double().mean().item(),
        "missed_equal": missed(tumour, y, cut(tumour, y)),
    }


def judged(logs: dict[str, Tensor], y: dict[str, Tensor]) -> dict[str, dict[str, float]]:
    """Scores of every part that was predicted; the cut of two classes comes from validation."""
    if logs["validation"].shape[-1] > 2:
        return {name: scores(own, y[name]) for name, own in logs.items()}
    above = cut(logs["validation"].double().softmax(-1)[:, 1], y["validation"])
    return {name: of_two(own, y[name], above) for name, own in logs.items()}


def unusable(logs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a run that diverged is judged by: every class as likely."""
    return {name: torch.full_like(own, 1 / own.shape[-1]).log() for name, own in logs.items()}
