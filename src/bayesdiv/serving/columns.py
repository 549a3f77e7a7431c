"""Rows of a table as they are written down, and how the graph itself encodes them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Number:
    """A column of numbers: the network sees (value - loc) / scale.

    Args:
        name: of the column.
        loc: subtracted in double precision, so that years or Unix seconds keep their digits.
        scale: divided by.
        unit: of the raw values, for readers of the metadata.
    """

    name: str
    loc: float = 0.0
    scale: float = 1.0
    unit: str = ""

    @property
    def width(self) -> int:
        """How many inputs of the network it fills."""
        return 1


@dataclass(frozen=True)
class Category:
    """A column of categories, given to the graph as the place of its value in `categories`.

    Args:
        name: of the column.
        categories: in the order of the network's inputs, one input each.
    """

    name: str
    categories: tuple[str, ...]

    @property
    def width(self) -> int:
        """How many inputs of the network it fills."""
        return len(self.categories)


Column = Number | Category


class Encoded(nn.Module):
    """From raw columns, (rows, columns) in double precision, to what the network takes.

    Args:
        columns: in the order of the raw table, which is that of the network's inputs.
        dtype: of the network's inputs.

    Examples:
        >>> encoded = Encoded([Number("age", 30.0, 10.0), Category("smoker", ("no", "yes"))])
        >>> encoded(torch.tensor([[50.0, 1.0], [40.0, 2.0]], dtype=torch.float64))
        (tensor([[2., 0., 1.],
                [1., 0., 0.]]), tensor([ True, False]))
    """

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
        values = (raw - self.loc) / self.scale
        pieces, fine = [], values.to(self.dtype).isfinite().all(-1)
        for place, column in enumerate(self.columns):
            piece = values[:, place : place + 1]
            if isinstance(column, Category):
                piece = piece == torch.arange(column.width, dtype=piece.dtype, device=piece.device)
                fine = fine & piece.any(-1)
            pieces.append(piece.to(self.dtype))
        return torch.cat(pieces, -1), fine

    def described(self) -> list[dict[str, object]]:
        """The columns for people and programs that call the graph."""
        told: list[dict[str, object]] = []
        for column in self.columns:
            if isinstance(column, Number):
                told.append({"kind": "number", **asdict(column)})
            else:
                names = list(column.categories)
                told.append({"kind": "category", "name": column.name, "categories": names})
        return told
