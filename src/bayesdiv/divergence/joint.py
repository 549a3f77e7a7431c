"""Divergences of a posterior that is not a product, from a factorised prior: all weights together.

In units of the prior, q = N(δ, R) and p = N(0, I) with δ = (m - m_p)/σ_p and R = S / σ_p σ_pᵀ:

    KL(q ‖ p) = ½ [tr R - n - log|R| + |δ|²]
    KL(p ‖ q) = ½ [tr R⁻¹ - n + log|R| + δᵀR⁻¹δ]
    log Z     = ½ [(1-α) log|R| - log|V| - α(1-α) δᵀV⁻¹δ],   V = (1-α) R + α I
    JSG       = (1-α)² KL(q ‖ p) + α² KL(p ‖ q) + log Z      (paper: JS-G in closed form)

These are the paper's closed forms with full covariances; for diagonal ones they are the sums over
weights. With R = diag(a) + B Bᵀ of rank r every term costs O(n r²) by the determinant lemma.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from bayesdiv.divergence.base import Divergence, Number
from bayesdiv.divergence.densities import common_shape, log_density, rebatched, whole_line
from bayesdiv.divergence.estimators import Auto, draws
from bayesdiv.divergence.kl import JSG, KL, ReverseKL, WeightedKL


class Members(distributions.MixtureSameFamily):
    """A mixture in equal shares whose `total` is the mean of its members' totals."""

    def __init__(self, each: Distribution) -> None:
        logits = each.mean.new_zeros(each.batch_shape[-1])
        shares = distributions.Categorical(logits=logits, validate_args=False)
        super().__init__(shares, each, validate_args=False)


def total(
    divergence: Divergence, q: Distribution, p: Distribution, weights: Tensor | None = None
) -> Tensor:
    """The divergence of a joint q, event shape (weights,), from a factorised p, per trial.

    KL, reverse KL, WeightedKL and JSG of a Gaussian from a Gaussian prior are closed forms. Against
    other priors the first three are means over `weights`, draws of q. JSA has no joint form that
    could train a network (one bound for all weights, reached at once) and is refused, as others.

    For `Members` the value is the mean of the members' totals. For every divergence that is convex
    in q, such as KL and JSA, that bounds the mixture's own; KL by log(members) nats at most.

    Examples:
        >>> from torch.distributions import MultivariateNormal, Normal
        >>> q = MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 0.8], [0.8, 1.0]]))
        >>> total(KL(), q, Normal(0.0, 1.0))
        tensor(0.5108)
    """
    if isinstance(q, Members):
        each, own = members(q, p)
        if each.event_shape:
            return total(divergence, each, own).mean(-1)
        return Auto()(divergence, each, own).sum(-1).mean(-1)
    if len(q.event_shape) != 1:
        told = f"with event shape (weights,), got {tuple(q.event_shape)}"
        remedy = "give a product's marginals to an estimator instead"
        raise ValueError(f"q must be one distribution of all weights, {told}: {remedy}")
    simple = divergence.reduced()
    if not isinstance(simple, KL | ReverseKL | WeightedKL | JSG):
        told = "is defined per weight and has no joint form for weights that depend on each other"
        remedy = "use KL, ReverseKL, WeightedKL or JSG, or a MeanField posterior"
        raise ValueError(f"{divergence} {told}: {remedy}")
    pair = _standardised(q, p)
    if pair is None and isinstance(simple, JSG):
        told = f"two Gaussians, got {type(q).__name__} against {type(p).__name__}"
        remedy = "use KL or WeightedKL, which draws estimate"
        raise ValueError(f"{divergence} of all weights together needs {told}: {remedy}")
    kl, reverse_kl = (pair.kl, pair.reverse_kl) if pair else _sampled(q, p, weights)
    if isinstance(simple, KL | ReverseKL):
        return kl() if isinstance(simple, KL) else reverse_kl()
    a, b = simple.alpha, 1 - simple.alpha
    both = _by(b, -1) ** 2 * kl() + _by(a, -1) ** 2 * reverse_kl()
    return both + pair.log_z(a, b) if pair and isinstance(simple, JSG) else both


def _standardised(q: Distribution, p: Distribution) -> "_LowRank | _Dense | None":
    if not isinstance(p, distributions.Normal):
        return None
    if isinstance(q, distributions.LowRankMultivariateNormal):
        delta = (q.loc - p.loc) / p.scale
        variance = (q.cov_diag / p.scale.square()).expand_as(delta)
        return _LowRank(delta, variance, q.cov_factor * p.scale.reciprocal().unsqueeze(-1))
    if isinstance(q, distributions.MultivariateNormal):
        return _Dense((q.loc - p.loc) / p.scale, q.scale_tril / p.scale.unsqueeze(-1))
    return None


class _LowRank(NamedTuple):
    """R = diag(variance) + factor factorᵀ."""

    delta: Tensor  # (…, n)
    variance: Tensor  # (…, n)
    factor: Tensor  # (…, n, r)

    def kl(self) -> Tensor:
        own = _surplus(self.variance) + self.delta.square()
        return 0.5 * (own.sum(-1) + _square(self.factor) - _log_det(self._core()))

    def reverse_kl(self) -> Tensor:
        inside = self.factor * self.variance.reciprocal().unsqueeze(-1)
        core = self._core()
        own = _surplus(self.variance.reciprocal()).sum(-1) - _square(_solve(core, inside.mT))
        return 0.5 * (own + _log_det(core) + self._far(core))

    def log_z(self, a: Number, b: Number) -> Tensor:
        mean = _LowRank(self.delta, a + b * self.variance, _by(b, 1) ** 0.5 * self.factor)
        core = mean._core()
        own = (b * self.variance.log() - mean.variance.log()).sum(-1)
        logs = own + _by(b, -1) * _log_det(self._core()) - _log_det(core)
        return 0.5 * (logs - _by(a * b, -1) * mean._far(core))

    def _core(self) -> Tensor:
        return core_of(self.factor, self.variance)

    def _far(self, core: Tensor) -> Tensor:
        """δᵀR⁻¹δ by Woodbury's identity."""
        near = self.delta / self.variance
        along = self.factor.mT @ near.unsqueeze(-1)
        return (self.delta * near).sum(-1) - _square(_solve(core, along))


def core_of(factor: Tensor, variance: Tensor) -> Tensor:
    """The Cholesky factor of I + factorᵀ diag(1/variance) factor, (…, r, r)."""
    inner = factor.mT @ (factor * variance.reciprocal().unsqueeze(-1))
    return _cholesky(inner + _one_like(inner))


class _Dense(NamedTuple):
    """R = tril trilᵀ."""

    delta: Tensor  # (…, n)
    tril: Tensor  # (…, n, n)

    def kl(self) -> Tensor:
        return _of_tril(self.tril, self.delta.square().sum(-1))

    def reverse_kl(self) -> Tensor:
        inverse = _solve(self.tril, _one_like(self.tril))
        return _of_tril(inverse, _square(inverse @ self.delta.unsqueeze(-1)))

    def log_z(self, a: Number, b: Number) -> Tensor:
        square = self.tril @ self.tril.mT
        core = _cholesky(_by(b, 1) * square + _by(a, 1) * _one_like(square))
        far = _square(_solve(core, self.delta.unsqueeze(-1)))
        logs = _by(b, -1) * _log_det(self.tril) - _log_det(core)
        return 0.5 * (logs - _by(a * b, -1) * far)


def _of_tril(tril: Tensor, far: Tensor) -> Tensor:
    """A KL from the Cholesky factor of the variance, and the square of the distance."""
    own = _surplus(tril.diagonal(dim1=-2, dim2=-1).square()).sum(-1)
    return 0.5 * (own + far + _square(tril.tril(-1)))


def _surplus(variance: Tensor) -> Tensor:
    """Twice the KL that a variance alone adds: v - 1 - log v."""
    return (variance - 1) - variance.log()


def _square(values: Tensor) -> Tensor:
    """The sum of the squares of all entries of each matrix."""
    return values.square().sum((-2, -1))


def _solve(tril: Tensor, right: Tensor) -> Tensor:
    return cast(Tensor, torch.linalg.solve_triangular(tril, right, upper=False))


def _one_like(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _log_det(tril: Tensor) -> Tensor:
    """Log determinant of the matrix with this Cholesky factor."""
    return 2 * tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _cholesky(matrix: Tensor) -> Tensor:
    # Without the check, for which a GPU would have to halt: the matrix is I plus a square.
    return cast(Tensor, torch.linalg.cholesky_ex(matrix).L)


def _by(alpha: Number, axes: int) -> Number:
    """An alpha per trial, (trials, 1), in line with a matrix (one axis more) or a value (less)."""
    if not isinstance(alpha, Tensor) or not alpha.dim():
        return alpha
    return alpha.unsqueeze(-1) if axes > 0 else alpha.squeeze(-1)


def _sampled(
    q: Distribution, p: Distribution, weights: Tensor | None
) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Both KLs as means over draws."""
    if not whole_line(p):
        told = f"against {type(p).__name__}, whose density has an edge"
        remedy = "use a prior on the whole line, or a MeanField posterior with JSA"
        raise ValueError(f"draws give a wrong gradient {told}: {remedy}")
    count = 1 if weights is None else len(weights)

    def log_ratio(drawn: Tensor) -> Tensor:
        return (q.log_prob(drawn) - log_density(p, drawn).sum(-1)).mean(0)

    def reverse_kl() -> Tensor:
        shape = common_shape(p.batch_shape, q.batch_shape + q.event_shape)
        return -log_ratio(draws(p, shape, count))

    return lambda: log_ratio(q.rsample((count,)) if weights is None else weights), reverse_kl


def members(q: Distribution, p: Distribution) -> tuple[Distribution, Distribution]:
    """The members along an axis in front of the weights, and the prior with such an axis."""
    # Members that are products are given by their marginals, (…, members, weights).
    shape = common_shape(p.batch_shape, q.batch_shape + q.event_shape)
    own = rebatched(p.expand(shape), shape, lambda x: x.unsqueeze(len(shape) - 1))
    each = cast(Members, q).component_distribution
    return each.base_dist if isinstance(each, distributions.Independent) else each, own
