"""Distribution functions as ratios of two areas, by operations that every runtime has.

Each is ∫ exp(-bend) up to some point over the whole, after a substitution that makes the bend
convex with its least value 0. No gamma function is needed, and no loop that looks at values.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import NegativeBinomial

NODES, STEP = 40, 0.08  # of the tanh-sinh rule, on each side of its middle
ENOUGH = 30.0  # e^-30 of an integrand's peak is left out


def upper_gamma(a: Tensor, x: Tensor) -> Tensor:
    """Q(a, x), the regularised upper incomplete gamma function, in double precision."""
    # t = a e^v,   bend(v) = a (e^v - 1 - v)
    a, x = torch.broadcast_tensors(a.double(), x.double())
    share, each = ENOUGH / a, a.unsqueeze(-1)
    reach = (2 * share).sqrt()

    def bend(v: Tensor) -> Tensor:
        # v² / 2 + v³ / 6 + … near 0, where e^v - 1 - v would lose its digits.
        near = v * v * (0.5 + v / 6 + v * v / 24)
        return each * torch.where(v.abs() < 1e-2, near, v.exp() - 1 - v)

    low, high = -(share * 2 / 3 + reach), (1 + share + reach).log()
    return 1 - _below(bend, low, torch.zeros_like(a), (x / a).log(), high)


def negative_binomial(distribution: NegativeBinomial, value: Tensor) -> Tensor:
    """P(Y ≤ value) of counts: the regularised incomplete beta function I_{1-p}(r, value + 1)."""
    # x = sigmoid(v),   bend(v) = -r log x - b log(1 - x), less its value at the peak
    a, logits = distribution.total_count.double(), distribution.logits.double()
    whole = value.double().floor()
    a, b, at = torch.broadcast_tensors(a, whole.clamp(min=0) + 1, -logits)
    one, two, peak = a.unsqueeze(-1), b.unsqueeze(-1), (a / b).log().unsqueeze(-1)
    least = one * _softplus(-peak) + two * _softplus(peak)

    def bend(v: Tensor) -> Tensor:
        found: Tensor = one * _softplus(-v) + two * _softplus(v) - least
        return found

    middle, wide = (a / b).log(), (2 * ENOUGH * (1 / a + 1 / b)).sqrt()
    low, high = middle - wide - ENOUGH / a, middle + wide + ENOUGH / b
    return torch.where(whole < 0, 0.0, _below(bend, low, middle, at, high))


def _softplus(v: Tensor) -> Tensor:
    """log(1 + e^v) by operations that onnxruntime has in double precision too."""
    return v.clamp(min=0) + (1 + (-v.abs()).exp()).log()


def _below(
    bend: Callable[[Tensor], Tensor], low: Tensor, peak: Tensor, at: Tensor, high: Tensor
) -> Tensor:
    """The share of the area below a point; no piece has the peak inside, where it is sharpest."""
    at = torch.maximum(torch.minimum(at, high), low)
    first, last = torch.minimum(at, peak), torch.maximum(at, peak)
    left, middle, right = (
        _area(bend, *ends) for ends in ((low, first), (first, last), (last, high))
    )
    return (left + torch.where(at > peak, middle, 0.0)) / (left + middle + right)


def _area(bend: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """∫ exp(-bend) from low to high, by the tanh-sinh rule."""
    # Made in the graph: a constant tensor in a decomposition is lost on the way to ONNX.
    t = STEP * torch.arange(-NODES, NODES + 1, dtype=low.dtype, device=low.device)
    steep = 0.25 * math.pi * (t.exp() - (-t).exp())
    shares = STEP * 0.5 * math.pi * (t.exp() + (-t).exp()) / (steep.exp() + (-steep).exp()) ** 2
    width = high - low
    v = low.unsqueeze(-1) + width.unsqueeze(-1) / (1 + (-2 * steep).exp())
    return ((-bend(v)).exp() * shares).sum(-1) * width
