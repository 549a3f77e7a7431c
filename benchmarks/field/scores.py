"""What a run is judged by: functions of log probabilities (N, classes) and labels."""

import math

import torch
from torch import Tensor
from torch.distributions import Categorical
from torchmetrics.functional.classification import binary_auroc

from bayesdiv import metrics
from bayesdiv.predictive import Predictive

METRICS = ("accuracy", "nll", "ece", "brier", "aurc")


def scores(log_probabilities: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, NLL, ECE, Brier score, and area under the risk-coverage curve."""
    predictive = Predictive(Categorical(logits=log_probabilities.double().unsqueeze(0)))
    found = {
        name: getattr(metrics, name)(predictive, y).item()
        for name in ("accuracy", "nll", "ece", "brier")
    }
    return found | {"aurc": aurc(log_probabilities, y)}


def aurc(log_probabilities: Tensor, y: Tensor) -> float:
    """Mean over all coverages of the error among the images that are kept, the surest first."""
    confidence, predicted = log_probabilities.max(-1)
    wrong = (predicted != y)[confidence.argsort(descending=True, stable=True)].double()
    kept = torch.arange(1, len(wrong) + 1, device=wrong.device)
    return (wrong.cumsum(0) / kept).mean().item()


def entropy(log_probabilities: Tensor) -> Tensor:
    """Of each prediction, in nats: the score by which images are called far."""
    logs = log_probabilities.double()
    return -(logs.exp() * logs.clamp(min=-100)).sum(-1)


def far_auroc(near: Tensor, far: Tensor) -> float:
    """How well entropy tells images of another set from test images; ½ is chance."""
    # Divided by its largest value: torchmetrics would squash numbers above 1.
    score = torch.cat([entropy(near), entropy(far)]) / math.log(near.shape[-1])
    is_far = torch.arange(len(score), device=score.device) >= len(near)
    return binary_auroc(score.clamp(0, 1), is_far.long()).item()


def averaged(members: list[Tensor]) -> Tensor:
    """Log of the mean probability of several networks."""
    logs = torch.stack([member.double() for member in members])
    logs = logs - logs.logsumexp(-1, keepdim=True)  # half precision does not quite add up to 1
    return logs.logsumexp(0) - torch.tensor(float(len(members)), dtype=torch.float64).log()
