"""One optimizer made of several, each with parameters of its own."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


class Several(Optimizer):
    """Take the step of each of several optimizers, such as SGD on means and Adam on scales.

    Its groups are theirs, so schedules, `fit` and a recorded step see one optimizer.

    Args:
        *parts: optimizers over different parameters.

    Examples:
        >>> loc, rho = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
        >>> both = Several(torch.optim.SGD([loc], lr=0.1), torch.optim.Adam([rho], lr=1e-3))
        >>> [group["lr"] for group in both.param_groups]
        [0.1, 0.001]
    """

    def __init__(self, *parts: Optimizer) -> None:
        if not parts:
            raise ValueError("there must be at least one optimizer, got none")
        held = [id(p) for part in parts for group in part.param_groups for p in group["params"]]
        if len(set(held)) < len(held):
            raise ValueError("each parameter must belong to one optimizer, got one in two of them")
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "parts": self.parts}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take over a group of one of the parts, as the same object."""
        self.param_groups.append(param_group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]
