"""What is measured of a network of the image experiments: predictions, scores, divergence, pull."""

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from bayesdiv import metrics
from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.divergence import Divergence
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.model.posteriors import MeanField
from bayesdiv.predictive import Predictive
from reproduction.contenders import CONTENDERS
from reproduction.images.inputs import Execution, seen
from reproduction.images.protocol import Protocol, Setting

ROC_POINTS = 200


class Network(NamedTuple):
    """A network with all that it is trained by."""

    model: Bayesian
    setting: Setting
    protocol: Protocol
    execution: Execution

    @property
    def learns_scale(self) -> bool:
        """Whether the weights are random; a point estimate's are not."""
        return isinstance(self.model.posterior, MeanField)

    @property
    def divergence(self) -> Divergence:
        """What holds its posterior near the prior."""
        return CONTENDERS[self.setting.contender].divergence(self.setting.alpha or 0.0)


@torch.no_grad()
def predicted(network: Network, part: Part, samples: int | None = None) -> Predictive:
    """Predictions of a part: at the posterior mean, or averaged over draws that are always alike.

    Args:
        network: as it stands.
        part: images and labels.
        samples: how many draws; None is the mean.
    """
    model, execution, protocol = network.model, network.execution, network.protocol
    loc = model.loc
    count = samples if samples is not None and network.learns_scale else 0
    scale = cast(MeanField, model.posterior).scale if count else loc
    # Its own generator: the noise of training is not disturbed.
    generator = torch.Generator(loc.device).manual_seed(0)
    found = []
    for _ in range(max(count, 1)):
        noise = torch.empty_like(loc).normal_(generator=generator) if count else 0.0 * loc
        weights = torch.addcmul(loc, scale, noise).to(execution.dtype)
        pieces = (
            model.with_weights(weights, seen(x, protocol.pixels, execution)).float()
            for x in part.x.split(protocol.evaluation_size)
        )
        found.append(torch.cat(list(pieces)))
    return Predictive(Categorical(logits=torch.stack(found), validate_args=False))  # (S, N, C)


def accuracy(predictive: Predictive, y: Tensor) -> float:
    """Share of labels that have the largest mean probability."""
    return float((predictive.probabilities.argmax(-1) == y).double().mean())


def nll(predictive: Predictive, y: Tensor) -> float:
    """Mean negative log-likelihood of the mixture of all draws."""
    return float(metrics.nll(predictive, y))


@torch.no_grad()
def penalty(network: Network) -> float:
    """The divergence of all weights as they stand; 0 for a point estimate."""
    if not network.learns_scale:
        return 0.0
    return float(network.divergence(network.model.q(), network.model.p()).double().sum())


def pull(network: Network) -> dict[str, float]:
    """How hard the loss draws the means of the weights to the prior: λ|∂D/∂m|.

    In nats per unit of the weight: mean, median and the deciles at both ends. A point estimate is
    not drawn at all.
    """
    model = network.model
    loc = model.loc.detach().clone().requires_grad_()
    if not network.learns_scale:
        return dict.fromkeys(("mean", "low", "median", "high"), 0.0)
    q = Normal(loc, cast(MeanField, model.posterior).scale.detach())
    (slope,) = torch.autograd.grad(network.divergence(q, model.p()).sum(), loc)
    found = network.setting.strength * slope.abs().double()
    low, median, high = found.quantile(found.new_tensor([0.1, 0.5, 0.9])).tolist()
    return {"mean": found.mean().item(), "low": low, "median": median, "high": high}


def answers(predictive: Predictive, y: Tensor) -> dict[str, str]:
    """Which rows were called right, a bit each, in hexadecimal: what a bootstrap of rows needs.

    Of two classes also which of the positive rows were found.
    """
    right = predictive.probabilities.argmax(-1) == y
    kept = {"right": right}
    if predictive.probabilities.shape[-1] == 2:
        kept["found"] = right[y == 1]
    return {name: np.packbits(bits.cpu().numpy()).tobytes().hex() for name, bits in kept.items()}


def scores(predictive: Predictive, y: Tensor, penalised: float) -> dict[str, Any]:
    """What a table says of predictions; with two classes also who was missed.

    The loss is the paper's, (λ D + Σ nll)/N with N the number of these images.

    Args:
        predictive: of the images.
        y: their labels.
        penalised: λ D.
    """
    likelihood = nll(predictive, y)
    told: dict[str, Any] = {
        "accuracy": accuracy(predictive, y),
        "nll": likelihood,
        "loss": penalised / len(y) + likelihood,
        "ece": float(metrics.ece(predictive, y)),
    }
    if predictive.probabilities.shape[-1] == 2:
        counts = metrics.confusion(predictive, y)
        told |= {"confusion": counts.tolist(), "false_negatives": int(counts[1, 0])}
        if len(y.unique()) == 2:
            told |= {"auc": float(metrics.auroc(predictive, y)), "roc": _thin(predictive, y)}
    return told


def _thin(predictive: Predictive, y: Tensor) -> dict[str, list[float]]:
    """A ROC curve of few enough points to be kept."""
    from torchmetrics.functional.classification import binary_roc

    false, true, _ = binary_roc(predictive.probabilities.detach()[:, 1], y.long())
    count = min(ROC_POINTS, len(true))
    at = torch.linspace(0, len(true) - 1, count, dtype=torch.float64).round().long().to(y.device)
    sides = {"false_positive_rate": false[at], "true_positive_rate": true[at]}
    return {name: [round(rate, 5) for rate in side.tolist()] for name, side in sides.items()}


def assessed(network: Network, data: Splits, epoch: int) -> dict[str, Any]:
    """All scores of the network as it stands, at the mean and averaged over draws."""
    train, validation, test = data.parts
    samples = network.protocol.test_samples
    divergence = penalty(network)
    penalised = network.setting.strength * divergence
    told: dict[str, Any] = {"epoch": epoch, "divergence": divergence}
    for name, part in (("validation", validation), ("test", test)):
        at_mean = predicted(network, part)
        told[name] = {
            "mean": scores(at_mean, part.y, penalised),
            "averaged": scores(predicted(network, part, samples), part.y, penalised),
        }
        if name == "test":
            told[name]["mean"] |= answers(at_mean, part.y)
        if name == "validation":
            for each in told[name].values():
                each.pop("roc", None)  # the figure shows the test images
    fitted = accuracy(predicted(network, train), train.y)
    return {
        **told,
        "train_accuracy": fitted,
        "gap": fitted - told["validation"]["mean"]["accuracy"],
        "pull": pull(network),
    }
