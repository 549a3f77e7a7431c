"""What `fit` refuses or warns of before it begins, and whether weights are numbers after it."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesdiv.draws import leaves
from bayesdiv.likelihoods.numbers import Gaussian
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.objective.objective import Objective
from bayesdiv.training.batches import Batches, examples
from bayesdiv.training.parameter_groups import decayed_spreads

_FAR = 5.0  # times the noise that a likelihood starts with


def check(
    model: nn.Module, objective: Objective, batches: Iterable[Any], optimizer: Optimizer
) -> None:
    """Refuse what is easily forgotten, and would train another model than was meant."""
    rows = examples(batches)
    if rows is not None and rows != objective.num_data:
        raise ValueError(
            f"num_data must be the number of training examples, {rows} in batches, got "
            f"{objective.num_data}"
        )
    modules = bayesian_modules(model)
    trials = modules[0].loc.shape[:-1] if modules else torch.Size()
    objective.strength.check(trials)
    alpha = getattr(objective.divergence, "alpha", None)
    if isinstance(alpha, Tensor) and alpha.dim() and alpha.shape != (*trials, 1):
        raise ValueError(
            f"alpha given as a tensor must have shape {(*trials, 1)}, one per trial, got "
            f"{tuple(alpha.shape)}"
        )
    if isinstance(batches, Batches):
        seeds = () if batches.seeds is None else (len(batches.seeds),)
        if seeds != tuple(trials):
            raise ValueError(
                f"batches must have one seed per trial of a stack of {trials.numel()}, x and y "
                "that begin with the axes (trials, rows), got x of "
                f"{tuple(leaves(batches.x)[0].shape)}"
            )
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for name, part in (("model", model), ("objective", objective)):
        for key, parameter in part.named_parameters():
            if parameter.requires_grad and id(parameter) not in held:
                raise ValueError(
                    f"the optimizer must hold every parameter of the {name} that is to learn, it "
                    f"lacks {key}: add {name}.parameters(), or fix it by requires_grad_(False)"
                )


def cautions(
    model: nn.Module, objective: Objective, batches: Iterable[Any], optimizer: Optimizer
) -> Iterator[str]:
    """Of a divergence without effect, of targets on another scale, and of decayed scales."""
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


def broken(*modules: nn.Module) -> str | None:
    """The name of a parameter that holds NaN or infinite numbers; None if none does."""
    named = [pair for module in modules for pair in module.named_parameters()]
    if not named:
        return None
    fine = torch.stack([_own(parameter).isfinite().all() for _, parameter in named]).tolist()
    return next((name for (name, _), good in zip(named, fine, strict=True) if not good), None)


def finite_trials(model: nn.Module) -> Tensor:
    """Which trials of a stack have posteriors of numbers alone, (trials,), on the CPU."""
    found = [
        _own(parameter).isfinite().flatten(1).all(1)
        for module in bayesian_modules(model)
        for parameter in module.posterior.parameters()
    ]
    return torch.stack(found).all(0).cpu()


def _own(parameter: Tensor) -> Tensor:
    """What this process holds of it, where several share a parameter."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter.detach()
