"""Tables of pandas with text, booleans, dates and gaps, as numbers by scikit-learn's encoders."""

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

MOST_CATEGORIES = 100  # of a column; the rarest share one
DAY = 86_400e9  # nanoseconds


def encoder_for(X: ArrayLike) -> ColumnTransformer | None:
    """The encoder of a table of pandas; None for one that holds numbers alone.

    Numbers, booleans and dates (in days since 1970) have their gaps filled by the median, and a
    column that marks the gaps. Categories have a column each, and a gap is its own category.
    """
    if not is_frame(X):
        return None
    frame = cast(Any, X)
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        got = f"got {repeated[0]!r} more than once"
        raise ValueError(f"column names must differ, {got}: rename one of them")
    kinds = {name: frame[name].dtype.kind for name in frame.columns}
    if all(kind in "iuf" for kind in kinds.values()) and not frame.isna().to_numpy().any():
        return None
    numbers = [name for name, kind in kinds.items() if kind in "iufbmM"]
    texts = [name for name in kinds if name not in numbers]
    filled = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    few = {"handle_unknown": "infrequent_if_exist", "max_categories": MOST_CATEGORIES}
    floats, words = (FunctionTransformer(f, feature_names_out="one-to-one") for f in (_days, _text))
    coded = make_pipeline(words, OneHotEncoder(**few, sparse_output=False))
    parts = [("numbers", make_pipeline(floats, filled), numbers), ("categories", coded, texts)]
    return ColumnTransformer(parts)


def is_frame(X: object) -> bool:
    """Whether it is a table of pandas."""
    return hasattr(X, "iloc") and hasattr(X, "columns")


def check_numbers(X: Any) -> None:
    """Complain of text that is not a number, where X is a table of pandas."""
    for name, column in X.items() if is_frame(X) else ():
        texts = () if column.dtype.kind in "iufbmM" else column
        for value in (text for text in texts if isinstance(text, str)):
            try:
                float(value)
            except ValueError:
                rule = f"column {name!r} must hold numbers or dates as in the fit"
                raise ValueError(f"{rule}, got {value!r}") from None


def _days(frame: Any) -> Any:
    """Numbers and booleans as floats, dates in days."""
    frame = frame.infer_objects()  # dates that came as objects
    check_numbers(frame)
    columns = {}
    for name, column in frame.items():
        columns[str(name)] = column
        if column.dtype.kind in "mM":
            unit = getattr(column.dtype, "unit", None) or np.datetime_data(column.dtype)[0]
            ticks = DAY / {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
            columns[str(name)] = column.astype("int64").where(column.notna(), np.nan) / ticks
    return frame.assign(**columns).astype("float64")


def _text(frame: Any) -> Any:
    values = frame.astype(object).where(frame.notna(), np.nan)
    return values.map(str, na_action="ignore").astype(object)  # floats where all are missing
