"""Natural-gradient steps for mean and scale of a Gaussian posterior, under any divergence."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.optim import Optimizer

from bayesdiv.model.posteriors import MeanField, inverse_softplus

Advance = Callable[..., None]
_LARGEST = 1e30  # of a precision: the scale stays a positive number in single precision


class Natural(Optimizer):
    """Variational online Newton for the loss N·E_q[nll] + λ D(q ‖ p), whatever the divergence D.

    For q = N(m, 1/s) per weight the natural gradient in the natural parameters is the plain one in
    the expectation parameters. With the loss on the scale of one example, as `Objective` has it:

        G = (N/λ) (∂loss/∂σ)/σ                        the curvature that the precision lacks
        s ← s (1 + clip(ρ G/s, -½, 1))                → s = N h/λ + 1/σ_p² for KL, h: curvature
        m ← m - η clip(ḡ/(λ s/N + damping))           ḡ: momentum of ∂loss/∂m, bias-corrected

    Both gradients are the ordinary ones: no second backward pass, and the state is ḡ and s. The
    rate ρ is max(rate, 1/(memory + t)) in step t: a mean over the steps so far in which the first
    precision counts for `memory` of them. So noise that begins small (a small `start`) is let grow
    as evidence comes in. JS-A fades where q is narrow: give it a larger rate, or a larger `start`.

    Every `MeanField` of the modules is trained so, every other parameter (biases, norms, the noise
    of a likelihood) by SGD with the same momentum. Leading axes are independent trials.

    Args:
        *modules: those whose parameters are to learn, model and objective.
        num_data: N, how many training examples there are.
        strength: λ, a number or one per trial; positive.
        lr: η. Where `damping` outweighs the curvature, η/damping is a plain learning rate.
        momentum: share of the past in ḡ.
        rate: the smallest ρ.
        memory: steps for which the first precision counts.
        damping: added to the curvature in the step of the means; the optimum stays the same.
        clip: bound of a mean's step before η, per weight.
        widest: bound of the scale, such as the prior's: noise in G lets single scales wander.
        others_lr: learning rate of the other parameters; None is `lr`.
        others_decay: weight decay of the other parameters.
        transform: applied to `advance` once, such as `torch.compile`: on a GPU then one pass.

    Examples:
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn(), start=0.03)
        >>> objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=64)
        >>> optimizer = Natural(net, objective, num_data=64, strength=1.0, lr=0.1)
        >>> x, y = torch.randn(64, 3), torch.randn(64)
        >>> [epoch.number for epoch in bd.fit(net, objective, bd.Batches(x, y, 16), optimizer, 2)]
        [1, 2]
    """

    def __init__(
        self,
        *modules: nn.Module,
        num_data: int,
        strength: float | Tensor = 1.0,
        lr: float | Tensor = 0.1,
        momentum: float = 0.9,
        rate: float = 1e-4,
        memory: float = 1000.0,
        damping: float = 0.0,
        clip: float = math.inf,
        widest: float = math.inf,
        others_lr: float | Tensor | None = None,
        others_decay: float = 0.0,
        transform: Callable[[Advance], Advance] | None = None,
    ) -> None:
        if not all(isinstance(module, nn.Module) for module in modules):
            rule = "Natural takes modules, not their parameters: Natural(model, objective, …)"
            raise TypeError(f"{rule}, got {', '.join(type(one).__name__ for one in modules)}")
        positive = {"num_data": num_data, "strength": strength, "clip": clip, "widest": widest}
        for name, value in positive.items():
            if not bool((torch.as_tensor(value) > 0).all()):
                raise ValueError(f"{name} must be positive for a natural gradient, got {value}")
        if not 0 <= momentum < 1 or not 0 <= rate < 1:
            raise ValueError(f"momentum and rate must lie in [0, 1), got {momentum} and {rate}")
        own = lr if others_lr is None else others_lr
        sizes = {"lr": lr, "others_lr": own, "others_decay": others_decay}
        for name, value in (sizes | {"memory": memory, "damping": damping}).items():
            if not bool((torch.as_tensor(value) >= 0).all()):
                raise ValueError(f"{name} must be a number of at least 0, got {value}")
        inside = [part for module in modules for part in module.modules()]
        posteriors = dict.fromkeys(part for part in inside if isinstance(part, MeanField))
        if not posteriors:
            raise ValueError("Natural needs a module with a MeanField posterior, got none")
        natural = positive | {"rate": rate, "memory": memory, "damping": damping}
        groups: list[dict[str, Any]] = [{"params": [q.loc, q.rho], **natural} for q in posteriors]
        taken = {id(parameter) for group in groups for parameter in group["params"]}
        every = dict.fromkeys(p for module in modules for p in module.parameters())
        others = [p for p in every if id(p) not in taken and p.requires_grad]
        if others:
            groups.append({"params": others, "lr": own, "weight_decay": others_decay})
        super().__init__(groups, {"lr": lr, "momentum": momentum, "capturable": True})
        for group in self.param_groups:  # a tensor of its own, which a schedule changes in place
            group["lr"] = copy.deepcopy(group["lr"])
        self._advance = advance if transform is None else transform(advance)

    def __getstate__(self) -> dict[str, Any]:
        """All of it, for a copy: torch's own leaves out what it does not know."""
        return {**super().__getstate__(), "_advance": self._advance}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step from the gradients as they are."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if "strength" in group:
                self._step_posterior(group)
            else:
                self._step_others(group)
        return loss

    def _step_posterior(self, group: dict[str, Any]) -> None:
        loc, rho = group["params"]
        if loc.grad is None and rho.grad is None:
            return
        if loc.grad is None or rho.grad is None:
            told = "Natural needs the gradients of both loc and rho of a posterior, got one"
            raise ValueError(f"{told}: freeze neither or both, or use another optimizer")
        state = self._state(loc)
        state["step"].add_(1)
        if "precision" not in state:
            state["precision"] = softplus(rho).square_().reciprocal_()
        number = state["step"].double()
        self._advance(
            (loc, rho),
            (loc.grad, rho.grad),
            (state["momentum"], state["precision"]),
            examples=_per_weight(group["num_data"] / group["strength"], loc),
            rate=(1 / (group["memory"] + number)).clamp(min=group["rate"]),
            lr=_per_weight(group["lr"], loc),
            share=group["momentum"],
            forgotten=1 - group["momentum"] ** number,
            damping=group["damping"],
            clip=group["clip"],
            least=max(1 / _LARGEST, group["widest"] ** -2),
        )

    def _step_others(self, group: dict[str, Any]) -> None:
        share = group["momentum"]
        # Few kernels for all of a kind: one per parameter costs more than the posterior's step.
        kinds: dict[Any, list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
        for same in kinds.values():
            states = [self._state(parameter) for parameter in same]
            gradients = [p.grad for p in same if p.grad is not None]
            means = [state["momentum"] for state in states]
            torch._foreach_add_([state["step"] for state in states], 1)
            decayed = torch._foreach_add(gradients, same, alpha=group.get("weight_decay", 0.0))
            torch._foreach_lerp_(means, decayed, 1 - share)
            # As torch's SGD, whose momentum adds gradients up, in the same unit of rate.
            number = states[0]["step"].double()
            factor = group["lr"] / (1 - share) / (1 - share**number)
            torch._foreach_sub_(same, torch._foreach_mul(means, factor.to(same[0].dtype)))

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        """Momentum and the number of the step, counted on the device so that nothing waits."""
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["momentum"] = torch.zeros_like(parameter)
        return state


_Pair = tuple[Tensor, Tensor]


def advance(
    parameters: _Pair,
    gradients: _Pair,
    state: _Pair,
    *,
    examples: Tensor,
    rate: Tensor,
    lr: Tensor,
    share: float,
    forgotten: Tensor,
    damping: float,
    clip: float,
    least: float = 1 / _LARGEST,
) -> None:
    """Change mean, raw scale, momentum and precision in place: the step of `Natural` itself.

    `examples` is N/λ, `forgotten` 1 less the weight of the momentum's start.
    """
    # Element by element, without branches on values: a compiler makes it one pass over memory.
    (loc, rho), (by_loc, by_rho), (mean, precision) = parameters, gradients, state
    slope = by_rho / rho.sigmoid()  # ∂loss/∂σ
    lacking = slope * precision.rsqrt() * examples * rate  # ρ G/s, with σ = s^-½
    precision.mul_(1 + lacking.clamp(-0.5, 1.0)).clamp_(least, _LARGEST)
    mean.lerp_(by_loc, 1 - share)
    move = mean / forgotten / (precision / examples + damping)
    loc.sub_(move.clamp(-clip, clip) * lr)
    rho.copy_(inverse_softplus(precision.rsqrt()))


def _per_weight(value: float | Tensor, loc: Tensor) -> Tensor:
    """One number for all weights, or one per trial with an axis for the weights."""
    if isinstance(value, Tensor):
        return value.to(loc).unsqueeze(-1) if value.dim() else value.to(loc.device)
    # Filled on the device: a copy from the host would wait, and could not be recorded.
    return torch.full((), value, dtype=torch.float64, device=loc.device)


@dataclass(frozen=True)
class Cosine:
    """Rise linearly, then fall along half a cosine to 0.

        factor(t) = ½ (1 + cos(π (t - warm_up)/(steps - warm_up)))

    For `fit(…, schedule=LambdaLR(optimizer, Cosine(epochs * len(batches))))`.
    """

    steps: int
    warm_up: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up < self.steps:
            raise ValueError(f"warm_up must be at least 0 and below steps, got {self}")

    def __call__(self, step: int) -> float:
        """The factor of a step, counted from 0."""
        if step < self.warm_up:
            return (step + 1) / (self.warm_up + 1)
        done = (step - self.warm_up) / (self.steps - self.warm_up)
        return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
