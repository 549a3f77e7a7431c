"""Tables of pandas with text, booleans, dates and gaps, as numbers by scikit-learn's encoders."""

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from bayesdiv.app.families import Floats

MOST_CATEGORIES = 100  # of a column; the rarest share one
DAY = 86_400e9  # nanoseconds


def encoder_for(X: ArrayLike) -> ColumnTransformer | None:
    """The encoder of a table of pandas; None for one that holds numbers alone.

    Numbers, booleans and dates (in days since 1970) have their gaps filled by the median, and a
    column that marks the gaps. Categories have a column each, and a gap is its own category.
    """
    if not _is_frame(X):
        return None
    frame = cast(Any, X)
    kinds = {name: frame[name].dtype.kind for name in frame.columns}
    if all(kind in "iuf" for kind in kinds.values()) and not frame.isna().to_numpy().any():
        return None
    numbers = [name for name, kind in kinds.items() if kind in "iufbmM"]
    categories = [name for name in kinds if name not in numbers]
    filled = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    coded = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, sparse_output=False
    )
    return ColumnTransformer([("numbers", filled, numbers), ("categories", coded, categories)])


def plain(X: ArrayLike) -> Any:
    """The table with numbers for booleans and dates, and text for categories."""
    if not _is_frame(X):
        raise ValueError("X must be a DataFrame with the columns that the estimator was fitted on")
    frame = cast(Any, X)
    return frame.assign(**{str(name): _column(frame[name]) for name in frame.columns})


def encoded(encoder: ColumnTransformer, X: ArrayLike) -> Floats:
    """The rows of a table as numbers, each column read as it was in the fit."""
    frame = plain(X)
    kinds = {name: part for part, _, names in encoder.transformers_ for name in names}
    for name in frame.columns:
        number = frame[name].dtype.kind == "f"
        if number != (kinds[name] == "numbers"):
            frame[name] = _texts(frame[name]) if number else frame[name].astype("float64")
    return cast(Floats, np.asarray(encoder.transform(frame), dtype=np.float64))


def _is_frame(X: object) -> bool:
    return hasattr(X, "iloc") and hasattr(X, "columns")


def _column(column: Any) -> Any:
    if column.dtype.kind in "iufb":
        return column.astype("float64")
    if column.dtype.kind in "mM":
        unit = getattr(column.dtype, "unit", None) or np.datetime_data(column.dtype)[0]
        days = DAY / {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
        return column.astype("int64").where(column.notna(), np.nan) / days
    return _texts(column)


def _texts(column: Any) -> Any:
    values = column.astype(object).where(column.notna(), np.nan)
    return values.map(str, na_action="ignore").astype(object)  # floats where all are missing
