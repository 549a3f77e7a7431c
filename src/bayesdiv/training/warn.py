"""What `fit` warns of before it begins: each trains, and not the model that was meant."""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesdiv.likelihoods.gaussian import Gaussian
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.objective.objective import Objective
from bayesdiv.training.batches import Batches
from bayesdiv.training.parameter_groups import decayed_spreads

_FAR = 5.0  # times the noise that a likelihood starts with


def warn(
    model: nn.Module, objective: Objective, batches: Iterable[Any], optimizer: Optimizer
) -> None:
    """Warn of a divergence without effect, of targets on another scale, and of decayed scales."""
    for message in (
        _no_posterior(model, objective),
        _scale(objective, batches),
        _decay(model, optimizer),
    ):
        if message is not None:
            warnings.warn(message, stacklevel=4)


def _no_posterior(model: nn.Module, objective: Objective) -> str | None:
    asked = objective.divergence_given and objective.strength.report() > 0
    if bayesian_modules(model) or not asked:
        return None
    return (
        f"the model has no Bayesian module, so that {objective.divergence} has no effect: make it "
        "one with bayesianize, or set strength=0"
    )


def _scale(objective: Objective, batches: Iterable[Any]) -> str | None:
    likelihood = objective.likelihood
    targets = _targets(batches)
    if not isinstance(likelihood, Gaussian) or targets is None:
        return None
    spread = targets.float().square().mean().sqrt().item()
    noise = likelihood.scale.detach().max().item()
    if not spread > _FAR * noise:
        return None
    return (
        f"the targets are of size {spread:.3g}, far above the noise of {noise:.3g} that the "
        "likelihood starts with: standardise them to mean 0 and deviation 1"
    )


def _targets(batches: Iterable[Any]) -> Tensor | None:
    """All targets, where they are at hand without an epoch."""
    if isinstance(batches, Batches):
        return batches.y
    tensors = getattr(getattr(batches, "dataset", None), "tensors", None)
    found = tensors[-1] if isinstance(tensors, tuple) and tensors else None
    return found if isinstance(found, torch.Tensor) and found.is_floating_point() else None


def _decay(model: nn.Module, optimizer: Optimizer) -> str | None:
    decay = decayed_spreads(model, optimizer)
    if not decay > 0:
        return None
    return (
        f"the optimizer has weight decay {decay:g} on the scales of the posterior, which pulls "
        "them towards 0.69: use parameter_groups of bayesdiv.training.parameter_groups"
    )
