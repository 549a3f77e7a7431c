"""Totals of a divergence and draws, by the fastest backend that agrees with the plain rule."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.compute import blocks, inplace, table
from bayesdiv.compute.devices import compiling, on_gpu, recording
from bayesdiv.compute.inplace import TotalRule
from bayesdiv.compute.noise import Dtype, Seed, seeded
from bayesdiv.divergence.base import Computation, Divergence, Estimator
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.gaussian import OnePass, SoftplusNormal
from bayesdiv.divergence.kl import KL, kl_terms

_Offer = Callable[[Rule, Divergence, Distribution, Distribution], TotalRule | None]
_CPU_OFFERS: dict[str, _Offer] = {
    "native": table.offer_native,
    "table": table.offer,
    "inplace": inplace.offer,
}
_TRITON = find_spec("triton") is not None
_trusted: dict[tuple[object, ...], bool] = {}
_told: list[str] = []


class Backend(Protocol):
    """A fast way to the total of one divergence, looked up for pairs like one given."""

    def serves(self, q: Distribution, p: Distribution) -> bool:
        """Whether this pair is one of those."""

    def total(self, q: Distribution, p: Distribution) -> Tensor:
        """The divergence summed over the last axis, differentiable by q."""

    def draw_and_total(
        self, q: Distribution, p: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        """Draws of q and the total."""


@dataclass(frozen=True)
class Prepared:
    """A divergence between pairs like the one it was prepared for, added up over the weights."""

    # `prepare` makes it. A compiled or recorded step may call it: everything is looked up.

    each: Computation
    backend: Backend | None = None

    def total(self, q: Distribution, p: Distribution, weights: Tensor | None = None) -> Tensor:
        """The divergence summed over the last axis, (…), differentiable by q and p."""
        # `weights` are draws of q that an estimator which samples uses instead of its own.
        if self.backend is not None and self.backend.serves(q, p):
            return self.backend.total(q, p)
        return self.each(q, p, weights).sum(-1)

    def draw_and_total(
        self, q: Distribution, p: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        """Draws of q as by `draw`, and the total, in one pass where a backend has one."""
        if self.backend is not None and self.backend.serves(q, p):
            return self.backend.draw_and_total(q, p, samples, dtype, seed)
        weights = draw(q, samples, dtype, seed)
        return weights, self.total(q, p, weights)


def prepare(
    estimator: Estimator, divergence: Divergence, q: Distribution, p: Distribution
) -> Prepared:
    """Look up the rule and the fastest backend for pairs like this one, once."""
    each, simple = estimator.prepare(divergence, q, p), divergence.reduced()
    rule = estimator.rule(simple, q, p)
    if rule is None:
        return Prepared(each)
    looked_up = table.values(rule, simple, q, p, fewest=0)
    if looked_up is not None:  # of few weights too, so that a compiled step is the same
        each = lambda q, p, _: looked_up(q, p)  # noqa: E731
    like, offered = q.mean, _offered(rule, simple, q, p)
    right = (one for name, one in offered if trusted(name, one, rule, simple, like))
    prepared = Prepared(each, next(right, None))
    if on_gpu(like) and has_triton():
        _draws_are_trusted(like)  # tried now, since a compiler or a recording could not
    return prepared


def draw(q: Distribution, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
    """Draws of q, (samples, …, weights), through which gradients reach its parameters."""
    #     w = loc + scale · ε
    # Noise of many weights is not kept for the backward pass, which makes it again from its seed.
    # On a GPU that holds for float32 parameters, and where Triton is installed.
    if isinstance(q, SoftplusNormal) and q.loc.is_cuda and has_triton():
        from bayesdiv.compute import triton

        if triton.fits(q) and _draws_are_trusted(q.loc):
            return triton.draw(q.loc, q.rho, samples, dtype, seed)
    return blocks.draw(q, samples, dtype, seed)


def _offered(
    rule: Rule, divergence: Divergence, q: Distribution, p: Distribution
) -> Iterator[tuple[str, Backend]]:
    """All backends for this rule and device, by name, the fastest first."""
    device = q.mean.device.type
    if device == "cuda" and has_triton():
        from bayesdiv.compute import triton

        found = triton.offer(rule, divergence, q, p)
        if found is not None:
            yield "triton", found
    for name, offer in _CPU_OFFERS.items() if device == "cpu" else ():
        total = offer(rule, divergence, q, p)
        if total is not None:
            # Machine code is called as seldom as can be.
            piece = blocks.LARGE if name == "native" else blocks.ONE_PIECE
            yield name, blocks.Blocks(total, piece)


def has_triton() -> bool:
    """Whether Triton is installed; that it is not is reported once."""
    if not _TRITON and not compiling() and "triton" not in _told:
        _told.append("triton")
        told = "Triton is not installed: divergences and draws on a GPU take several passes"
        logging.getLogger("bayesdiv.compute.triton").info(told)
    return _TRITON


def trusted(name: str, backend: Backend, rule: Rule, divergence: Divergence, like: Tensor) -> bool:
    """Whether a backend, tried once on this device, gave what the plain rule gives."""
    # Drivers, cards, processors and compilers are many: a backend that does not run, or computes
    # something else, is reported once and not used.
    key = (name, divergence, like.device, like.dtype)
    if key not in _trusted and (compiling() or recording(like)):
        return False
    if key not in _trusted:
        problem = "it disagrees with the plain rule"
        try:
            _trusted[key] = agrees(backend, rule, divergence, like.device, like.dtype)
        except Exception as error:  # of any kind: compilers and drivers have their own
            problem = " ".join(str(error).split())[:200] or type(error).__name__
            _trusted[key] = False
        if not _trusted[key]:
            log = logging.getLogger(f"bayesdiv.compute.{name}")
            log.warning("%s is not used for %s on %s: %s", name, divergence, like.device, problem)
    return _trusted[key]


def _draws_are_trusted(like: Tensor) -> bool:
    from bayesdiv.compute import triton

    one = torch.ones(1, dtype=like.dtype, device=like.device)
    rule, unit = OnePass(kl_terms), Normal(one, one, validate_args=False)
    backend = triton.offer(rule, KL(), unit, unit)
    return backend is not None and trusted("triton", backend, rule, KL(), like)


def agrees(
    backend: Backend,
    rule: Rule,
    divergence: Divergence,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> bool:
    """Whether total, gradients and draws of 3,001 weights, narrow and wide, are right."""
    # What is right is the plain rule's value, and its gradients, in double precision.
    device = torch.device(device)
    normal: list[bool] = []

    def both(q: SoftplusNormal) -> Tensor:
        drawn, total = backend.draw_and_total(q, near, 16)
        noise = ((drawn - q.loc) / q.scale).detach()
        normal.append(abs(noise.mean().item()) < 0.02 and abs(noise.std().item() - 1) < 0.02)
        # Less the draws by hand, which leaves the total and its gradients.
        return total + (drawn - torch.addcmul(q.loc, q.scale, noise)).sum()

    cards = [device] if device.type == "cuda" else []
    with torch.inference_mode(False), seeded(0, cards), torch.enable_grad(), torch.device("cpu"):
        loc, rho = torch.randn(2, 3001, dtype=torch.float64)
        p = Normal(loc.new_tensor(0.1), loc.new_tensor(0.5), validate_args=False)
        wanted = _found(lambda q: rule(divergence, q, p).sum(), loc, 3 * rho - 3)
        loc, rho = (side.to(device, dtype) for side in (loc, 3 * rho - 3))
        near = Normal(p.loc.to(loc), p.scale.to(loc), validate_args=False)
        totals = (lambda q: backend.total(q, near)), both
        found = [each for total in totals for each in _found(total, loc, rho)]
        pairs = zip(found, 2 * wanted, 2 * (1e-4, 1e-3, 1e-3), strict=True)
        right = all(torch.allclose(a.to(b), b, rtol=rtol, atol=1e-3) for a, b, rtol in pairs)
        return right and all(normal)


def _found(total: Callable[[SoftplusNormal], Tensor], loc: Tensor, rho: Tensor) -> list[Tensor]:
    loc, rho = (side.detach().requires_grad_() for side in (loc, rho))
    value = total(SoftplusNormal(loc, rho))
    return [value.detach(), *torch.autograd.grad(value, (loc, rho))]
