"""Chains of linear layers for many weights at once: batched products, without `torch.vmap`."""

from typing import cast

from torch import Tensor, nn

from bayesdiv.compute.devices import autocast_dtype, traced
from bayesdiv.model.bayesian import Bayesian

# Layers that take numbers one by one, and draw nothing at random.
_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus)


def chained(model: nn.Module, weights: Tensor, x: object) -> Tensor | None:
    """Outputs of each draw and trial, (draws, trials…, rows, outputs); None for other networks.

    The weights are (draws, trials…, weights), the rows (trials…, rows, columns). For a network of a
    few units, `torch.vmap` takes longer than the products themselves.
    """
    if not isinstance(x, Tensor) or type(model) is not Bayesian or not _is_chain(model):
        return None
    usual = x.dtype == weights.dtype == model.dtype and autocast_dtype(x.device) is None
    if not usual or traced() or x.shape[:-2] != weights.shape[1:-1] or x.dim() != weights.dim():
        return None
    flat = weights.flatten(0, -2)
    pairs = zip(model.layout.entries, flat.split(model.layout.sizes, -1), strict=True)
    shaped = ((entry.names, piece.reshape(len(flat), *entry.shape)) for entry, piece in pairs)
    model.put({name: tensor for names, tensor in shaped for name in names})
    try:
        outputs = x.expand(len(weights), *x.shape).reshape(len(flat), *x.shape[-2:])
        for layer in cast(nn.Sequential, model.module):
            if type(layer) is not nn.Linear:
                outputs = layer(outputs)
            elif layer.bias is None:
                outputs = outputs @ layer.weight.mT
            else:
                outputs = layer.bias.unsqueeze(1).baddbmm(outputs, layer.weight.mT)
    finally:
        model.put(None)
    return outputs.reshape(*weights.shape[:-1], *outputs.shape[1:])


def _is_chain(model: Bayesian) -> bool:
    """Whether all layers are known, without hooks, and all their weights random."""
    layers = [*model.module.children()]
    parts = (model, model.module, *layers)
    return (
        type(model.module) is nn.Sequential
        and all(type(layer) is nn.Linear or type(layer) in _ELEMENTWISE for layer in layers)
        and next(model.module.parameters(), None) is None
        and not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
        and not any(part._backward_hooks or part._backward_pre_hooks for part in parts)
    )
