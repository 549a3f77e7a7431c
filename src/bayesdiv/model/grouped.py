"""One posterior per group of weight tensors, in place of one for all of them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from bayesdiv.model.bayesian import Bayesian
from bayesdiv.model.layout import Layout
from bayesdiv.model.placeholders import without
from bayesdiv.model.recomputing import called_with


class Group(Bayesian):
    """Some of the random weights of a network that holds several groups of them."""

    # Everything that works on the Bayesian modules of a model, such as `draw_weights` and
    # `Objective`, sees a group as one of them; it cannot be called by itself.

    def __init__(
        self, module: nn.Module, layout: Layout, posterior: nn.Module, prior: nn.Module
    ) -> None:
        super().__init__(module, layout, posterior, prior)
        del self._modules["module"]

    def extra_repr(self) -> str:
        return f"random: {self.layout.size:,} weights in {', '.join(self.layout.names)}"


class Grouped(nn.Module):
    """A network whose random weights come in groups, each with its own posterior and prior."""

    # `bayesianize(…, by=…)` makes it. It draws again in each call, as a `Bayesian` does.

    def __init__(self, module: nn.Module, groups: Mapping[str, Group]) -> None:
        super().__init__()
        self.module = module
        self.groups = nn.ModuleDict(groups)
        self.register_state_dict_post_hook(_without_placeholders)  # type: ignore[no-untyped-call]

    @property
    def parts(self) -> list[Group]:
        return [group for group in self.groups.values() if isinstance(group, Group)]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        weights = [part.lent_or_drawn() for part in self.parts]
        return called_with(self.parts, weights, lambda: self.module(*inputs, **named))

    @property
    def config(self) -> Any:
        return self.module.config

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].dtype


def _without_placeholders(
    module: nn.Module, state: dict[str, Any], prefix: str, metadata: object
) -> None:
    for part in module.parts if isinstance(module, Grouped) else ():
        without(state, f"{prefix}module.", part.layout.names)
