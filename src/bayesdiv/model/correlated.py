"""Gaussian posteriors whose weights are correlated: a covariance of low rank, or a full one."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, LowRankMultivariateNormal, MultivariateNormal
from torch.nn.functional import softplus

from bayesdiv.compute.backend import draw
from bayesdiv.compute.noise import Dtype, Seed, standard_normal
from bayesdiv.divergence.gaussian import SoftplusNormal
from bayesdiv.divergence.joint import core_of
from bayesdiv.model.posteriors import Around

_OTHER = 0x2545F4914F6CDD1D  # makes a second seed, of noise independent of the first's


@dataclass(frozen=True)
class LowRank:
    """A choice of posterior: a Gaussian with a covariance of low rank plus a diagonal.

        q(w) = N(loc, diag(scale²) + factor factorᵀ),   factor of shape (weights, rank)

    Memory and time grow with weights · rank. The divergence is KL, ReverseKL, WeightedKL or JSG of
    all weights together, see `bayesdiv.divergence.joint`; JSA, which is per weight, is refused.

    Args:
        rank: how many directions.

    Examples:
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(8, 1), bd.FanIn(), posterior=LowRank(rank=3))
        >>> net.posterior.factor.shape
        torch.Size([9, 3])
    """

    rank: int = 3

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank must be at least 1, got {self.rank}")

    def __call__(self, loc: Tensor, scale: Tensor) -> "LowRankGaussian":
        return LowRankGaussian(loc, scale, self.rank)


class LowRankGaussian(Around):
    """The module that `LowRank` makes: w = loc + scale · ε + factor · ε', ε' of `rank` numbers."""

    # Half of each weight's variance starts in the factor: one of zeros would never leave 0.

    def __init__(self, loc: Tensor, scale: Tensor, rank: int) -> None:
        super().__init__(loc, scale * 0.5**0.5)
        shape = (*loc.shape[:-1], rank, loc.shape[-1])  # each direction in one piece of memory
        signs = 2 * torch.randint(2, shape, device=loc.device).to(self.loc.dtype) - 1
        each = softplus(self.rho.detach()).unsqueeze(-2)
        self.directions = nn.Parameter(signs * each * rank**-0.5)

    @property
    def factor(self) -> Tensor:
        """The directions as columns, (…, weights, rank)."""
        return self.directions.mT

    def distribution(self) -> "LowRankNormal":
        return LowRankNormal(self.loc, self.factor, softplus(self.rho).square())

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        own = draw(SoftplusNormal(self.loc, self.rho), samples, None, seed)
        few = samples, *self.directions.shape[:-1]
        noise = standard_normal(few, self.loc, None if seed is None else int(seed) ^ _OTHER)
        drawn = own + (noise.unsqueeze(-2) @ self.directions).squeeze(-2)
        return drawn.to(dtype or drawn.dtype)


class LowRankNormal(LowRankMultivariateNormal):
    """The torch distribution, which factorises its small matrix when a density is asked for."""

    # Torch does so at once, in every training step and with a halt of a GPU, though the closed
    # forms of the divergences do not need it.

    def __init__(self, loc: Tensor, factor: Tensor, variance: Tensor) -> None:
        self.loc, self.cov_factor, self.cov_diag = loc, factor, variance
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = factor, variance
        Distribution.__init__(self, loc.shape[:-1], loc.shape[-1:], validate_args=False)

    @property
    def _capacitance_tril(self) -> Tensor:  # what torch's log_prob reads
        return core_of(self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag)


@dataclass(frozen=True)
class FullRank:
    """A choice of posterior: a Gaussian with a full covariance.

        q(w) = N(loc, L Lᵀ),   L lower triangular with diagonal softplus(rho) > 0

    Exact where the true posterior is Gaussian, as in linear regression. Memory grows with the
    square of the number of weights, up to a few thousand. For its divergences see `LowRank`.

    Examples:
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(8, 1), bd.FanIn(), posterior=FullRank())
        >>> net.posterior.scale_tril.shape
        torch.Size([9, 9])
    """

    def __call__(self, loc: Tensor, scale: Tensor) -> "FullRankGaussian":
        return FullRankGaussian(loc, scale)


class FullRankGaussian(Around):
    """The module that `FullRank` makes: w = loc + L ε."""

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__(loc, scale)
        # Only what is below the diagonal is read.
        self.lower = nn.Parameter(self.loc.new_zeros(*loc.shape, loc.shape[-1]))

    @property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor L of the covariance, (…, weights, weights)."""
        return self.lower.tril(-1) + softplus(self.rho).diag_embed()

    def distribution(self) -> MultivariateNormal:
        return MultivariateNormal(self.loc, scale_tril=self.scale_tril, validate_args=False)

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        shape = samples, *self.loc.shape
        noise = standard_normal(shape, self.loc, None if seed is None else int(seed))
        drawn = self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)
        return drawn.to(dtype or drawn.dtype)
