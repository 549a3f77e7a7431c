"""Whether weights are still numbers: a last step may break them after every loss was finite."""

import torch
from torch import Tensor, nn

from bayesdiv.model.bayesian import bayesian_modules


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
