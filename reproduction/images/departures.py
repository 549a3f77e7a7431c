"""What of the paper's plan a run did not do: its pixels, epochs, patches, start and search."""

from collections.abc import Mapping
from typing import Any

PIXELS, EPOCHS, PATCHES = 224, 50, 277_524


def departures(run: Mapping[str, Any]) -> list[str]:
    """In words, the paper's plan first and in brackets what was done instead.

    Examples:
        >>> departures({"data": "cifar10", "protocol": {"pixels": 64, "epochs": 50}})
        ['224 pixels (64)', 'ImageNet start (random)', 'TPE (even spread)']
    """
    protocol, data, found = run["protocol"], run["data"], []
    if data == "synthetic":
        return []
    if data != "cifar100" and protocol["pixels"] != PIXELS:
        found.append(f"{PIXELS} pixels ({protocol['pixels']})")
    if protocol["epochs"] != EPOCHS:
        found.append(f"{EPOCHS} epochs ({protocol['epochs']})")
    if data == "histopathology" and sum(run["sizes"].values()) < PATCHES:
        found.append(f"{PATCHES:,} patches ({sum(run['sizes'].values()):,})")
    return [*found, "ImageNet start (random)", "TPE (even spread)"]


def keeps_rows(run: Mapping[str, Any]) -> bool:
    """Whether a run keeps which test rows it called right: what the bootstrap of rows needs."""
    best = run.get("at_best")
    return best is not None and "right" in best["test"]["mean"]
