"""Random Gaussians over the whole range the library promises to hold for."""

import math

import torch
from hypothesis import strategies as st
from torch.distributions import Normal

LOC = st.floats(-1e4, 1e4)
SCALE = st.floats(math.log(1e-6), math.log(1e3)).map(math.exp)
ALPHA = st.floats(0, 1)
INNER_ALPHA = st.floats(1e-6, 1 - 1e-6)


def normals(dtype: torch.dtype = torch.float64) -> st.SearchStrategy[Normal]:
    return st.builds(
        lambda loc, scale: Normal(torch.tensor(loc, dtype=dtype), torch.tensor(scale, dtype=dtype)),
        LOC,
        SCALE,
    )


def near_normals() -> st.SearchStrategy[Normal]:
    """Gaussians within a few scales of N(0, 1): where divergences are neither 0 nor saturated."""
    return st.builds(
        lambda loc, scale: Normal(
            torch.tensor(loc, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64)
        ),
        st.floats(-6, 6),
        st.floats(math.log(0.02), math.log(20)).map(math.exp),
    )
