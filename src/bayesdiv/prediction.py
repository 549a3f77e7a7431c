"""From a trained model to its predictions."""

import torch
from torch import Tensor, nn

from bayesdiv.draws import Over, Weights, batched, draw_weights, draws
from bayesdiv.predictive import Predictive


def predict(
    model: nn.Module,
    likelihood: nn.Module,
    x: Tensor,
    samples: int = 100,
    *,
    over: Over = batched,
    batch_size: int | None = None,
) -> Predictive:
    """Predict with several weight draws, the same for all rows.

    Args:
        model: the trained model; it is put in evaluation mode for the time of the call.
        likelihood: the one it was trained with.
        x: inputs.
        samples: weight draws to average over.
        over: how several draws are run.
        batch_size: rows at a time, for data that do not fit at once.

    Examples:
        >>> import bayesdiv as bd
        >>> from torch.distributions import Normal
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.Prior(Normal, loc=0.0, scale=1.0))
        >>> bd.predict(net, bd.Gaussian(), torch.zeros(5, 3)).mean.shape
        torch.Size([5])
    """
    weights = draw_weights(model, samples)
    return predict_at(model, likelihood, x, weights, over=over, batch_size=batch_size)


def predict_at(
    model: nn.Module,
    likelihood: nn.Module,
    x: Tensor,
    weights: Weights,
    *,
    over: Over = batched,
    batch_size: int | None = None,
) -> Predictive:
    """The same with weights drawn before (`draw_weights`), which serve any number of calls."""
    axis = weights[0].dim() - 2 if weights else 0  # of the rows, after those of the trials
    if x.shape[axis] == 0:
        raise ValueError("there must be at least one row to predict, got 0")
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            weights = tuple(w.detach() for w in weights)
            parts = x.split(batch_size or x.shape[axis], axis)
            outputs = torch.cat([draws(model, rows, weights, over) for rows in parts], axis + 1)
            return Predictive(likelihood(outputs))
    finally:
        for module, training in modes:
            module.training = training
