"""KL and JS-G of two Gaussians added up in few passes over a block, most of them in place.

They serve where no scale is near the prior's, where a logarithm would cancel; else the plain rule
adds the block up.
"""

from functools import partial

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.compute.reference import Total, TotalRule, added_up
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.gaussian import OnePass, alpha_of
from bayesdiv.divergence.geometric import jsg_terms
from bayesdiv.divergence.kl import kl_terms


def offer(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> TotalRule | None:
    """The sum of KL, or of JS-G at a fixed alpha."""
    alpha = alpha_of(divergence)
    if rule == OnePass(kl_terms):
        return kl_total
    if rule == OnePass(jsg_terms) and not isinstance(alpha, Tensor):
        return partial(jsg_total, alpha)
    return None


def kl_total(loc: Tensor, scale: Tensor, prior_loc: Tensor, prior_scale: Tensor) -> Total:
    """½ Σ(r² + δ² - 1) - Σ log r, where no ratio is near 1."""
    inverse = prior_scale.reciprocal()
    ratio = scale * inverse
    if ratio.max().item() > 0.95:
        return added_up(kl_terms)(loc, scale, prior_loc, prior_scale)
    delta = (loc - prior_loc).mul_(inverse)
    twice = torch.addcmul(ratio * ratio, delta, delta).sub_(ratio.log(), alpha=2)
    # Not `dot`, which keeps a digit less over many weights than the sums of torch.
    value = twice.sum(-1).sub_(loc.shape[-1]).mul_(0.5)
    return Total(value, delta.mul_(inverse), ratio.sub_(ratio.reciprocal()).mul_(inverse))


def jsg_total(
    alpha: float, loc: Tensor, scale: Tensor, prior_loc: Tensor, prior_scale: Tensor
) -> Total:
    """The sum of `jsg_terms`, where no ratio is near 1 and no square leaves float32."""
    a, b = alpha, 1 - alpha
    inverse = prior_scale.reciprocal()
    ratio = scale * inverse
    low, high = torch.aminmax(ratio)
    if high.item() > 0.95 or low.item() < 1e-18:
        return added_up(jsg_terms, alpha)(loc, scale, prior_loc, prior_scale)
    delta = (loc - prior_loc).mul_(inverse)
    square = ratio * ratio
    inverse_square = square.reciprocal()
    v = square.mul(b).add_(a)
    inverse_v = v.reciprocal()
    c = square.mul(b**3).add_(inverse_square, alpha=a**3).mul_(inverse_v)
    delta_square = delta * delta
    logs = 2 * a * ratio.log().sum(-1) - v.log_().sum(-1)
    powers = b**2 * square.sum(-1) + a**2 * inverse_square.sum(-1) - (a**2 + b**2) * loc.shape[-1]
    value = 0.5 * (powers + logs + (delta_square * c).sum(-1))
    # ½ ∂c/∂log r = ((1-α)³ r² - α³/r² - (1-α) r² c) / v = (1-α)³ r²/v·2 - c - (1-α) r² c / v
    share = square.mul_(inverse_v)  # r²/v
    half_d_c = share.mul(2 * b**3).sub_(c).addcmul_(share, c, value=-b)
    slope = inverse_v.mul_(-a * b).add_(inverse_square, alpha=a**2).add_(b**2)
    d_log_ratio = delta_square.mul_(half_d_c).addcmul_(ratio.add(1).mul_(ratio - 1), slope)
    return Total(value, delta.mul_(c).mul_(inverse), d_log_ratio.div_(scale))
