"""The factor before the divergence: λ as a number, one per trial, rising, or kept by a limit."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

# A multiplier far above 1 must not fill an optimizer's memory of gradients: dual ascent moves
# log λ by λ · violation, with λ taken as 2 at most.
STEEPEST = 2.0
# More ends the chase sooner, and slows the way down from a multiplier far too large.
DAMPING = 0.2


class Strength(nn.Module, ABC):
    """λ: what the loss takes, what an epoch reports, what else is learned."""

    @abstractmethod
    def value(self) -> float | Tensor:
        """λ as the loss takes it, a number or one per trial."""

    def report(self) -> float:
        """λ as an epoch reports it, the mean over the trials."""
        return torch.as_tensor(self.value(), dtype=torch.float64).mean().item()

    def begin(self, epoch: int) -> None:
        """Take the value of this epoch, counted from 0."""

    def term(self, penalty: Tensor, divergence: Tensor, weights: int) -> Tensor | None:
        """What the loss gains beside λ D/N, (trials…): of value 0, for its gradient alone."""
        return None

    def check(self, trials: torch.Size) -> None:
        """Refuse a stack that this strength does not fit."""


class Fixed(Strength):
    """A number, a tensor with one per trial of a stack, or what a `WarmUp` has in the epoch."""

    each: Tensor

    def __init__(self, strength: "float | Tensor | WarmUp") -> None:
        super().__init__()
        self.plan = strength if isinstance(strength, WarmUp) else None
        # In a tensor: a compiled step would be compiled again for every other number, and a
        # recorded one would keep the first.
        strength = torch.tensor(strength.value(0)) if isinstance(strength, WarmUp) else strength
        given = torch.as_tensor(strength)
        if not bool(((given >= 0) & given.isfinite()).all()):
            raise ValueError(f"strength must be finite and not negative, got {strength}")
        self.number = None if isinstance(strength, Tensor) else strength
        self.register_buffer("each", given, persistent=False)

    def value(self) -> float | Tensor:
        return self.each if self.number is None else self.number

    def begin(self, epoch: int) -> None:
        if self.plan is not None:
            self.each.fill_(self.plan.value(epoch))

    def check(self, trials: torch.Size) -> None:
        if self.each.dim() and self.each.shape != trials:
            told = f"{tuple(trials)}, one per trial, got {tuple(self.each.shape)}"
            raise ValueError(f"strength given as a tensor must have shape {told}")


@dataclass(frozen=True)
class WarmUp:
    """A strength that rises linearly from 0 to its value over the first epochs.

    Args:
        epochs: how many.
        strength: the value it reaches.

    Examples:
        >>> [WarmUp(epochs=4).value(epoch) for epoch in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
    """

    epochs: int
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or not self.strength >= 0:
            raise ValueError(f"epochs must be at least 1 and strength not negative, got {self}")

    def value(self, epoch: int) -> float:
        """The strength in an epoch, counted from 0."""
        return self.strength * min(1.0, (epoch + 1) / self.epochs)


class Constraint(Strength):
    """The constraint that the paper's loss is derived from, instead of a fixed strength.

        max E_q[log p(data | w)]   subject to   D(q ‖ p) ≤ ε · weights      (paper, eq. 17)

    The strength λ is the multiplier, learned by dual ascent along with the weights, by the
    optimizer that holds `objective.parameters()`: log λ moves by min(λ, 2) · (D/weights - ε). The
    weights feel λ (.8 + .2 D/(ε · weights)), at most 2 λ and λ at the limit: else weights and
    multiplier would chase each other for long.

    Args:
        epsilon: the limit, in nats per weight.
        initial: the initial λ; a tensor gives each trial of a stack its own multiplier.

    Examples:
        >>> Constraint(epsilon=0.1, initial=torch.ones(3)).value()
        tensor([1., 1., 1.])
    """

    def __init__(self, epsilon: float, initial: float | Tensor = 1.0) -> None:
        super().__init__()
        first = torch.as_tensor(initial, dtype=torch.get_default_dtype())
        if not epsilon > 0 or not bool((first > 0).all()):
            raise ValueError(f"epsilon and initial must be positive, got {epsilon} and {initial}")
        self.epsilon = epsilon
        self.trials = first.shape
        # One axis at least: `fully_shard` takes no single numbers.
        self.log_strength = nn.Parameter(first.log().reshape(self.trials or (1,)))

    def value(self) -> Tensor:
        """The multiplier λ as it stands, one per trial, through which no gradient flows."""
        return self.log_strength.detach().exp().reshape(self.trials)

    def term(self, penalty: Tensor, divergence: Tensor, weights: int) -> Tensor:
        """By log λ its gradient is the violation, to ascend; by the weights it damps the ascent."""
        each = divergence.detach() / weights
        slope = self.value().clamp(max=STEEPEST) * (each - self.epsilon)
        beyond = (each / self.epsilon - 1).clamp(max=1 / DAMPING)
        damped = DAMPING * beyond * (penalty - penalty.detach())
        ascent = (self.log_strength.detach() - self.log_strength).reshape(self.trials)
        return damped + slope * ascent

    def check(self, trials: torch.Size) -> None:
        """One multiplier per trial: one for all would keep the limit in none of them."""
        if self.trials != trials:
            told = f"one multiplier per trial, shape {tuple(trials)}, got {tuple(self.trials)}"
            raise ValueError(f"a Constraint must have {told}: give initial= as a tensor")
