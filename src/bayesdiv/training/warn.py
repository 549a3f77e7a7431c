"""What `fit` warns of before it begins: each trains, and not the model that was meant."""

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from bayesdiv.likelihoods.numbers import Gaussian
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.objective.objective import Objective
from bayesdiv.training.batches import Batches
from bayesdiv.training.parameter_groups import decayed_spreads

_FAR = 5.0  # times the noise that a likelihood starts with


def warn(
    model: nn.Module, objective: Objective, batches: Iterable[Any], optimizer: Optimizer
) -> None:
    """Warn of a divergence without effect, of targets on another scale, and of decayed scales."""
    for message in _messages(model, objective, batches, optimizer):
        warnings.warn(message, stacklevel=4)


def _messages(
    model: nn.Module, objective: Objective, batches: Iterable[Any], optimizer: Optimizer
) -> Iterator[str]:
    asked = objective.divergence_given and objective.strength.report() > 0
    if asked and not bayesian_modules(model):
        yield (
            f"the model has no Bayesian module, so that {objective.divergence} has no effect: make "
            "it one with bayesianize, or set strength=0"
        )
    likelihood, targets = objective.likelihood, _targets(batches)
    if isinstance(likelihood, Gaussian) and targets is not None:
        spread = targets.float().square().mean().sqrt().item()
        noise = likelihood.scale.detach().max().item()
        if spread > _FAR * noise:
            yield (
                f"the targets are of size {spread:.3g}, far above the noise of {noise:.3g} that "
                "the likelihood starts with: standardise them to mean 0 and deviation 1"
            )
    decay = decayed_spreads(model, optimizer)
    if decay > 0:
        yield (
            f"the optimizer has weight decay {decay:g} on the scales of the posterior, which pulls "
            "them towards 0.69: use parameter_groups of bayesdiv.training.parameter_groups"
        )


def _targets(batches: Iterable[Any]) -> Tensor | None:
    """All targets, where they can be read without an epoch."""
    if isinstance(batches, Batches):
        return batches.y
    tensors = getattr(getattr(batches, "dataset", None), "tensors", None)
    found = tensors[-1] if isinstance(tensors, tuple) and tensors else None
    return found if isinstance(found, Tensor) and found.is_floating_point() else None
