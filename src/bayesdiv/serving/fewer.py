"""A few draws out of many whose predictions are nearest to those of all."""

import torch
from torch import nn

from bayesdiv import quantiles
from bayesdiv.draws import Inputs, Outputs, Weights
from bayesdiv.prediction import predict_at

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the mixture, where distribution functions are compared


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

    Examples:
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        >>> many = bd.draw_weights(net, 200)
        >>> fewer(net, bd.Gaussian(), torch.randn(50, 3), many, 20)[0].shape
        torch.Size([20, 4])
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
