"""Suites that a class of your own can run: the same that our own classes pass."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution, Laplace, Normal

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.estimators import Exact, MonteCarlo
from bayesdiv.divergence.quadrature import Quadrature

Pair = tuple[Distribution, Distribution]


def _default_pairs() -> list[Pair]:
    def number(x: float) -> Tensor:
        return torch.tensor(x, dtype=torch.float64)

    def normal(loc: float, scale: float) -> Normal:
        return Normal(number(loc), number(scale))

    return [
        (normal(0.5, 0.8), normal(0.0, 1.0)),
        (normal(0.0, 1.2), normal(0.3, 1.0)),
        (normal(-0.1, 0.2), normal(0.0, 1.0)),
        (normal(0.2, 0.9), Laplace(number(0.0), number(0.7))),
    ]


def check_divergence(
    divergence: Divergence, pairs: Sequence[Pair] | None = None, *, samples: int = 40_000
) -> None:
    """Raise an AssertionError, in one sentence, unless `divergence` keeps what it promises.

    For each pair: zero for equal distributions; never negative nor above its `bound`; its closed
    form, if one is registered, equal to dense integration in value and gradient; Monte Carlo within
    five standard errors of it; the gradient finite; unchanged when q and p change places if it
    claims to be `symmetric`.

    Args:
        divergence: what to check, such as `MyDivergence(0.3)`.
        pairs: of q and p in float64, each a single weight; Gaussians and a Laplace prior where none
            are given.
        samples: Monte Carlo draws a pair.

    Examples:
        >>> from bayesdiv import JSA
        >>> check_divergence(JSA(alpha=0.3))
    """
    for q, p in _default_pairs() if pairs is None else pairs:
        exact = closed_form.find(divergence, q, p) is not None
        _check_value(divergence, q, p)
        if exact:
            _check_closed_form(divergence, q, p)
        _check_samples(divergence, q, p, samples)
        _check_gradient(divergence, q, p, exact)


def _require(holds: bool, divergence: Divergence, what: str) -> None:
    if not holds:
        raise AssertionError(f"{divergence} {what}")


def _name(q: Distribution, p: Distribution) -> str:
    return f"for {q} against {p}"


def _check_value(divergence: Divergence, q: Distribution, p: Distribution) -> None:
    """_Zero, positive, bounded and symmetric, by dense integration."""
    measure = Quadrature()
    value, own = measure(divergence, q, p).item(), measure(divergence, q, q).item()
    _require(abs(own) < 1e-9, divergence, f"must be 0 for equal distributions, got {own} for {q}")
    _require(value > -1e-9, divergence, f"must not be negative, got {value} {_name(q, p)}")
    bound = math.inf if divergence.bound is None else divergence.bound
    _require(value <= bound + 1e-9, divergence, f"exceeds its bound {bound}: {value} {_name(q, p)}")
    if divergence.symmetric:
        back = measure(divergence, p, q).item()
        _require(
            math.isclose(value, back, rel_tol=1e-7, abs_tol=1e-9),
            divergence,
            f"claims to be symmetric, got {value} {_name(q, p)} and {back} the other way round",
        )


def _check_closed_form(divergence: Divergence, q: Distribution, p: Distribution) -> None:
    dense, exact = Quadrature()(divergence, q, p).item(), Exact()(divergence, q, p).item()
    _require(
        math.isclose(dense, exact, rel_tol=1e-5, abs_tol=1e-6),
        divergence,
        f"has a closed form that gives {exact} {_name(q, p)}, integration gives {dense}",
    )


def _check_samples(divergence: Divergence, q: Distribution, p: Distribution, samples: int) -> None:
    dense = Quadrature()(divergence, q, p).item()
    if math.isinf(dense):
        return
    # Independent groups tell the spread, whatever the formula does with its points.
    groups = 20
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        estimator = MonteCarlo(max(1000, samples // groups))
        values = torch.stack([estimator(divergence, q, p) for _ in range(groups)])
    error = values.std().item() / math.sqrt(groups)
    mean = values.mean().item()
    # The logarithm of a mean is biased by about half its relative variance.
    allowance = 5 * error + 1e-9 + (0.0 if divergence.linear else 0.5 * values.var().item() * 10)
    _require(
        abs(mean - dense) <= allowance,
        divergence,
        f"estimated from samples is {mean} ± {error} {_name(q, p)}, integration gives {dense}",
    )


def _check_gradient(divergence: Divergence, q: Distribution, p: Distribution, exact: bool) -> None:
    if not isinstance(q, Normal) or math.isinf(Quadrature()(divergence, q, p).item()):
        return
    dense = _gradient(divergence, q, p, Quadrature())
    _require(bool(dense.isfinite().all()), divergence, f"has a gradient of {dense} {_name(q, p)}")
    if exact:
        own = _gradient(divergence, q, p, Exact())
        _require(
            torch.allclose(own, dense, rtol=1e-4, atol=1e-4),
            divergence,
            f"has a closed form with gradient {own.tolist()} {_name(q, p)}, integration gives "
            f"{dense.tolist()}",
        )


def _gradient(
    divergence: Divergence, q: Normal, p: Distribution, estimator: Exact | Quadrature
) -> Tensor:
    loc, scale = (x.detach().clone().requires_grad_() for x in (q.loc, q.scale))
    value = estimator(divergence, Normal(loc, scale), p).sum()
    if not value.requires_grad:  # such as Renyi(0), which does not depend on q at all
        return torch.zeros(2, dtype=loc.dtype)
    return torch.stack(torch.autograd.grad(value, (loc, scale), materialize_grads=True))
