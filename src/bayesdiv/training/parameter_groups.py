"""What an optimizer holds, apart: means, spreads, noise, and all that is not random."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bayesdiv.model.bayesian import bayesian_modules


def parameter_groups(
    model: nn.Module,
    objective: nn.Module,
    *,
    loc: Mapping[str, Any] | None = None,
    rho: Mapping[str, Any] | None = None,
    noise: Mapping[str, Any] | None = None,
    others: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Make parameter groups for a torch optimizer, with settings for each.

    Weight decay pulls rho towards 0, which is a scale of softplus(0) = 0.69: the default of AdamW
    widens a posterior by a sixth, and ten times that decay widens it several-fold. So rho and the
    noise have no decay here unless you set one; the divergence holds them.

    Args:
        model: with Bayesian modules inside, or none.
        objective: its loss.
        loc: settings for the means.
        rho: for all else that a posterior learns: scales, factors of a covariance.
        noise: for the parameters of the objective.
        others: for the weights of the model that are not random.

    Examples:
        >>> import torch, bayesdiv as bd
        >>> from torch.distributions import Normal
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.Prior(Normal, loc=0.0, scale=1.0))
        >>> objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=10)
        >>> groups = parameter_groups(net, objective, loc={"lr": 1e-2}, rho={"lr": 1e-1})
        >>> optimizer = torch.optim.AdamW(groups, lr=1e-3)
        >>> [(g["name"], g["lr"], g["weight_decay"]) for g in optimizer.param_groups]
        [('loc', 0.01, 0.01), ('rho', 0.1, 0.0), ('noise', 0.001, 0.0)]
    """
    means, spreads = _of_posteriors(model)
    random = {id(parameter) for parameter in (*means, *spreads)}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in random]
    undecayed = {"weight_decay": 0.0}
    groups = [
        {"name": "loc", "params": means, **(loc or {})},
        {"name": "rho", "params": spreads, **undecayed, **(rho or {})},
        {"name": "noise", "params": list(objective.parameters()), **undecayed, **(noise or {})},
        {"name": "others", "params": rest, **(others or {})},
    ]
    return [group for group in groups if group["params"]]


def decayed_spreads(model: nn.Module, optimizer: Optimizer) -> float:
    """The largest weight decay of anything that makes a posterior wide; 0 if there is none."""
    spreads = {id(parameter) for parameter in _of_posteriors(model)[1]}
    decays = [
        group.get("weight_decay", 0.0)
        for group in optimizer.param_groups
        if any(id(parameter) in spreads for parameter in group["params"])
    ]
    return max(decays, default=0.0)


def _of_posteriors(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Means and all else that posteriors learn, each once."""
    posteriors = nn.ModuleList(module.posterior for module in bayesian_modules(model))
    named = [(name.rpartition(".")[2], own) for name, own in posteriors.named_parameters()]
    return [p for name, p in named if name == "loc"], [p for name, p in named if name != "loc"]
