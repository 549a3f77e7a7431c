"""What an optimizer is given, and what `fit` refuses or warns of before it begins."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesdiv.divergence.estimators import Auto
from bayesdiv.divergence.quadrature import Quadrature
from bayesdiv.draws import leaves
from bayesdiv.likelihoods import Gaussian, Noisy
from bayesdiv.model.bayesian import bayesian_modules
from bayesdiv.objective.objective import Objective
from bayesdiv.objective.strength import Fixed
from bayesdiv.training.batches import Batches, examples
from bayesdiv.training.optimizers.natural import Natural

_FAR = 5.0  # times the noise that a likelihood starts with
_SLOW = 100  # weights, whose integrals take seconds


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
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn())
        >>> objective = bd.Objective(bd.Gaussian(), num_data=10)
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


def _of_posteriors(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Means and all else that posteriors learn, each once."""
    posteriors = nn.ModuleList(module.posterior for module in bayesian_modules(model))
    named = [(name.rpartition(".")[2], own) for name, own in posteriors.named_parameters()]
    return [p for name, p in named if name == "loc"], [p for name, p in named if name != "loc"]


def check(
    model: nn.Module, objective: Objective, batches: Iterable[Any], optimizer: Optimizer
) -> None:
    """Refuse what is easily forgotten, and would train another model than was meant."""
    rows = examples(batches)
    if rows not in (None, objective.num_data):
        told = f"training examples, {rows} in batches, got {objective.num_data}"
        raise ValueError(f"num_data must be the number of {told}")
    if isinstance(optimizer, Natural):
        _check_natural(optimizer.param_groups[0], objective)
    modules = bayesian_modules(model)
    trials = modules[0].loc.shape[:-1] if modules else torch.Size()
    objective.strength.check(trials)
    alpha = getattr(objective.divergence, "alpha", None)
    if isinstance(alpha, Tensor) and alpha.dim() and alpha.shape != (*trials, 1):
        told = f"{(*trials, 1)}, one per trial, got {tuple(alpha.shape)}"
        raise ValueError(f"alpha given as a tensor must have shape {told}")
    own = objective.likelihood.trials if isinstance(objective.likelihood, Noisy) else ()
    if own and tuple(own) != tuple(trials):
        told = f"for {tuple(trials)} trials, got {tuple(own)}"
        raise ValueError(f"the likelihood's scale must be one number, or one per trial {told}")
    if isinstance(batches, Batches) and batches.trials != tuple(trials):
        rule = f"batches must have one seed per trial of a stack of {trials.numel()}"
        got = f"got x of {tuple(leaves(batches.x)[0].shape)}"
        raise ValueError(f"{rule}, x and y that begin with (trials, rows), {got}")
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for name, part in (("model", model), ("objective", objective)):
        for key, parameter in part.named_parameters():
            if parameter.requires_grad and id(parameter) not in held:
                told = f"every parameter of the {name} that is to learn, it lacks {key}"
                remedy = f"add {name}.parameters(), or fix it by requires_grad_(False)"
                raise ValueError(f"the optimizer must hold {told}: {remedy}")


def _check_natural(group: Mapping[str, Any], objective: Objective) -> None:
    """What the natural gradient is of must be what the loss is."""
    kept, value = objective.strength, torch.as_tensor(objective.strength.value())
    if not isinstance(kept, Fixed) or kept.plan is not None:
        raise ValueError("Natural needs a fixed strength, got a WarmUp or Constraint: use Adam")
    wanted, found = objective.num_data, group["num_data"]
    if found != wanted or not bool((torch.as_tensor(group["strength"]).to(value) == value).all()):
        told = f"have the objective's num_data and strength, {wanted} and {kept.value()}"
        raise ValueError(f"Natural must {told}, got {found} and {group['strength']}")


def cautions(
    model: nn.Module, objective: Objective, batches: Iterable[Any], optimizer: Optimizer
) -> Iterator[str]:
    """Of a divergence without effect or slow, targets on another scale, and decayed scales."""
    asked = objective.divergence_given and objective.strength.report() > 0
    if asked and not bayesian_modules(model):
        told = f"the model has no Bayesian module, so that {objective.divergence} has no effect"
        yield f"{told}: make it one with bayesianize, or set strength=0"
    way, divergence = objective.estimator, objective.divergence.reduced()
    for module in bayesian_modules(model):
        q, p, size = module.q(), module.p(), module.layout.size
        large = size >= _SLOW and not q.event_shape
        if large and isinstance(way, Auto) and type(way.choose(divergence, q, p)) is Quadrature:
            told = "is integrated in every step, which takes some 20 ms per weight"
            remedy = "use KL, JSA, a Gaussian prior, or estimator=bd.MonteCarlo(samples=10)"
            prior = f"{size:,} weights from a {type(p).__name__} prior"
            yield f"{divergence} of {prior} {told}: {remedy}"
    likelihood, targets = objective.likelihood, _targets(batches)
    if isinstance(likelihood, Gaussian) and targets is not None:
        spread = targets.float().square().mean().sqrt().item()
        noise = likelihood.scale.detach().max().item()
        if spread > _FAR * noise:
            told = f"far above the noise of {noise:.3g} that the likelihood starts with"
            remedy = "standardise them to mean 0 and deviation 1"
            yield f"the targets are of size {spread:.3g}, {told}: {remedy}"
    spreads = {id(parameter) for parameter in _of_posteriors(model)[1]}
    for group in optimizer.param_groups:
        decay = group.get("weight_decay", 0.0)
        if decay > 0 and any(id(parameter) in spreads for parameter in group["params"]):
            told = f"weight decay {decay:g} on the scales of the posterior, which pulls them"
            yield f"the optimizer has {told} towards 0.69: use bd.parameter_groups"


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
    own = (p for module in bayesian_modules(model) for p in module.posterior.parameters())
    return torch.stack([_own(p).isfinite().flatten(1).all(1) for p in own]).all(0).cpu()


def _own(parameter: Tensor) -> Tensor:
    """What this process holds of it, where several share a parameter."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter.detach()
