"""Which draws go into a file, and how many bits of each."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesdiv import quantiles
from bayesdiv.draws import Inputs, Outputs, Weights
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.prediction import predict_at

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the mixture, where distribution functions are compared


@dataclass(frozen=True)
class Rounded:
    """Weights in another dtype, such as bfloat16 or float16: half the file.

    The graph computes in float32.
    """

    dtype: torch.dtype = torch.float32

    def packed(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """What is stored."""
        return (tensor.to(self.dtype),)

    def unpacked(self, packed: tuple[Tensor, ...]) -> Tensor:
        """The tensor again, up to rounding, by operations of the graph."""
        return packed[0].float()


@dataclass(frozen=True)
class Int8:
    """Weights in 8 bits, with one scale per output channel: a quarter of the file.

        w ≈ scale_c · k,   k = round(w / scale_c),   scale_c = max |w_c| / 127

    Vectors, such as biases, stay in single precision.
    """

    def packed(self, tensor: Tensor) -> tuple[Tensor, ...]:
        tensor = tensor.float()
        if tensor.dim() < 2:
            return (tensor,)
        scale = tensor.abs().amax(tuple(range(1, tensor.dim())), keepdim=True) / 127
        scale = scale.where(scale > 0, 1.0)
        return (tensor / scale).round().to(torch.int8), scale

    def unpacked(self, packed: tuple[Tensor, ...]) -> Tensor:
        return packed[0] if len(packed) == 1 else packed[0].float() * packed[1]


Precision = Rounded | Int8  # how a weight tensor of a draw is stored


def rounded(net: nn.Module, weights: Weights, precision: Precision) -> Weights:
    """The draws as a file of this precision gives them back, for `predict_at`."""
    return tuple(
        torch.stack([
            module.layout.flatten({
                name: precision.unpacked(precision.packed(tensor))
                for name, tensor in module.layout.unflatten(draw).items()
            })
            for draw in drawn
        ])
        for module, drawn in zip(bayesian_modules(net), weights, strict=True)
    )  # fmt: skip


@torch.no_grad()
def fewer(
    net: nn.Module,
    likelihood: nn.Module,
    x: Inputs,
    weights: Weights,
    count: int,
    *,
    outputs: Outputs | None = None,
) -> Weights:
    """Choose draws, one after the other, whose mixture stays nearest to that of all draws.

    Near is the mean squared distance of class probabilities, or of distribution functions at five
    quantiles of the mixture, over the rows of `x`, such as some hundred of the training data.
    """
    if not weights or not 1 <= count <= len(weights[0]):
        drawn = len(weights[0]) if weights else 0
        raise ValueError(f"count must lie between 1 and the {drawn} draws, got {count}")
    predictive = predict_at(net, likelihood, x, weights, outputs=outputs)
    # What each draw predicts, as numbers whose means are those of the mixture, (S, numbers).
    if predictive.discrete:
        said = predictive.conditional.probs.flatten(1).double()  # type: ignore[attr-defined]
    else:
        points = torch.stack([predictive.quantile(level) for level in LEVELS])
        values = quantiles.cdf(predictive.marginals, points.unsqueeze(1))  # (levels, S, …)
        said = values.movedim(1, 0).flatten(1).double()
    whole, total = said.mean(0), torch.zeros_like(said[0])
    left, places = torch.ones(len(said), dtype=torch.bool, device=said.device), []
    for number in range(1, count + 1):
        away = ((total + said) / number - whole).square().sum(-1)
        places.append(int(away.where(left, torch.inf).argmin()))
        left[places[-1]] = False
        total = total + said[places[-1]]
    return tuple(drawn[places] for drawn in weights)
