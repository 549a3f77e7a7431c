"""Figures that the paper prints, to stand beside ours; nothing here is computed.

Of the regression tables only the columns JS-G and JS-A are the paper's own runs; the others it took
from Wan et al. (2020). The functions of f_c1 and f_c2 are not given, so they are not rerun here.
"""

from typing import NamedTuple


class Spread(NamedTuple):
    """A mean and what stands after ±, whose meaning the paper does not say."""

    mean: float
    spread: float


PUBLISHED_AS = {
    "js_g": "JS-G",
    "js_a": "JS-A",
    "kl": "KL-VI",
    "chi": "χ-VI",
    "renyi": "α-VI",
    "total_variation": "TV-VI",
    "f_c1": "f_c1-VI",
    "f_c2": "f_c2-VI",
}
NOT_RERUN = ("f_c1", "f_c2")

_Row = tuple[tuple[float, float], ...]


def _table(rows: dict[str, _Row]) -> dict[str, dict[str, Spread]]:
    return {
        data: {name: Spread(*pair) for name, pair in zip(PUBLISHED_AS, row, strict=True)}
        for data, row in rows.items()
    }


# Table 3, columns in the order of PUBLISHED_AS.
RMSE = _table(
    {
        "airfoil": (
            *((2.22, 0.25), (2.32, 0.19), (2.16, 0.07), (2.36, 0.14)),
            *((2.30, 0.08), (2.47, 0.15), (2.34, 0.09), (2.16, 0.09)),
        ),
        "aquatic_toxicity": (
            *((1.63, 0.19), (1.13, 0.13), (1.12, 0.06), (1.20, 0.06)),
            *((1.14, 0.07), (1.23, 0.10), (1.14, 0.06), (1.14, 0.06)),
        ),
        "boston_housing": (
            *((3.34, 0.88), (2.91, 0.73), (2.76, 0.36), (2.99, 0.37)),
            *((2.86, 0.36), (2.96, 0.36), (2.87, 0.36), (2.89, 0.38)),
        ),
        "concrete": (
            *((5.10, 0.67), (4.88, 0.63), (5.40, 0.24), (3.32, 0.34)),
            *((5.32, 0.27), (5.27, 0.24), (5.26, 0.21), (5.32, 0.24)),
        ),
        "real_estate": (
            *((6.77, 1.1), (7.37, 2.3), (7.48, 1.4), (7.51, 1.4)),
            *((7.46, 1.4), (8.02, 1.6), (7.52, 1.4), (7.99, 1.6)),
        ),
        "yacht": (
            *((0.82, 0.35), (0.69, 0.25), (0.78, 0.12), (1.18, 0.18)),
            *((0.99, 0.12), (1.03, 0.14), (1.00, 0.18), (0.82, 0.16)),
        ),
    }
)

# Table 4.
NLL = _table(
    {
        "airfoil": (
            *((2.22, 0.09), (2.72, 0.10), (2.17, 0.03), (2.27, 0.03)),
            *((2.26, 0.02), (2.28, 0.04), (2.29, 0.02), (2.18, 0.03)),
        ),
        "aquatic_toxicity": (
            *((1.94, 0.13), (1.78, 0.23), (1.54, 0.04), (1.60, 0.08)),
            *((1.54, 0.07), (1.56, 0.07), (1.54, 0.06), (1.55, 0.04)),
        ),
        "boston_housing": (
            *((2.69, 0.31), (3.3, 1.12), (2.49, 0.08), (2.54, 0.18)),
            *((2.48, 0.13), (2.51, 0.18), (2.49, 0.13), (2.51, 0.10)),
        ),
        "concrete": (
            *((3.1, 0.17), (3.11, 0.20), (3.10, 0.04), (2.61, 0.18)),
            *((3.09, 0.04), (3.10, 0.05), (3.09, 0.03), (3.10, 0.04)),
        ),
        "real_estate": (
            *((3.49, 0.06), (3.56, 0.20), (3.60, 0.30), (3.70, 0.45)),
            *((3.59, 0.32), (3.86, 0.52), (3.62, 0.33), (3.74, 0.37)),
        ),
        "yacht": (
            *((1.51, 0.15), (1.43, 0.09), (1.70, 0.02), (1.79, 0.03)),
            *((1.82, 0.01), (1.78, 0.02), (2.05, 0.01), (1.86, 0.02)),
        ),
    }
)
