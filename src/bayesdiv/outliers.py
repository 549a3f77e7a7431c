"""Rows unlike the training data: scores, and a threshold with a stated rate of false alarms.

A score is one number per row, larger where the row is less usual. Two come from the predictions
(`mutual_information`, `entropy`), two from the network at its posterior mean (`energy` of its
outputs, `Mahalanobis` distance of its features). A `Threshold` is set on held-out rows.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, cast

import torch
from torch import Tensor, nn

from bayesdiv.calibration.conformal import Saved, threshold
from bayesdiv.model.bayesian import at_mean
from bayesdiv.prediction import evaluating
from bayesdiv.predictive import Predictive


def mutual_information(predictive: Predictive) -> Tensor:
    """What the target would say about the weights, in nats: large where draws disagree.

        I(y; w) = H(1/S Σ_s p(y | w_s)) - 1/S Σ_s H(p(y | w_s))        classes
        ½ log(1 + epistemic / aleatoric), summed over outputs          numbers, as of Gaussians

    Examples:
        >>> mutual_information(Predictive(Normal(torch.tensor([[0.0], [2.0]]), 1.0)))
        tensor([0.3466])
    """
    if predictive.discrete:
        return predictive.mutual_information
    return _per_row(0.5 * torch.log1p(predictive.epistemic / predictive.aleatoric))


def entropy(predictive: Predictive) -> Tensor:
    """Uncertainty of the target, from the weights and from noise alike, in nats.

    For numbers it is that of Gaussians, ½ log(2πe variance), summed over outputs.

    Examples:
        >>> entropy(Predictive(Bernoulli(torch.tensor([[0.5, 0.9]]))))
        tensor([0.6931, 0.3251])
    """
    if predictive.discrete:
        return predictive.entropy
    return _per_row(0.5 * (2 * math.pi * math.e * predictive.variance).log())


def energy(outputs: Tensor) -> Tensor:
    """Energy of logits, -log Σ_c exp f_c: high where no class is called for.

    The logits, (rows, classes), are those of the network at its mean, see `features`; a single one
    is that of class 1 against 0.

    Examples:
        >>> energy(torch.tensor([[5.0, 0.0], [0.0, 0.0]]))
        tensor([-5.0067, -0.6931])
    """
    if outputs.shape[-1] == 1:
        outputs = torch.cat([torch.zeros_like(outputs), outputs], -1)
    return -outputs.logsumexp(-1)


def features(
    model: nn.Module, x: Tensor, layer: nn.Module | None = None, batch_size: int | None = None
) -> Tensor:
    """What a layer of the network at its posterior mean returns, flat, (rows, features).

    The layer is one of the model's modules, such as `net.module[1]`; None is the whole model. The
    network runs in evaluation mode, on `batch_size` rows at a time.

    Examples:
        >>> network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        >>> net = bd.bayesianize(network, bd.FanIn())
        >>> features(net, torch.zeros(5, 3), net.module[1]).shape
        torch.Size([5, 8])
    """
    found: list[Tensor] = []
    heard = model if layer is None else layer
    handle = heard.register_forward_hook(lambda _, __, made: found.append(cast(Tensor, made)))
    with evaluating(model), at_mean(model), handle:
        for part in x.split(batch_size or max(1, len(x))):
            model(part)
    if not found:
        raise ValueError("layer must be a module that the model runs, got one that it does not")
    return torch.cat([part.flatten(1) for part in found])


@dataclass(frozen=True)
class Mahalanobis(Saved):
    """Squared distance of features to the nearest class mean, in units of their covariance.

        min_c (f - m_c)ᵀ Σ⁻¹ (f - m_c)

    Σ is the covariance within classes, one for all of them, shrunk as Ledoit and Wolf do, so that
    it can be inverted however few the rows are.

    Examples:
        >>> usual = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> Mahalanobis.fit(usual)(torch.tensor([[0.0, 0.0], [9.0, 9.0]])) > 10
        tensor([False,  True])
    """

    means: Tensor  # m_c, (classes, features)
    whitening: Tensor  # W with Wᵀ W = Σ⁻¹, (features, features)

    @classmethod
    @torch.no_grad()
    def fit(cls, features: Tensor, y: Tensor | None = None) -> Self:
        """Means of each class y, or one of all rows, and the covariance of training rows."""
        if len(features) < 2 or not bool(features.isfinite().all()):
            raise ValueError(f"features must be finite, of two rows or more, got {len(features)}")
        each = features.double()
        y = torch.zeros(len(each), dtype=torch.long) if y is None else y.long()
        labels, member = y.to(each.device).unique(return_inverse=True)
        counts = torch.bincount(member).unsqueeze(-1)
        means = each.new_zeros(len(labels), each.shape[1]).index_add(0, member, each) / counts
        factor = torch.linalg.cholesky(_shrunk(each - means[member]))
        one = torch.eye(len(factor), dtype=each.dtype, device=each.device)
        return cls(means, torch.linalg.solve_triangular(factor, one, upper=False))

    def __call__(self, features: Tensor) -> Tensor:
        """The squared distance of each row."""
        white = features.to(self.means) @ self.whitening.mT
        return torch.cdist(white, self.means @ self.whitening.mT).square().amin(-1)


def _shrunk(centred: Tensor) -> Tensor:
    """Ledoit and Wolf's covariance: (1 - s) S + s m 1, m the mean variance of a feature."""
    count, size = centred.shape
    sample = centred.mT @ centred / count
    mean = sample.trace() / size
    if not mean > 0:
        raise ValueError("features must vary between rows, got the same in all")
    one = torch.eye(size, dtype=sample.dtype, device=sample.device)
    away = (sample - mean * one).square().sum()
    squares = centred.square()
    noise = ((squares.mT @ squares / count - sample.square()).sum() / count).clamp(min=0)
    # A covariance that is a multiple of 1 already has nothing to be shrunk to.
    share = (noise / away).clamp(max=1) if away > 0 else torch.ones_like(away)
    return (1 - share) * sample + share * mean * one


@dataclass(frozen=True)
class Threshold(Saved):
    """The score above which a row is flagged, at a rate of false alarms that was asked for.

    Of rows like the held-out ones, at most this share is flagged on average: the threshold is
    conformal, of level 1 - `false_alarms`, see `bayesdiv.calibration`. With too few held-out rows
    for the rate it is infinite and nothing is flagged.

    Examples:
        >>> limit = Threshold.fit(torch.arange(99.0), false_alarms=0.05)
        >>> limit.flags(torch.tensor([50.0, 94.0, 95.0]))
        tensor([False, False,  True])
    """

    value: float  # the largest score that is not flagged
    false_alarms: float  # the rate

    @classmethod
    def fit(cls, scores: Tensor, false_alarms: float = 0.05) -> Self:
        """Set the threshold on the scores of held-out rows."""
        if not 0 < false_alarms < 1:
            raise ValueError(f"false_alarms must lie inside (0, 1), got {false_alarms}")
        level = float(1 - Fraction(repr(float(false_alarms))))
        return cls(threshold(scores.flatten(), level).item(), false_alarms)

    def flags(self, scores: Tensor) -> Tensor:
        """Which rows are unlike the held-out ones; those without a score are."""
        return ~(scores <= self.value)


def _per_row(values: Tensor) -> Tensor:
    return values.flatten(1).sum(1) if values.dim() > 1 else values
