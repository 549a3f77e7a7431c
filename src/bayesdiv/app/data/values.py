"""Text as numbers and dates: what people write in the cells of a table, read with pandas."""

import re
import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import Series

FEW_ODD_ONES = 0.2  # a smaller share of values that are no numbers is taken for mistakes
GROUPS = "'’ \u00a0\u202f"  # that may stand between thousands in any file
_MONEY = "[$€£¥₹]|US\\$"
_UNIT = r"-?\d*\.?\d+(?:[eE][+-]?\d+)? ?([^\d\s.,()]{1,8})"


def words_for(column: "Series") -> str:
    """What the values are, in pandas' words."""
    from pandas.api.types import infer_dtype

    return "floating" if column.dtype.kind in "iuf" else str(infer_dtype(column, skipna=True))


def unit_of(column: "Series") -> str | None:
    """The unit that stands beside every number of a column of text, such as € or %; or None."""
    if words_for(column) != "string" or column.dtype.name == "category":
        return None
    units = column.dropna().drop_duplicates().str.extract(f"^{_UNIT}$")[0]
    return str(units.iloc[0]) if units.notna().all() and units.nunique() == 1 else None


def format_of(column: "Series") -> list[str]:
    """The formats that every value of a column of text fits as a date, the likeliest first."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    texts = column.dropna().drop_duplicates()
    if not len(texts):
        return []
    first = str(texts.iloc[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a day comes first, which is what is asked
        days = ("." in first, "." not in first)
        guessed = dict.fromkeys(guess_datetime_format(first, dayfirst=day) for day in days)
    whole = [how for how in guessed if how and "%d" in how and "%Y" in how and "%Y%" not in how]
    read = {how: pd.to_datetime(texts, format=how, errors="coerce", utc=True) for how in whole}
    return [how for how, found in read.items() if found.notna().all()]


def parsed(column: "Series", unit: str = "") -> NDArray[np.float64]:
    """A column as floats, in this unit or without any, NaN where a value is no such number."""
    import pandas as pd

    if unit and column.dtype.kind not in "iuf":
        column = column.map(lambda v: v.strip().removesuffix(unit) if isinstance(v, str) else v)
    values = pd.to_numeric(column, errors="coerce")
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def pointed(column: "Series") -> "Series":
    """Text with its first comma as a decimal point."""
    return column.astype(str).str.replace(",", ".", n=1, regex=False)


def stripped(column: "Series") -> "Series":
    """Text without the spaces around it; other columns as they are."""
    return column.str.strip() if words_for(column) == "string" else column


def plain_numbers(
    column: "Series",
    decimal: str = ".",
    share: float = 1 - FEW_ODD_ONES,
    groups: str = GROUPS + ",",
) -> "Series":
    """A column of text with its numbers as Python writes them, if there is at least this share.

    Thousands may be grouped by one of the characters `groups`; a unit that all numbers have
    stays, behind them; what is in brackets is negative. Other text is left as it is.
    """
    import pandas as pd

    if column.dtype.kind in "iufb" or pd.api.types.infer_dtype(column, skipna=True) != "string":
        return column
    number = re.compile(
        rf"(?P<open>\()?(?P<sign>[+\-−]?)\s?(?P<before>{_MONEY})?\s?(?P<minus>[\-−]?)"
        rf"(?P<whole>[1-9]\d{{0,2}}(?:[{groups}]\d{{3}})+|\d+)?"
        rf"(?:{re.escape(decimal)}(?P<part>\d+))?(?P<power>[eE][+-]?\d+)?"
        r"\s?(?P<after>[^\d\s.,()]{1,8})?(?(open)\))"
    )
    texts = column.dropna().unique()
    plain = {text: new for text in texts if (new := _plain(number.fullmatch(text.strip())))}
    units = {new.partition(" ")[2] for new in plain.values()}
    if share and (len(units) != 1 or column.isin(list(plain)).sum() < share * column.count()):
        return column
    new = column.astype(object).map(lambda text: plain.get(text, text), na_action="ignore")
    values = pd.to_numeric(new, errors="coerce")
    return values if values.count() == column.count() else new


def _plain(found: re.Match[str] | None) -> str | None:
    """A number as Python writes it, with its unit."""
    if found is None or not (found["whole"] or found["part"]):
        return None
    sign = "-" if found["open"] or found["minus"] or found["sign"] in ("-", "−") else ""
    part = f".{found['part']}" if found["part"] else ""
    number = sign + re.sub(r"\D", "", found["whole"] or "0") + part + (found["power"] or "")
    return f"{number} {found['before'] or found['after'] or ''}".strip()


def example(before: "Series", after: "Series") -> str:
    """A value that Python would not have read, and what it was read as."""
    import pandas as pd

    odd = (pd.to_numeric(before, errors="coerce").isna() & after.notna()).to_numpy().argmax()
    return f"{before.iloc[odd]!r} is {after.iloc[odd]:.12g}"
