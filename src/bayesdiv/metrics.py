"""How good predictions are: pure functions of a `Predictive` and the true targets.

Every mean runs over all targets; every result is a tensor without axes unless said otherwise. What
a table or an axis says about a metric stands beside it, and in `TABLE`.
"""

import operator
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bayesdiv.predictive import Predictive

TARGET, NATS, SHARE = "units of the target", "nats per target", "share"
LEVEL = 0.9  # of the intervals that coverage counts where none is given


class Metric(NamedTuple):
    """A metric with what a table or an axis says about it.

    Args:
        function: (predictive, y) to a number.
        title: short, as the head of a column.
        unit: `TARGET`, `NATS` or `SHARE`.
        aim: which value is best, in words.
        loss: of a value, less where it is better.
        explained: what it is, for a line below a table.
    """

    function: Callable[[Predictive, Tensor], Tensor]
    title: str
    unit: str
    aim: str
    loss: Callable[[float], float]
    explained: str

    @property
    def label(self) -> str:
        """For an axis: the title, with nats where they are the unit."""
        return f"{self.title} (nats)" if self.unit == NATS else self.title


TABLE: dict[str, Metric] = {}
"""Every metric that is one number, by the name of its function."""

Aim = tuple[str, Callable[[float], float]]
LOWEST: Aim = ("lowest is best", float)
HIGHEST: Aim = ("highest is best", operator.neg)
_Own = TypeVar("_Own", bound=Callable[..., Tensor])


def nearest(level: float) -> Aim:
    """The aim of a metric that should hit a value, such as coverage.

    Examples:
        >>> words, loss = nearest(0.9)
        >>> words, min([0.8, 0.95], key=loss)
        ('next to 0.9 is best', 0.95)
    """
    return f"next to {level} is best", lambda value: abs(value - level)


def metric(title: str, unit: str, aim: Aim, explained: str) -> Callable[[_Own], _Own]:
    """Enter a function of a `Predictive` and targets in `TABLE`; one of your own too.

    Examples:
        >>> @metric("worst", TARGET, LOWEST, "the largest error of all")
        ... def worst(predictive: Predictive, y: Tensor) -> Tensor:
        ...     return (predictive.mean - y).abs().max()
        >>> TABLE.pop("worst").explained
        'worst: the largest error of all'
    """

    def enter(function: _Own) -> _Own:
        TABLE[function.__name__] = Metric(function, title, unit, *aim, f"{title}: {explained}")
        return function

    return enter


class Roc(NamedTuple):
    """The curve of a binary classifier, from nothing called positive to everything."""

    false_positive_rate: Tensor
    true_positive_rate: Tensor
    thresholds: Tensor  # class 1 where its probability is at least this; the first is infinite


class Reliability(NamedTuple):
    """What a reliability diagram draws, one number per bin; NaN where a bin is empty."""

    confidence: Tensor
    accuracy: Tensor
    count: Tensor  # type: ignore[assignment]  # in place of a tuple's own, which nobody needs here


@metric("NLL", NATS, LOWEST, "negative log-likelihood per target, in nats")
def nll(predictive: Predictive, y: Tensor) -> Tensor:
    """Negative log-likelihood per target, of the mixture of all draws.

        -1/N Σ_i log 1/S Σ_s p(y_i | x_i, w_s)

    Examples:
        >>> from torch.distributions import Normal
        >>> nll(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([0.0, 1.0]))
        tensor(1.1689)
    """
    return -predictive.log_prob(_targets(predictive, y)).mean()


@metric("RMSE", TARGET, LOWEST, "root mean squared error, in the units of the target")
def rmse(predictive: Predictive, y: Tensor) -> Tensor:
    """Root mean squared error of the predictive mean, √(1/N Σ_i (mean_i - y_i)²).

    Examples:
        >>> from torch.distributions import Normal
        >>> rmse(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([3.0, 4.0]))
        tensor(3.5355)
    """
    y = _numbers(predictive, y)
    return (predictive.mean - y).square().mean().sqrt()


@metric("MAE", TARGET, LOWEST, "mean absolute error, in the units of the target")
def mae(predictive: Predictive, y: Tensor) -> Tensor:
    """Mean absolute error of the predictive mean, 1/N Σ_i |mean_i - y_i|.

    Examples:
        >>> from torch.distributions import Normal
        >>> mae(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([3.0, -4.0]))
        tensor(3.5000)
    """
    y = _numbers(predictive, y)
    return (predictive.mean - y).abs().mean()


@metric("coverage", SHARE, nearest(LEVEL), "share of targets inside their 90 % interval")
def coverage(predictive: Predictive, y: Tensor, level: float = LEVEL) -> Tensor:
    """Share of targets inside their central interval; calibrated noise gives `level`.

        1/N Σ_i [low_i ≤ y_i ≤ high_i]

    Examples:
        >>> from torch.distributions import Normal
        >>> coverage(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.tensor([1.6, 1.7]))
        tensor(0.5000)
    """
    y = _numbers(predictive, y)
    low, high = predictive.interval(level)
    return ((low <= y) & (y <= high)).to(low.dtype).mean()


@metric("width", TARGET, LOWEST, "mean width of the 90 % intervals")
def interval_width(predictive: Predictive, y: Tensor, level: float = LEVEL) -> Tensor:
    """Mean width of the central intervals, 1/N Σ_i (high_i - low_i); `y` is only checked.

    Examples:
        >>> from torch.distributions import Normal
        >>> interval_width(Predictive(Normal(torch.zeros(1, 2), 1.0)), torch.zeros(2))
        tensor(3.2897)
    """
    _numbers(predictive, y)
    low, high = predictive.interval(level)
    return (high - low).mean()


@metric("accuracy", SHARE, HIGHEST, "share of targets whose class is called right")
def accuracy(predictive: Predictive, y: Tensor) -> Tensor:
    """Share of targets whose class has the largest mean probability.

        1/N Σ_i [y_i = argmax_c p_ic],   p_ic = 1/S Σ_s p(c | x_i, w_s)

    Examples:
        >>> from torch.distributions import Bernoulli
        >>> accuracy(Predictive(Bernoulli(torch.tensor([[0.9, 0.2]]))), torch.tensor([1, 1]))
        tensor(0.5000)
    """
    from torchmetrics.functional.classification import multiclass_accuracy

    probabilities, y = _labelled(predictive, y)
    classes = probabilities.shape[-1]
    return multiclass_accuracy(probabilities, y, num_classes=classes, average="micro")


@metric("Brier", SHARE, LOWEST, "squared error of the class probabilities, summed over classes")
def brier(predictive: Predictive, y: Tensor) -> Tensor:
    """Brier score over all classes, from 0 to 2; with two classes both count.

        1/N Σ_i Σ_c (p_ic - [y_i = c])²

    Examples:
        >>> from torch.distributions import Bernoulli
        >>> brier(Predictive(Bernoulli(torch.tensor([[0.9, 0.2]]))), torch.tensor([1, 1]))
        tensor(0.6500)
    """
    probabilities, y = _labelled(predictive, y)
    truth = one_hot(y, probabilities.shape[-1])
    return (probabilities - truth).square().sum(-1).mean()


@metric("ECE", SHARE, LOWEST, "expected calibration error, 15 bins")
def ece(predictive: Predictive, y: Tensor, bins: int = 15) -> Tensor:
    """Expected calibration error: how far confidence and accuracy are apart, bin by bin.

        Σ_k n_k/N |accuracy_k - confidence_k|

    Confidence is the largest class probability, also of two classes; bin k of K is
    ((k-1)/K, k/K], and an empty one adds nothing.

    Examples:
        >>> from torch.distributions import Bernoulli
        >>> ece(Predictive(Bernoulli(torch.tensor([[0.9, 0.2]]))), torch.tensor([1, 1]))
        tensor(0.4500)
    """
    confidence, correct, count = _bin_sums(predictive, y, bins)
    return (correct - confidence).abs().sum() / count.sum()


def reliability(predictive: Predictive, y: Tensor, bins: int = 15) -> Reliability:
    """Mean confidence, accuracy and count of each bin of `ece`, (bins,) each.

    Examples:
        >>> from torch.distributions import Bernoulli
        >>> predictive = Predictive(Bernoulli(torch.tensor([[0.9, 0.2]])))
        >>> reliability(predictive, torch.tensor([1, 1]), bins=2).accuracy
        tensor([   nan, 0.5000])
    """
    confidence, correct, count = _bin_sums(predictive, y, bins)
    return Reliability(confidence / count, correct / count, count)


@metric("AUC", SHARE, HIGHEST, "area under the ROC curve")
def auroc(predictive: Predictive, y: Tensor) -> Tensor:
    """Area under the ROC curve; with more than two classes, the mean of each against the rest.

        P(p_i1 > p_j1) + ½ P(p_i1 = p_j1)   for random i of class 1 and j of class 0

    Examples:
        >>> from torch.distributions import Bernoulli
        >>> predictive = Predictive(Bernoulli(torch.tensor([[0.1, 0.4, 0.3, 0.8]])))
        >>> auroc(predictive, torch.tensor([0, 0, 1, 1]))
        tensor(0.7500)
    """
    from torchmetrics.functional.classification import binary_auroc, multiclass_auroc

    probabilities, y = _every_class(predictive, y)
    classes = probabilities.shape[-1]
    if classes == 2:
        return binary_auroc(probabilities[:, 1], y)
    return multiclass_auroc(probabilities, y, num_classes=classes, average="macro")


def roc(predictive: Predictive, y: Tensor) -> Roc:
    """True against false positive rate at every threshold; class 1 of two is positive.

    Examples:
        >>> from torch.distributions import Bernoulli
        >>> predictive = Predictive(Bernoulli(torch.tensor([[0.1, 0.4, 0.3, 0.8]])))
        >>> roc(predictive, torch.tensor([0, 0, 1, 1])).true_positive_rate
        tensor([0.0000, 0.5000, 0.5000, 1.0000, 1.0000])
    """
    from torchmetrics.functional.classification import binary_roc

    _two_classes(predictive)
    probabilities, y = _every_class(predictive, y)
    false_positive, true_positive, thresholds = binary_roc(probabilities[:, 1], y)
    # A finite first threshold would call a probability of 1 positive.
    first = torch.full_like(thresholds[:1], torch.inf)
    return Roc(false_positive, true_positive, torch.cat([first, thresholds[1:]]))


def confusion(predictive: Predictive, y: Tensor) -> Tensor:
    """How many targets of each class (row) were called which class (column), (C, C).

    Examples:
        >>> from torch.distributions import Bernoulli
        >>> confusion(Predictive(Bernoulli(torch.tensor([[0.9, 0.2]]))), torch.tensor([1, 1]))
        tensor([[0, 0],
                [1, 1]])
    """
    from torchmetrics.functional.classification import multiclass_confusion_matrix

    probabilities, y = _labelled(predictive, y)
    return multiclass_confusion_matrix(probabilities, y, num_classes=probabilities.shape[-1])


@metric("missed", SHARE, LOWEST, "share of the second class that was not found")
def false_negative_rate(predictive: Predictive, y: Tensor) -> Tensor:
    """Share of the targets of class 1 that were called class 0.

        false negatives / (false negatives + true positives)

    Examples:
        >>> from torch.distributions import Bernoulli
        >>> predictive = Predictive(Bernoulli(torch.tensor([[0.9, 0.2, 0.6, 0.1]])))
        >>> false_negative_rate(predictive, torch.tensor([1, 1, 1, 0]))
        tensor(0.3333)
    """
    _two_classes(predictive)
    called = confusion(predictive, y)[1]  # those of class 1
    if called.sum() == 0:
        raise ValueError("a false negative rate needs targets of class 1, got none")
    return called[0] / called.sum()


def _targets(predictive: Predictive, y: Tensor) -> Tensor:
    if y.numel() == 0:
        raise ValueError(f"a metric needs at least one target, got shape {tuple(y.shape)}")
    return predictive.checked(y)


def _numbers(predictive: Predictive, y: Tensor) -> Tensor:
    if predictive.discrete:
        raise ValueError("this metric needs targets that are numbers, got classes")
    return _targets(predictive, y)


def _labelled(predictive: Predictive, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean class probabilities (N, C) and labels (N,)."""
    if not predictive.discrete:
        raise ValueError("this metric needs targets that are classes, got numbers")
    y = _targets(predictive, y)
    return predictive.probabilities.detach().flatten(0, -2), y.flatten()


def _every_class(predictive: Predictive, y: Tensor) -> tuple[Tensor, Tensor]:
    """As `_labelled`, where no class may be missing: it would have no rate."""
    probabilities, y = _labelled(predictive, y)
    classes = probabilities.shape[-1]
    missing = (torch.bincount(y, minlength=classes) == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(f"a ROC curve needs targets of every class, got none of {missing}")
    return probabilities, y


def _two_classes(predictive: Predictive) -> None:
    if predictive.discrete and predictive.probabilities.shape[-1] != 2:
        classes = predictive.probabilities.shape[-1]
        raise ValueError(f"this metric needs two classes, got {classes}")


def _bin_sums(predictive: Predictive, y: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over each bin of the confidence, of the hits, and of the targets, (bins,) each."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    probabilities, y = _labelled(predictive, y)
    confidence, predicted = probabilities.max(-1)
    # Edges in the dtype of the confidence: a confidence of 3/5 belongs to the bin that ends there.
    edges = torch.arange(1, bins, device=y.device).to(confidence.dtype) / bins
    member = one_hot(torch.bucketize(confidence, edges), bins)  # (N, bins)
    correct = (predicted == y).unsqueeze(-1)
    return (confidence.unsqueeze(-1) * member).sum(0), (correct * member).sum(0), member.sum(0)
