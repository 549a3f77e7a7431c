"""The Gaussian with any covariance, for models of few weights."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn.functional import softplus

from bayesdiv.compute.noise import Dtype, Seed
from bayesdiv.model.posteriors.base import checked, inverse_softplus, standard_noise


@dataclass(frozen=True)
class FullRank:
    """A choice of posterior: a Gaussian with a full covariance.

        q(w) = N(loc, L Lᵀ),   L lower triangular with diagonal softplus(rho) > 0

    Exact where the true posterior is Gaussian, as in linear regression. Memory grows with the
    square of the number of weights: made for up to a few thousand. The divergence is KL,
    ReverseKL, WeightedKL or JSG of all weights together, see `bayesdiv.divergence.joint`.

    Examples:
        >>> import bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(8, 1), bd.FanIn(), posterior=FullRank())
        >>> net.posterior.scale_tril.shape
        torch.Size([9, 9])
    """

    def __call__(self, loc: Tensor, scale: Tensor) -> "FullRankGaussian":
        """The posterior that starts at these means and scales, without correlation."""
        return FullRankGaussian(loc, scale)


class FullRankGaussian(nn.Module):
    """The module that `FullRank` makes: w = loc + L ε."""

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__()
        loc, scale = checked(loc, scale)
        self.loc = nn.Parameter(loc.clone())
        self.rho = nn.Parameter(inverse_softplus(scale))
        # Only what is below the diagonal is read.
        self.lower = nn.Parameter(loc.new_zeros(*loc.shape, loc.shape[-1]))

    @property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor L of the covariance, (…, weights, weights)."""
        return self.lower.tril(-1) + softplus(self.rho).diag_embed()

    @property
    def mean(self) -> Tensor:
        return self.loc

    def marginals(self) -> None:
        """None: the weights depend on each other."""

    def distribution(self) -> MultivariateNormal:
        return MultivariateNormal(self.loc, scale_tril=self.scale_tril, validate_args=False)

    def log_prob(self, weights: Tensor) -> Tensor:
        density: Tensor = self.distribution().log_prob(weights)
        return density

    def rsample(self, samples: int, dtype: Dtype = None, seed: Seed = None) -> Tensor:
        noise = standard_noise(samples, self.loc, seed)
        drawn = self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)
        return drawn if dtype is None else drawn.to(dtype)
