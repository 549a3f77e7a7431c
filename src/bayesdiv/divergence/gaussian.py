"""Divergences of two Gaussians in one pass: the value and its derivatives together, in blocks.

Each depends on δ = (μ-μ_p)/σ_p and r = σ/σ_p alone: a rule gives the value, ∂/∂δ and ∂/∂log r.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints
from torch.nn.functional import softplus

from bayesdiv.divergence.base import Divergence, Number, checked_alpha, compiling, on_gpu
from bayesdiv.divergence.densities import common_shape

# A few hundred kilobytes a temporary: larger leaves the cache, smaller pays for starting threads.
BLOCK = 1 << 17
# On a GPU a block only bounds the memory; a launch should fill the chip.
GPU_BLOCKS = 64


class SoftplusNormal(Normal):
    """Gaussians given by loc and rho; the scale is computed when it is first asked for, once."""

    #     scale = softplus(rho) = log(1 + e^rho)
    # A draw or a summed divergence that goes from rho straight to its result never asks.

    arg_constraints = {"loc": constraints.real, "rho": constraints.real}  # noqa: RUF012

    def __init__(self, loc: Tensor, rho: Tensor, validate_args: bool | None = False) -> None:
        if loc.shape != rho.shape:  # which is cheaper to see than to broadcast
            loc, rho = torch.broadcast_tensors(loc, rho)
        self.loc, self.rho = loc, rho
        self._learned = torch.is_grad_enabled()
        # A compiler drops what nobody reads, and cannot follow an attribute that comes late.
        self.known_scale = softplus(self.rho) if compiling() else None
        super(Normal, self).__init__(self.loc.shape, validate_args=validate_args)

    @property
    def scale(self) -> Tensor:  # type: ignore[override]
        if self.known_scale is None:
            # As if computed when the distribution was made: a first look without gradients, such
            # as for a plot, must not take them from a later one.
            with torch.set_grad_enabled(self._learned):
                self.known_scale = softplus(self.rho)
        return self.known_scale

    def expand(
        self, batch_shape: Sequence[int], _instance: Normal | None = None
    ) -> "SoftplusNormal":
        loc, rho = (x.expand(torch.Size(batch_shape)) for x in (self.loc, self.rho))
        return SoftplusNormal(loc, rho, self._validate_args)


class Standard(NamedTuple):
    """A block of weights in the units of the prior: q = N(delta, ratio), p = N(0, 1)."""

    # All are finite, and the ratio is above 0, also where the range of the dtype ends.

    delta: Tensor
    ratio: Tensor
    excess: Tensor  # ratio - 1 from the difference of the scales: no digits lost near 1


class Terms(NamedTuple):
    """A divergence of a block and its derivatives by δ, by log r and, where asked, by alpha."""

    value: Tensor
    d_delta: Tensor
    d_log_ratio: Tensor
    d_alpha: Tensor | None = None


GaussianRule = Callable[[Standard, Number], Terms]


@dataclass(frozen=True)
class OnePass:
    """A closed form between Gaussians: one pass over its value and derivatives."""

    # A backend recognises it by its terms, and adds them up without keeping the values.

    terms: GaussianRule

    def __call__(self, divergence: Divergence, q: Distribution, p: Distribution) -> Tensor:
        return one_pass(self.terms, cast(Normal, q), cast(Normal, p), alpha_of(divergence))


def alpha_of(divergence: Divergence) -> Number:
    """The skew of a divergence; 0 for one that has none."""
    return getattr(divergence, "alpha", 0.0)


def one_pass(
    rule: GaussianRule, q: Normal, p: Normal, alpha: Number = 0.0, block: int = BLOCK
) -> Tensor:
    """The divergence by `rule`, one value per weight, differentiable by q, p and a tensor alpha."""
    # Only the derivatives are kept for the backward pass, whatever the rule does inside. It works
    # in the units of p.
    parameters = [q.loc, q.scale, p.loc, p.scale]
    shape = common_shape(*(parameter.shape for parameter in parameters))
    if isinstance(alpha, Tensor):
        shape = common_shape(shape, alpha.shape)
        if alpha.requires_grad:  # an optimizer may have moved it since it was checked
            rule, alpha = partial(in_double, rule), cast(Tensor, checked_alpha(alpha)).double()
        alpha = _flat(alpha if alpha.requires_grad else alpha.to(q.loc.dtype), shape)
    # An empty tensor that hangs on the parameters, so that a second derivative is noticed.
    link = sum(parameter.reshape(-1)[:0] for parameter in parameters)
    flat = [_flat(x.float() if x.itemsize == 2 else x, shape) for x in parameters]
    value = _OnePass.apply(*flat, alpha, link, rule, block)[0]  # type: ignore[no-untyped-call]
    return value.reshape(shape)  # type: ignore[no-any-return]


def in_double(rule: GaussianRule, block: Standard, alpha: Number) -> Terms:
    """The rule in double precision: in single, ∂/∂alpha cancels next to 0 and 1."""
    terms = rule(Standard(*(x.double() for x in block)), alpha)
    return Terms(*(x if x is None else x.to(block.ratio.dtype) for x in terms))  # type: ignore[arg-type]


def _flat(parameter: Tensor, shape: torch.Size) -> Tensor:
    """One axis of weights, or none where a single number serves all of them."""
    if parameter.numel() == 1 and shape.numel() != 1:
        return parameter.reshape(())
    return parameter.expand(shape).reshape(-1)


class _OnePass(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        *arguments, _, rule, block = inputs
        count = max(a.numel() for a in arguments if isinstance(a, Tensor))
        if on_gpu(arguments[0]):
            block *= GPU_BLOCKS
        # A few blocks' worth fits the last cache, where one piece is faster than several.
        if compiling() or count <= (4 * block if block == BLOCK else block):
            return block_terms(rule, *arguments)
        whole: tuple[Tensor, ...] = ()
        for start in range(0, count, block):
            several = (isinstance(x, Tensor) and x.dim() > 0 for x in arguments)
            cut = slice(start, start + block)
            parts = (x[cut] if many else x for x, many in zip(arguments, several, strict=True))
            pieces = block_terms(rule, *parts)
            # Written in place block by block, so that the pieces never exist beside the whole.
            whole = whole or tuple(x.new_empty(count if x.numel() else 0) for x in pieces)
            for target, piece in zip(whole, pieces, strict=True):
                if piece.numel():
                    target[cut] = piece
        return whole

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.learns_alpha = isinstance(inputs[4], Tensor) and inputs[4].requires_grad
        ctx.shapes = [x.shape if isinstance(x, Tensor) else None for x in inputs]
        learns_prior = inputs[2].requires_grad or inputs[3].requires_grad
        ctx.save_for_backward(inputs[5], *output[1:], *(inputs[:4] if learns_prior else ()))

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 8
        link, d_loc, d_scale, d_alpha, *parameters = ctx.saved_tensors
        by_loc, by_scale = grad * d_loc, grad * d_scale
        gradients: list[Tensor | None] = [by_loc, by_scale, None, None, None]
        if parameters:
            loc, scale, prior_loc, prior_scale = parameters
            # The value stays when all four move or stretch together, which gives the prior's part.
            gradients[2] = -by_loc
            gradients[3] = -(scale * by_scale + (loc - prior_loc) * by_loc) / prior_scale
        if ctx.learns_alpha:
            gradients[4] = grad * d_alpha
        parts = zip(gradients, ctx.shapes[:5], ctx.needs_input_grad[:5], strict=True)
        fitted = [g.sum_to_size(s) if needed and g is not None else None for g, s, needed in parts]
        if torch.is_grad_enabled() and link.requires_grad:
            fitted = [g if g is None else _Once.apply(g, link) for g in fitted]  # type: ignore
        return (*fitted, None, None, None)


def refuse_second(gradient: Tensor, *parameters: Tensor) -> Tensor:
    """The gradient, which raises where it would be differentiated a second time."""
    link = sum(parameter.reshape(-1)[:0] for parameter in parameters)
    return cast(Tensor, _Once.apply(gradient, link))  # type: ignore[no-untyped-call]


class _Once(torch.autograd.Function):
    """Hands a first derivative on, and refuses to be differentiated where torch would answer 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, link: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        told = "what one pass computes has no second derivative"
        raise RuntimeError(f"{told}: for a divergence use Quadrature()")


def block_terms(rule: GaussianRule, *block: Any) -> tuple[Tensor, ...]:
    """Value, ∂/∂loc, ∂/∂scale and ∂/∂alpha (empty where alpha is a number) of one block."""
    loc, scale, prior_loc, prior_scale, alpha = block
    inverse = prior_scale.reciprocal()
    ratio = scale * inverse
    limits = torch.finfo(ratio.dtype)
    # Where the range of the dtype ends, its end: a rule would meet inf - inf, or 0 · inf.
    away = loc - prior_loc, scale - prior_scale
    delta, excess = ((x * inverse).clamp(limits.min, limits.max) for x in away)
    ratio = ratio.clamp(limits.tiny * limits.eps, limits.max)
    terms = rule(Standard(delta, ratio, excess), alpha)
    if compiling():
        # Up to torch 2.12 a compiled function whose output an in-place operation wrote has no
        # gradient, without a word. The copy is fused away.
        terms = terms._replace(value=terms.value.clone())
    d_alpha = terms.value.new_empty(0) if terms.d_alpha is None else terms.d_alpha
    return terms.value, terms.d_delta * inverse, terms.d_log_ratio / scale, d_alpha


def from_narrower(rule: Callable[[Standard], Terms], block: Standard) -> Terms:
    """A symmetric rule for q narrower than p; elsewhere q and p change places."""
    delta, ratio, excess = block
    swap, inverse = ratio > 1, ratio.reciprocal()
    swapped = delta * inverse, inverse, -excess * inverse
    narrow = Standard(*(torch.where(swap, *pair) for pair in zip(swapped, block, strict=True)))
    terms = rule(narrow)
    back = -terms.d_log_ratio - narrow.delta * terms.d_delta
    return terms._replace(
        d_delta=torch.where(swap, terms.d_delta * inverse, terms.d_delta),
        d_log_ratio=torch.where(swap, back, terms.d_log_ratio),
    )


def close_to_one(excess: Tensor) -> Tensor | None:
    """Where r is so near 1 that logarithms cancel; None if nowhere, which spares the series."""
    # Posteriors are mostly narrower than their priors: one reduction then shows that none is near.
    if excess.numel() == 0 or not any_of(excess.max() > -0.05):
        return None
    near = excess.abs() < 0.05
    return near if any_of(near) else None


def any_of(mask: Tensor) -> bool:
    """Whether it holds anywhere; True where the question would halt a GPU or cannot be traced."""
    if on_gpu(mask) or compiling():
        return True
    try:
        return bool(mask.any())
    except RuntimeError:  # under vmap a value decides nothing
        return True


def minus_log1p_near(y: Tensor) -> Tensor:
    """The positive y - log(1+y) for a y near 0."""
    # With s = y/(2+y): log(1+y) = 2 (s + s³/3 + s⁵/5 + …), hence y s - 2 s³ (1/3 + s²/5 + …).
    s = y / (2 + y)
    square = s * s
    terms = 6 if y.dtype == torch.float64 else 3
    series = torch.full_like(s, 1 / (2 * terms + 1))
    for k in range(terms - 1, 0, -1):
        series = series * square + 1 / (2 * k + 1)
    return s * (y - 2 * square * series)


def log_number(number: Number) -> Number:
    """The logarithm of a number or of a tensor."""
    return number.log() if isinstance(number, Tensor) else math.log(number)
