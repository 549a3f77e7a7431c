"""The definition of a total: the plain rule of a divergence, added up over weights.

A `TotalRule` turns loc and scale of a block of weights into the sum of a divergence and its
derivatives, so that no value per weight is kept. Every faster rule is tried against this one.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.gaussian import GaussianRule, OnePass, alpha_of, block_terms


class Total(NamedTuple):
    """The sum of a divergence over weights, the last axis, and derivatives by loc and scale."""

    value: Tensor
    d_loc: Tensor
    d_scale: Tensor


# From loc and scale of the posterior and of the prior, those of the prior maybe single numbers.
TotalRule = Callable[[Tensor, Tensor, Tensor, Tensor], Total]


def offer(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> TotalRule | None:
    """The sum of any rule between Gaussians that works in one pass, at a fixed alpha."""
    alpha = alpha_of(divergence)
    if not isinstance(rule, OnePass) or isinstance(alpha, Tensor):
        return None
    return added_up(rule.terms, alpha)


def added_up(terms: GaussianRule, alpha: float = 0.0) -> TotalRule:
    """The rule of one value per weight as one that adds a block up."""

    def total(*block: Tensor) -> Total:
        value, d_loc, d_scale, _ = block_terms(terms, *block, alpha)  # type: ignore[call-arg]
        return Total(value.sum(-1), d_loc, d_scale)

    return total


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
