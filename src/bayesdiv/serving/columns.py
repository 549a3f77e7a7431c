"""Rows of a table as they are written down, and how the graph itself encodes them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Number:
    """A column of numbers: the network sees (value - loc) / scale, from double precision."""

    name: str
    loc: float = 0.0
    scale: float = 1.0
    unit: str = ""  # of the raw values, for readers of the metadata
    fill: float | None = None  # instead of NaN, with a further input that is 1 there

    @property
    def width(self) -> int:
        """How many inputs of the network it fills."""
        return 1 + (self.fill is not None)


@dataclass(frozen=True)
class Category:
    """A column of categories, given to the graph as the place of its value in `categories`."""

    name: str
    categories: tuple[str, ...]  # in the order of the network's inputs, one input each
    fill: int | None = None  # the place that stands for NaN, with a further input that is 1 there

    @property
    def width(self) -> int:
        return len(self.categories) + (self.fill is not None)


Column = Number | Category


class Encoded(nn.Module):
    """From raw columns, (rows, columns) in double precision, to what the network takes."""

    loc: Tensor
    scale: Tensor

    def __init__(self, columns: Sequence[Column], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.columns, self.dtype = tuple(columns), dtype
        wide = torch.float64
        numbers = [c if isinstance(c, Number) else Number(c.name) for c in self.columns]
        self.register_buffer("loc", torch.tensor([c.loc for c in numbers], dtype=wide))
        self.register_buffer("scale", torch.tensor([c.scale for c in numbers], dtype=wide))

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs, and which rows are whole: finite numbers and known categories."""
        pieces, fine = [], torch.ones_like(raw[:, 0], dtype=torch.bool)
        for place, column in enumerate(self.columns):
            value = raw[:, place : place + 1]
            missing = value.isnan()
            if column.fill is not None:
                value = value.masked_fill(missing, column.fill)
            piece = ((value - self.loc[place]) / self.scale[place]).to(self.dtype)
            known = piece.isfinite()
            if isinstance(column, Category):
                places = torch.arange(len(column.categories), dtype=value.dtype, device=raw.device)
                piece, known = (value == places).to(self.dtype), value == value.floor()
                known = known & (value >= 0) & (value < len(column.categories))
            pieces += [piece] if column.fill is None else [piece, missing.to(self.dtype)]
            fine = fine & known.squeeze(-1)
        return torch.cat(pieces, -1), fine
