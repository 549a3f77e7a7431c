"""How good predictions of classes are, and how well scores of `outliers` find unusual rows."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bayesdiv.metrics.numbers import HIGHEST, LOWEST, SHARE, labelled, metric
from bayesdiv.predictive import Predictive


class Reliability(NamedTuple):
    """What a reliability diagram draws, one number per bin; NaN where a bin is empty."""

    confidence: Tensor
    accuracy: Tensor
    count: Tensor  # type: ignore[assignment]  # in place of a tuple's own, which nobody needs here


class BrierParts(NamedTuple):
    """What the Brier score is made of: reliability - resolution + uncertainty + within."""

    reliability: Tensor  # how far probabilities and frequencies are apart; 0 is best
    resolution: Tensor  # how far frequencies differ between bins; large is best
    uncertainty: Tensor  # of the classes themselves, whatever the model
    within: Tensor  # what is lost by treating the rows of a bin alike


class RiskCoverage(NamedTuple):
    """The error rate among the surest rows, from the surest one to all of them."""

    coverage: Tensor  # share of rows that are answered
    risk: Tensor  # share of wrong classes among them


@metric("accuracy", SHARE, HIGHEST, "share of targets whose class is called right")
def accuracy(predictive: Predictive, y: Tensor) -> Tensor:
    """Share of targets whose class has the largest mean probability.

        1/N Σ_i [y_i = argmax_c p_ic],   p_ic = 1/S Σ_s p(c | x_i, w_s)

    Examples:
        >>> accuracy(Predictive(Bernoulli(torch.tensor([[0.9, 0.2]]))), torch.tensor([1, 1]))
        tensor(0.5000)
    """
    probabilities, y = labelled(predictive, y)
    return (probabilities.argmax(-1) == y).float().mean()


@metric("Brier", SHARE, LOWEST, "squared error of the class probabilities, summed over classes")
def brier(predictive: Predictive, y: Tensor) -> Tensor:
    """Brier score over all classes, from 0 to 2; with two classes both count.

        1/N Σ_i Σ_c (p_ic - [y_i = c])²

    Examples:
        >>> brier(Predictive(Bernoulli(torch.tensor([[0.9, 0.2]]))), torch.tensor([1, 1]))
        tensor(0.6500)
    """
    probabilities, y = labelled(predictive, y)
    return (probabilities - one_hot(y, probabilities.shape[-1])).square().sum(-1).mean()


def brier_parts(predictive: Predictive, y: Tensor, bins: int = 15) -> BrierParts:
    """Murphy's parts of the Brier score, class by class over bins of its probability, summed.

        Σ_c Σ_k n_ck/N [(p_ck - o_ck)² - (o_ck - o_c)²] + Σ_c o_c (1 - o_c) + within

    p_ck is the mean probability and o_ck the frequency of class c in bin k, o_c its frequency in
    all. `within`, the variance of p in a bin less twice its covariance with the truth, makes the
    sum exact.

    Examples:
        >>> predictive = Predictive(Bernoulli(torch.tensor([[0.9, 0.9, 0.1, 0.1]])))
        >>> brier_parts(predictive, torch.tensor([1, 0, 0, 0])).resolution
        tensor(0.1250)
    """
    probabilities, y = labelled(predictive, y)
    classes = probabilities.shape[-1]
    truth = one_hot(y, classes).to(probabilities)
    place = _bins(probabilities, bins) + bins * torch.arange(classes, device=y.device)  # (N, C)
    count = torch.bincount(place.flatten(), minlength=bins * classes).clamp(min=1)

    def in_bin(values: Tensor) -> Tensor:  # the mean of the bin that each is in
        total = values.new_zeros(len(count)).index_add(0, place.flatten(), values.flatten())
        return (total / count)[place]

    forecast, frequency, every = in_bin(probabilities), in_bin(truth), truth.mean(0)
    inner = probabilities - forecast
    return BrierParts(
        (forecast - frequency).square().sum(-1).mean(),
        (frequency - every).square().sum(-1).mean(),
        (every * (1 - every)).sum(),
        (inner.square() - 2 * inner * (truth - frequency)).sum(-1).mean(),
    )


@metric("ECE", SHARE, LOWEST, "expected calibration error, 15 bins")
def ece(predictive: Predictive, y: Tensor, bins: int = 15) -> Tensor:
    """Expected calibration error: how far confidence and accuracy are apart, bin by bin.

        Σ_k n_k/N |accuracy_k - confidence_k|

    Confidence is the largest class probability, also of two classes; bin k of K is
    ((k-1)/K, k/K], and an empty one adds nothing.

    Examples:
        >>> ece(Predictive(Bernoulli(torch.tensor([[0.9, 0.2]]))), torch.tensor([1, 1]))
        tensor(0.4500)
    """
    found = reliability(predictive, y, bins)
    gaps = found.count * (found.accuracy - found.confidence).abs()
    return gaps.nansum() / found.count.sum()


def reliability(predictive: Predictive, y: Tensor, bins: int = 15) -> Reliability:
    """Mean confidence, accuracy and count of each bin of `ece`, (bins,) each.

    Examples:
        >>> predictive = Predictive(Bernoulli(torch.tensor([[0.9, 0.2]])))
        >>> reliability(predictive, torch.tensor([1, 1]), bins=2).accuracy
        tensor([   nan, 0.5000])
    """
    probabilities, y = labelled(predictive, y)
    confidence, predicted = probabilities.max(-1)
    place, correct = _bins(confidence, bins), (predicted == y).to(confidence)
    sure, right = (torch.bincount(place, each, bins) for each in (confidence, correct))
    count = torch.bincount(place, minlength=bins)
    return Reliability(sure / count, right / count, count)


@metric("AUC", SHARE, HIGHEST, "area under the ROC curve")
def auroc(predictive: Predictive, y: Tensor) -> Tensor:
    """Area under the ROC curve; with more than two classes, the mean of each against the rest.

        P(p_i1 > p_j1) + ½ P(p_i1 = p_j1)   for random i of class 1 and j of class 0

    Examples:
        >>> predictive = Predictive(Bernoulli(torch.tensor([[0.1, 0.4, 0.3, 0.8]])))
        >>> auroc(predictive, torch.tensor([0, 0, 1, 1]))
        tensor(0.7500)
    """
    from torchmetrics.functional.classification import binary_auroc, multiclass_auroc

    probabilities, y = labelled(predictive, y)
    classes = probabilities.shape[-1]
    missing = (torch.bincount(y, minlength=classes) == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(f"a ROC curve needs targets of every class, got none of {missing}")
    if classes == 2:
        return binary_auroc(probabilities[:, 1], y)
    return multiclass_auroc(probabilities, y, classes)


def confusion(predictive: Predictive, y: Tensor) -> Tensor:
    """How many targets of each class (row) were called which class (column), (C, C).

    Examples:
        >>> confusion(Predictive(Bernoulli(torch.tensor([[0.9, 0.2]]))), torch.tensor([1, 1]))
        tensor([[0, 0],
                [1, 1]])
    """
    from torchmetrics.functional.classification import multiclass_confusion_matrix

    probabilities, y = labelled(predictive, y)
    return multiclass_confusion_matrix(probabilities, y, probabilities.shape[-1])


@metric("missed", SHARE, LOWEST, "share of the second class that was not found")
def false_negative_rate(predictive: Predictive, y: Tensor) -> Tensor:
    """Share of the targets of class 1 that were called class 0.

        false negatives / (false negatives + true positives)

    Examples:
        >>> predictive = Predictive(Bernoulli(torch.tensor([[0.9, 0.2, 0.6, 0.1]])))
        >>> false_negative_rate(predictive, torch.tensor([1, 1, 1, 0]))
        tensor(0.3333)
    """
    counts = confusion(predictive, y)
    if len(counts) != 2:
        raise ValueError(f"this metric needs two classes, got {len(counts)}")
    missed, found = counts[1].unbind()
    if missed + found == 0:
        raise ValueError("a false negative rate needs targets of class 1, got none")
    return missed / (missed + found)


def risk_coverage(predictive: Predictive, y: Tensor) -> RiskCoverage:
    """Error rate among the k surest rows for k = 1 … N, (N,) each.

    Rows are as sure as their largest class probability; equally sure ones count as in a random
    order, on average.

    Examples:
        >>> predictive = Predictive(Bernoulli(torch.tensor([[0.9, 0.2, 0.6]])))
        >>> risk_coverage(predictive, torch.tensor([1, 0, 0])).risk
        tensor([0.0000, 0.0000, 0.3333])
    """
    probabilities, y = labelled(predictive, y)
    confidence, predicted = probabilities.max(-1)
    _, level = (-confidence).unique(return_inverse=True)  # 0 is the surest
    wrong, count = (predicted != y).to(confidence), torch.bincount(level)
    rate = wrong.new_zeros(len(count)).index_add(0, level, wrong) / count
    answered = torch.arange(1, len(y) + 1, device=y.device)
    risk = rate[level.sort().values].cumsum(0) / answered
    return RiskCoverage((answered / len(y)).to(risk), risk)


@metric("AURC", SHARE, LOWEST, "error rate among the surest rows, averaged over their share")
def aurc(predictive: Predictive, y: Tensor) -> Tensor:
    """Area under the risk-coverage curve, 1/N Σ_k risk_k.

    Examples:
        >>> aurc(Predictive(Bernoulli(torch.tensor([[0.9, 0.2, 0.6]]))), torch.tensor([1, 0, 0]))
        tensor(0.1111)
    """
    return risk_coverage(predictive, y).risk.mean()


def _bins(probabilities: Tensor, bins: int) -> Tensor:
    """Which of the bins ((k-1)/K, k/K] each probability is in, from 0."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    # Edges in the dtype of the probabilities: 3/5 belongs to the bin that ends there.
    edges = torch.arange(1, bins, device=probabilities.device).to(probabilities.dtype) / bins
    return torch.bucketize(probabilities.contiguous(), edges)


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
    from torchmetrics.functional.classification import binary_roc

    if not 0 < found <= 1:
        raise ValueError(f"found must lie in (0, 1], got {found}")
    false_alarms, hits, _ = binary_roc(*_ranked(usual, unusual))
    return false_alarms[hits >= found * (1 - 1e-6)][0]  # 0.55 may be a little more than 55 of 100


def _ranked(usual: Tensor, unusual: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks instead of scores, even on [0, 1], and which rows are unusual."""
    # torchmetrics would squash scores outside [0, 1], and the largest would become equal.
    if not usual.numel() or not unusual.numel():
        got = f"{usual.numel()} and {unusual.numel()}"
        raise ValueError(f"there must be scores of usual and of unusual rows, got {got}")
    scores = torch.cat([usual.flatten(), unusual.flatten()])
    if scores.isnan().any():
        raise ValueError("scores must be numbers, got NaN: flag such rows before")
    values, level = scores.unique(return_inverse=True)
    unlike = torch.arange(len(scores), device=level.device) >= usual.numel()
    return level / max(1, len(values) - 1), unlike.long()
