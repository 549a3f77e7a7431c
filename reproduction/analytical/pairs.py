"""Random pairs of densities on which the theorems are tried."""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Laplace, Normal, StudentT, Uniform

from reproduction.item import Effort


@dataclass(frozen=True)
class Settings:
    """What is tried.

    Args:
        pairs: of each two families.
        seed: of the parameters.
        farthest: means lie within this of 0.
        narrowest: the smallest scale.
        widest: the largest one.
    """

    pairs: int = 60
    seed: int = 0
    farthest: float = 4.0
    narrowest: float = 0.1
    widest: float = 10.0


SIZES = {Effort.FULL: Settings(), Effort.QUICK: Settings(pairs=4)}
FAMILIES: dict[str, Any] = {
    "Gaussian": Normal,
    "Laplace": Laplace,
    "Student": lambda loc, scale: StudentT(torch.full_like(loc, 5.0), loc, scale),
    "uniform": lambda loc, scale: Uniform(loc - scale, loc + scale),
}
WHOLE_LINE = ("Gaussian", "Laplace", "Student")


def drawn(settings: Settings, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Means and scales, evenly and evenly on a log axis."""
    loc, at = (torch.rand(settings.pairs, generator=generator).double() for _ in range(2))
    ends = math.log(settings.narrowest), math.log(settings.widest)
    return settings.farthest * (2 * loc - 1), (ends[0] + at * (ends[1] - ends[0])).exp()


def pairs(
    settings: Settings, families: tuple[str, ...]
) -> list[tuple[str, Distribution, Distribution]]:
    """Every two of these families with random parameters, in words and as q and p."""
    generator = torch.Generator().manual_seed(settings.seed)
    return [
        (
            f"{one} from {other}",
            FAMILIES[one](*drawn(settings, generator)),
            FAMILIES[other](*drawn(settings, generator)),
        )
        for one, other in product(families, families)
    ]


def alphas(settings: Settings, number: int) -> Tensor:
    """One alpha per pair inside (0, 1), the same for a number of a pair of families."""
    generator = torch.Generator().manual_seed(settings.seed + 1 + number)
    return 0.001 + 0.998 * torch.rand(settings.pairs, generator=generator).double()
