"""Where a run happens: one device, or several processes that accelerate keeps together."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bayesdiv.compute.devices import has_gpu

if TYPE_CHECKING:
    from accelerate import Accelerator


class Alone:
    """One process on one device, without a wrapper around model or optimizer."""

    rank, world = 0, 1

    def __init__(self, device: torch.device | None = None) -> None:
        found = torch.accelerator.current_accelerator(check_available=True)
        self.device = device or found or torch.device("cpu")

    def prepare(
        self, module: nn.Module, optimizer: Optimizer, batches: Iterable[Any]
    ) -> tuple[nn.Module, Optimizer, Iterable[Any]]:
        return module, optimizer, batches

    def backward(self, total: Tensor) -> None:
        total.backward()

    def mean(self, values: Tensor) -> Tensor:
        return values


class Together:
    """What an `Accelerator` of accelerate says: several processes, or its own precision."""

    def __init__(self, accelerator: "Accelerator") -> None:
        self.accelerator = accelerator
        self.device = accelerator.device
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        started = int(os.environ.get("WORLD_SIZE", "1"))
        if started > 1 and self.world == 1:
            raise ValueError(
                f"{started} processes were started, but accelerate sees one: on a CPU give "
                "accelerator=Accelerator(cpu=True)"
            )

    def prepare(
        self, module: nn.Module, optimizer: Optimizer, batches: Iterable[Any]
    ) -> tuple[nn.Module, Optimizer, Iterable[Any]]:
        """Wrapped by accelerate; a loader then deals its batches out itself."""
        module, optimizer = self.accelerator.prepare(module, optimizer)
        if isinstance(batches, torch.utils.data.DataLoader):
            batches = self.accelerator.prepare(batches)
            self.rank, self.world = 0, 1
        return module, optimizer, batches

    def backward(self, total: Tensor) -> None:
        self.accelerator.backward(total)

    def mean(self, values: Tensor) -> Tensor:
        return cast(Tensor, self.accelerator.reduce(values, reduction="mean"))


Place = Alone | Together


def place_of(accelerator: "Accelerator | None", device: torch.device | str | None) -> Place:
    """Where to train: as given, else several processes if they were started, else one device."""
    if accelerator is not None:
        return Together(accelerator)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import Accelerator

        return Together(Accelerator(cpu=not has_gpu()))
    return Alone(None if device is None else torch.device(device))
