"""Predictions of a trained network on every set, and what they are worth."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.field.corruptions import CORRUPTIONS, corrupted
from benchmarks.field.data import FAR, Part
from benchmarks.field.scores import far_auroc, scores

Logs = dict[str, Tensor]
SEVERITIES = range(1, 6)


class Trained(NamedTuple):
    """A network and how one draw of it is made: inside the context, the network is that draw."""

    model: nn.Module
    draw: Callable[[], AbstractContextManager[object]]
    samples: int


class Seen(NamedTuple):
    """Images to be predicted, and for how many draws at most."""

    x: Tensor
    draws: int


def seen(parts: dict[str, Part], shifted: int) -> dict[str, Seen]:
    """The test images, the far ones, and `shifted` test images under each corruption."""
    found = {"test": Seen(parts["test"].x, 32)}
    found |= {f"far_{name}": Seen(parts[name].x, 16) for name in FAR if name in parts}
    few = parts["test"].x[:shifted]
    for name in CORRUPTIONS if shifted else ():
        for severity in SEVERITIES:
            x = (corrupted(few, name, severity) * 255).round().to(torch.uint8)
            found[f"shift_{name}_{severity}"] = Seen(x, 8)
    return found


@torch.no_grad()
def predicted(trained: Trained, sets: dict[str, Seen]) -> Logs:
    """Log of the mean probability over draws, for every set, in single precision."""
    trained.model.eval()
    sums: Logs = {}
    for number in range(trained.samples):
        with trained.draw():
            for name, (x, draws) in sets.items():
                if number < draws:
                    own = _probabilities(trained.model, x)
                    sums[name] = own if number == 0 else sums[name].add_(own)
    return {
        name: (total / min(trained.samples, sets[name].draws)).clamp(min=1e-30).log()
        for name, total in sums.items()
    }


def _probabilities(model: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
        outputs = [model(images) for images in x.split(2000 if x.is_cuda else 200)]
    return torch.cat(outputs).double().softmax(-1)


def unusable(logs: Logs) -> Logs:
    """What a run that diverged is judged by: every class as likely."""
    return {name: torch.full_like(own, 0.1).log() for name, own in logs.items()}


def judged(logs: Logs, y: Tensor) -> dict[str, object]:
    """Scores on the test images, AUROC of every far set, scores under each corruption."""
    found: dict[str, object] = {"test": scores(logs["test"], y)}
    found["far"] = {
        name: far_auroc(logs["test"], logs[f"far_{name}"]) for name in FAR if f"far_{name}" in logs
    }
    found["shift"] = {
        name: [
            scores(own, y[: len(own)])
            for severity in SEVERITIES
            for own in [logs[f"shift_{name}_{severity}"]]
        ]
        for name in CORRUPTIONS
        if f"shift_{name}_1" in logs
    }
    return found
