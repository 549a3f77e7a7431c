"""The distribution function of Student's t: torch lacks it, and the incomplete beta function."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.distributions import StudentT


def cdf(distribution: StudentT, value: Tensor) -> Tensor:
    """P(T ≤ value), to twelve digits in double precision.

    Examples:
        >>> cdf(StudentT(torch.full((1, 1), 4.0)), torch.tensor([2.0]))
        tensor([[0.9419]], dtype=torch.float64)
    """
    t = (value - distribution.loc) / distribution.scale
    df = distribution.df.double()
    if (df == df[:1, :1]).all():
        df = df[:1, :1]  # one for all, so that most of the work is done once
    tail = _upper_tail(t.abs().double(), df)
    return torch.where(t > 0, 1 - tail, tail)


def farthest(distribution: StudentT, probability: float) -> tuple[Tensor, Tensor]:
    """Bounds of the quantile of each, from P(T > t) ≤ ½ (1 + t²/df)^(-df/2), solved for t.

    J of `_upper_tail` falls with s, which gives that bound.
    """
    outside, df = 2 * min(probability, 1 - probability), distribution.df.double()
    reach = (df * torch.expm1(-2 * math.log(outside) / df)).sqrt().clamp(max=1e150)
    return (
        distribution.loc - distribution.scale * reach,
        distribution.loc + distribution.scale * reach,
    )


def _upper_tail(t: Tensor, df: Tensor) -> Tensor:
    """P(T > t) of Student's t, t ≥ 0, after the substitution T = √df sinh(v + w), t = √df sinh v.

    P(T > t) = ½ cosh(v)^-df J(tanh v) / J(0),   J(s) = ∫ (cosh w + s sinh w)^-df dw over w > 0
    """
    slope = t / (df + t * t).sqrt()
    start = torch.exp(-0.5 * df * torch.log1p(t * t / df))
    return 0.5 * start * _decay(slope, df) / _decay(torch.zeros_like(df), df)


_NODES, _SHARES = (torch.from_numpy(side) for side in np.polynomial.legendre.leggauss(64))


def _decay(slope: Tensor, df: Tensor) -> Tensor:
    """J(s) of `_upper_tail`, by Gauss-Legendre up to where at most e^-36 is left."""
    fall = 36 / df
    reach = fall + torch.log1p((-torch.expm1(-2 * fall)).sqrt())  # arcosh(e^fall)
    total = slope.new_zeros(())
    # A few nodes at a time: all would need 64 times the memory, single ones many small steps.
    for nodes, shares in zip(_NODES.to(df).split(8), _SHARES.to(df).split(8), strict=True):
        w = 0.5 * reach.unsqueeze(-1) * (1 + nodes)
        log_base = w + torch.log1p(0.5 * (1 - slope.unsqueeze(-1)) * torch.expm1(-2 * w))
        total = total + torch.exp(-df.unsqueeze(-1) * log_base) @ shares
    return total * reach
