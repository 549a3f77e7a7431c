"""Values that do not fit their column: words among numbers, and decimal commas."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bayesdiv.app.data.columns import OneHot, kind_of, no_number
from bayesdiv.app.data.values import FEW_ODD_ONES, parsed, pointed, unit_of

if TYPE_CHECKING:
    from pandas import Series


def check_text(column: "Series") -> None:
    """Complain of text that is numbers but for a few values, or for decimal commas."""
    wrong = odd_ones(column)
    if wrong.mean() >= FEW_ODD_ONES:
        still = np.isnan(parsed(pointed(column)))
        wrong &= ~still if still.mean() < 0.5 else False
    if wrong.any():
        raise no_number(column, int(wrong.argmax()))


def odd_ones(column: "Series") -> NDArray[np.bool_]:
    """Which values of a column of text, some of them numbers, are none."""
    if column.dtype.name in ("bool", "boolean", "category") or kind_of(column) is not OneHot:
        return np.zeros(len(column), dtype=bool)
    bare = column.map(lambda value: value.partition(" ")[0] if isinstance(value, str) else value)
    there: NDArray[np.bool_] = column.notna().to_numpy(dtype=bool)
    return np.isnan(parsed(bare)) & there


def without_odd_ones(column: "Series") -> "Series":
    """A column that is numbers but for a few values, with these missing; others as they are."""
    wrong = odd_ones(column)
    few = wrong.any() and wrong.sum() < FEW_ODD_ONES * column.count()
    if not few or not np.isnan(parsed(pointed(column[wrong]))).all():
        return column
    there = column.mask(wrong)
    return there if unit_of(there) else there.astype(float)
