"""Rows of the regression sets: random splits, standardised by their training part, as one stack."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]


class Shares(Protocol):
    """How many rows are held out: of all to test on, of the training part to choose by."""

    @property
    def test(self) -> float: ...
    @property
    def validation(self) -> float: ...


class Rows(NamedTuple):
    """Standardised rows of a stack of splits, and the scale of each split's target."""

    x: Tensor  # (trials, rows, inputs)
    y: Tensor  # (trials, rows)
    test_x: Tensor
    test_y: Tensor
    scale: Tensor  # (trials,)

    def repeated(self, times: int, device: torch.device) -> "Rows":
        """Every split several times over, candidates along the first axis."""
        return Rows(*(part.repeat(times, *(1,) * (part.dim() - 1)).to(device) for part in self))


def split_rows(
    x: Array,
    y: Array,
    seeds: Sequence[int],
    shares: Shares,
) -> tuple[Rows, Rows]:
    """Training and test rows of each seed's split, and the same inside the training part.

    The second is for the search: its `test` rows are the validation rows.

    Args:
        x: features.
        y: target.
        seeds: of the splits.
        shares: how many rows to test on and to choose by.
    """
    outer, inner = [], []
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(y))
        tested = round(shares.test * len(y))
        held_out, train = order[:tested], order[tested:]
        held = round(shares.validation * len(train))
        outer.append(_standardised(x, y, train, held_out))
        inner.append(_standardised(x, y, train[held:], train[:held]))
    return _stack(outer), _stack(inner)


def _standardised(
    x: Array,
    y: Array,
    train: Array,
    test: Array,
) -> list[Array]:
    """By the moments of the training rows; a constant column is left at 0."""
    loc, scale = x[train].mean(0), x[train].std(0)
    scale = np.where(scale > 0, scale, 1.0)
    target, spread = y[train].mean(), y[train].std()
    inputs = [(x[rows] - loc) / scale for rows in (train, test)]
    targets = [(y[rows] - target) / spread for rows in (train, test)]
    return [inputs[0], targets[0], inputs[1], targets[1], spread]


def _stack(splits: list[list[Array]]) -> Rows:
    together = (np.stack(part) for part in zip(*splits, strict=True))
    return Rows(*(torch.as_tensor(part, dtype=torch.float32) for part in together))


SETS = (
    *("airfoil", "aquatic_toxicity", "boston_housing", "building"),
    *("concrete", "real_estate", "wine_red", "yacht"),
)
"""The six sets of the paper's tables and the six of its text, eight in all."""


def arrays(data: str, folder: Path | None = None) -> tuple[Array, Array]:
    """Features and target of a public data set.

    Args:
        data: its name.
        folder: where `pack` has put it as plain arrays; elsewhere it is read as a table.
    """
    packed = None if folder is None else folder / f"{data}.npz"
    if packed is not None and packed.is_file():
        with np.load(packed) as read:
            return read["x"], read["y"]
    from bayesdiv.app.data import uci

    table = uci.read(data)
    return table.features.to_numpy(float), table.frame[table.target].to_numpy(float)


def pack(folder: Path) -> list[Path]:
    """Write every set as plain arrays, for a machine that cannot read tables."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for data in SETS:
        x, y = arrays(data)
        np.savez_compressed(folder / f"{data}.npz", x=x, y=y)
        written.append(folder / f"{data}.npz")
    return written
