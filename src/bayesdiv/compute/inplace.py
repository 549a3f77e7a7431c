"""Totals of rules between Gaussians by operations of torch, most of them in place."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.gaussian import GaussianRule, OnePass, alpha_of, block_terms
from bayesdiv.divergence.kl import jsg_terms, kl_terms


class Total(NamedTuple):
    """The sum of a divergence over weights, the last axis, and derivatives by loc and scale."""

    value: Tensor
    d_loc: Tensor
    d_scale: Tensor


# From loc and scale of the posterior and of the prior, those of the prior maybe single numbers.
TotalRule = Callable[[Tensor, Tensor, Tensor, Tensor], Total]


def offer(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> TotalRule | None:
    """The sum of any rule between Gaussians that works in one pass, at a fixed alpha."""
    # KL and JS-G take few passes, most of them in place, where no scale is near the prior's: there
    # a logarithm would cancel, and the plain rule adds the block up.
    alpha = alpha_of(divergence)
    if not isinstance(rule, OnePass) or isinstance(alpha, Tensor):
        return None
    if rule.terms is kl_terms:
        return kl_total
    return partial(jsg_total, alpha) if rule.terms is jsg_terms else added_up(rule.terms, alpha)


def added_up(terms: GaussianRule, alpha: float = 0.0) -> TotalRule:
    """The rule of one value per weight as one that adds a block up."""

    def total(*block: Tensor) -> Total:
        value, d_loc, d_scale, _ = block_terms(terms, *block, alpha)
        return Total(value.sum(-1), d_loc, d_scale)

    return total


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


def prior_serves(q: Normal, p: Normal) -> bool:
    """Whether the prior is not learned, of q's dtype and device, and spans no more axes than q."""
    loc, scale, like = p.loc, p.scale, q.loc
    if loc.requires_grad or scale.requires_grad:
        return False
    if not loc.dtype == scale.dtype == like.dtype or not loc.device == scale.device == like.device:
        return False
    inner, outer = p.batch_shape, q.batch_shape
    same = inner == outer[len(outer) - len(inner) :]  # which is cheaper to see than to broadcast
    return same or torch.broadcast_shapes(inner, outer) == outer
