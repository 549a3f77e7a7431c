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


def default_device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


class Place:
    """As given, else several processes if they were started, else one device, with no wrapper."""

    def __init__(
        self, accelerator: "Accelerator | None", device: torch.device | str | None
    ) -> None:
        started = int(os.environ.get("WORLD_SIZE", "1"))
        if accelerator is None and started > 1:
            from accelerate import Accelerator

            accelerator = Accelerator(cpu=not has_gpu())
        self.accelerator, self.rank, self.world = accelerator, 0, 1
        if accelerator is None:
            self.device = default_device() if device is None else torch.device(device)
            return
        self.device = accelerator.device
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        if started > 1 and self.world == 1:
            raise ValueError(
                f"{started} processes were started, but accelerate sees one: on a CPU give "
                "accelerator=Accelerator(cpu=True)"
            )

    def prepare(
        self, module: nn.Module, optimizer: Optimizer, batches: Iterable[Any]
    ) -> tuple[nn.Module, Optimizer, Iterable[Any]]:
        """Wrapped by accelerate, if any; a loader then deals its batches out itself."""
        if self.accelerator is not None:
            module, optimizer = self.accelerator.prepare(module, optimizer)
            if isinstance(batches, torch.utils.data.DataLoader):
                batches = self.accelerator.prepare(batches)
                self.rank, self.world = 0, 1
        return module, optimizer, batches

    def backward(self, total: Tensor) -> None:
        if self.accelerator is None:
            total.backward()
        else:
            self.accelerator.backward(total)

    def mean(self, values: Tensor) -> Tensor:
        """Over the processes."""
        if self.accelerator is None:
            return values
        return cast(Tensor, self.accelerator.reduce(values, reduction="mean"))
