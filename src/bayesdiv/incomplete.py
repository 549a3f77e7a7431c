"""Incomplete gamma and beta functions, of which torch lacks the second and ONNX both.

In a graph they are ratios of two areas, ∫ exp(-bend) up to some point over the whole, after a
substitution that makes the bend convex with its least value 0: no gamma function is needed, and no
loop that looks at values.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

NODES, STEP = 40, 0.08  # of the tanh-sinh rule, on each side of its middle
ENOUGH = 30.0  # e^-30 of an integrand's peak is left out
MOST_TERMS = 1000  # of a continued fraction


def beta(a: Tensor, b: Tensor, logits: Tensor) -> Tensor:
    """I_x(a, b) at x = sigmoid(logits), by the side whose continued fraction is short."""
    x = logits.sigmoid()
    a, b, logits, x = torch.broadcast_tensors(a, b, logits, x)
    turned = x > (a + 1) / (a + b + 2)
    one, two = torch.where(turned, b, a), torch.where(turned, a, b)
    near = torch.where(turned, 1 - x, x)
    logs = logsigmoid(logits), logsigmoid(-logits)  # of x and of 1 - x
    log_near, log_far = torch.where(turned, logs[1], logs[0]), torch.where(turned, *logs)
    front = (one * log_near + two * log_far - _log_beta(a, b) - one.log()).exp()
    found = front / _fraction(one, two, near)
    return torch.where(turned, 1 - found, found).clamp(0, 1)


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of Γ(a) Γ(b) / Γ(a + b); of a large number by Stirling's series."""
    small, large, total = torch.minimum(a, b), torch.maximum(a, b), a + b
    far = small - (large - 0.5) * (small / large).log1p() - small * total.log()
    far = far + (1 / large - 1 / total) / 12 - (large**-3 - total**-3) / 360
    return small.lgamma() + far.where(large > 100, large.lgamma() - total.lgamma())


def _fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """1 + d_1/(1 + d_2/(1 + …)) of the incomplete beta function, evaluated from the front."""
    value, above, below = torch.ones_like(x), torch.ones_like(x), torch.zeros_like(x)
    for step in range(1, 2 * MOST_TERMS):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 / (1 + term * below + 1e-300)  # never 0, nor is the next
        above = 1 + term / above + 1e-300
        value = value * above * below
        if bool(((above * below - 1).abs() < 1e-14).all()):
            break
    return value


def beta_in_graph(a: Tensor, b: Tensor, logits: Tensor) -> Tensor:
    """The same as `beta`."""
    # x = sigmoid(v),   bend(v) = -a log x - b log(1 - x), less its value at the peak
    a, b, at = torch.broadcast_tensors(a, b, logits)
    one, two, middle = a.unsqueeze(-1), b.unsqueeze(-1), (a / b).log()

    def bend(v: Tensor) -> Tensor:
        found: Tensor = one * _softplus(-v) + two * _softplus(v)
        return found

    least, wide = bend(middle.unsqueeze(-1)), (2 * ENOUGH * (1 / a + 1 / b)).sqrt()
    low, high = middle - wide - ENOUGH / a, middle + wide + ENOUGH / b
    return _below(lambda v: bend(v) - least, low, middle, at, high)


def upper_gamma_in_graph(a: Tensor, x: Tensor) -> Tensor:
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
