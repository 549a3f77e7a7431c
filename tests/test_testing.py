"""Suites for classes of a user's own: our classes pass, and each broken promise is caught."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.distributions import Gamma, Laplace, Normal, Poisson
from torch.nn.functional import softplus

import bayesdiv as bd
from bayesdiv import likelihoods
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG, closed_form
from bayesdiv.testing import check_divergence, check_likelihood, check_posterior

SKEWED = [bd.JSG, bd.WeightedKL, bd.JSA, UnmodifiedJSG, UnmodifiedJSA]
OURS = [
    bd.KL(),
    bd.ReverseKL(),
    *(kind(alpha) for kind in SKEWED for alpha in (0.0, 0.0729, 0.5, 0.9, 1.0)),
    *(bd.Renyi(order) for order in (0.0, 0.5, 1.0, 1.5)),
    bd.ChiSquared(),
    bd.TotalVariation(),
]


@pytest.mark.parametrize("divergence", OURS, ids=repr)
def test_every_divergence_of_ours_passes(divergence):
    check_divergence(divergence)


@dataclass(frozen=True)
class Jeffreys(bd.Divergence):
    """KL(q ‖ p) + KL(p ‖ q): what a user would write."""

    @property
    def symmetric(self):
        return True

    def estimate(self, at_q, at_p):
        return at_q.mean(at_q.log_q - at_q.log_p) + at_p.mean(at_p.log_p - at_p.log_q)


def test_a_divergence_of_ones_own_passes():
    check_divergence(Jeffreys())


class Shifted(Jeffreys):
    def estimate(self, at_q, at_p):
        return super().estimate(at_q, at_p) + 0.1


class Negative(Jeffreys):
    def estimate(self, at_q, at_p):
        return -super().estimate(at_q, at_p)


class Bounded(Jeffreys):
    @property
    def bound(self):
        return 0.01


class Lopsided(bd.KL):
    @property
    def symmetric(self):
        return True


class SummedOverSamples(bd.KL):
    def estimate(self, at_q, at_p):
        own = super().estimate(at_q, at_p)
        return own if at_q.log_weight.dim() else own * at_q.log_q.shape[0]


class WrongForm(bd.KL):
    pass


class WrongGradient(bd.KL):
    pass


closed_form.register(WrongForm, Normal, Normal)(lambda d, q, p: 2 * bd.KL()(q, p))
closed_form.register(WrongGradient, Normal, Normal)(
    lambda d, q, p: bd.KL()(q, p).detach() + 0 * q.loc
)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Shifted(), "must be 0 for equal distributions"),
        (Negative(), "must not be negative"),
        (Bounded(), "exceeds its bound 0.01"),
        (Lopsided(), "claims to be symmetric"),
        (SummedOverSamples(), "estimated from samples is"),
        (WrongForm(), "has a closed form that gives"),
        (WrongGradient(), "has a closed form with gradient"),
    ],
)
def test_each_broken_promise_is_caught(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_divergence(broken)


# Posteriors ------------------------------------------------------------------------------------

POSTERIORS = [
    bd.MeanField,
    bd.Point,
    bd.LowRank(rank=2),
    bd.FullRank(),
    bd.Ensemble(members=3),
    bd.Ensemble(members=2, of=bd.LowRank(rank=1)),
    bd.Ensemble(members=3, of=bd.Point),
]


@pytest.mark.parametrize("make", POSTERIORS, ids=lambda make: repr(make).split(" at 0x")[0])
def test_every_posterior_of_ours_passes(make):
    check_posterior(make)


class Laplaces(bd.MeanField):
    """A posterior of one's own: independent Laplace distributions."""

    def marginals(self):
        return Laplace(self.loc, self.scale * 0.5**0.5)

    def rsample(self, samples, dtype=None, seed=None):
        generator = None if seed is None else torch.Generator().manual_seed(int(seed))
        uniform = torch.rand(samples, *self.loc.shape, generator=generator, dtype=self.loc.dtype)
        noise = -(2 * uniform - 1).sign() * torch.log1p(-(2 * uniform - 1).abs())
        return (self.loc + self.scale * 0.5**0.5 * noise).to(dtype or self.loc.dtype)


def test_a_posterior_of_ones_own_passes():
    check_posterior(Laplaces)


class Tied(bd.MeanField):
    """Draws that move together under marginals that do not: the KL 9.09 of 0.1.0."""

    def rsample(self, samples, dtype=None, seed=None):
        generator = None if seed is None else torch.Generator().manual_seed(int(seed))
        shape = (samples, *self.loc.shape[:-1], 1)
        noise = torch.randn(shape, generator=generator, dtype=self.loc.dtype)
        own = super().rsample(samples, None, seed) - self.loc
        drawn = self.loc + 0.5**0.5 * (own + self.scale * noise)
        return drawn.to(dtype or self.loc.dtype)


class Frozen(bd.MeanField):
    def rsample(self, samples, dtype=None, seed=None):
        return super().rsample(samples, dtype, seed).detach()


class HalfWay(bd.MeanField):
    """Draws whose scale no gradient reaches."""

    def rsample(self, samples, dtype=None, seed=None):
        drawn = super().rsample(samples, dtype, seed)
        return drawn.detach() + (self.loc - self.loc.detach()).to(drawn.dtype)


class OverDraws(bd.MeanField):
    def log_prob(self, weights):
        return self.marginals().log_prob(weights).sum(0)


class Unnormalised(bd.MeanField):
    def log_prob(self, weights):
        return super().log_prob(weights) + 0.1


class Wider(bd.MeanField):
    def distribution(self):
        return Normal(self.loc, 1.1 * self.scale)


class Seedless(bd.MeanField):
    def rsample(self, samples, dtype=None, seed=None):
        return super().rsample(samples, dtype)


class Coarse(bd.MeanField):
    def __init__(self, loc, scale):
        super().__init__(loc, scale)
        self.to(loc.dtype)


class Forgetful(bd.MeanField):
    """A shift of the draws that the state dict does not hold."""

    def __init__(self, loc, scale):
        super().__init__(loc, scale)
        self.shift = torch.randn(())

    def rsample(self, samples, dtype=None, seed=None):
        return super().rsample(samples, dtype, seed) + self.shift


class Flat(bd.MeanField):
    """All draws of all trials in one axis."""

    def rsample(self, samples, dtype=None, seed=None):
        return super().rsample(samples, dtype, seed).flatten(0, -2)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Tied, "must have the density of its draws in log_prob"),
        (Frozen, "must let gradients through its draws"),
        (HalfWay, "must have the gradient of its draws"),
        (OverDraws, r"must give log_prob of shape \(4,\)"),
        (Unnormalised, "its integral is 0.9"),
        (Wider, "the same density in log_prob and in distribution"),
        (Seedless, "must draw the same weights for the same seed"),
        (Coarse, "must have parameters of torch.float32 for means of torch.bfloat16"),
        (Forgetful, "must have all that its draws depend on in its state dict"),
        (Flat, r"must give rsample\(4\) of shape \(4, 2, 3\), got \(8, 3\)"),
    ],
)
def test_a_broken_posterior_is_caught(make, told):
    with pytest.raises(AssertionError, match=told):
        check_posterior(make)


class Marginal(Tied):
    """As `Tied`, with a density that owns up to it: only its marginals are wrong."""

    def _joint(self):
        covariance = (
            self.scale.diag_embed()
            @ (0.5 * torch.eye(3, dtype=self.loc.dtype) + 0.5)
            @ self.scale.diag_embed()
        )
        return torch.distributions.MultivariateNormal(self.loc, covariance)

    def log_prob(self, weights):
        return self._joint().log_prob(weights)


def test_marginals_of_tied_weights_are_caught():
    with pytest.raises(AssertionError, match="the same density in log_prob and in distribution"):
        check_posterior(Marginal)


# Likelihoods -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [
        (bd.Gaussian(), 1),
        (bd.Gaussian(0.3), 2),
        (bd.HeteroscedasticGaussian(), 2),
        (bd.StudentTNoise(), 1),
        (bd.Poisson(), 1),
        (bd.Poisson(), 3),
        (likelihoods.LogNormal(), 2),
        (likelihoods.Gamma(), 2),
        (likelihoods.NegativeBinomial(), 2),
        (bd.Classes(), 4),
        (bd.Binary(), 1),
    ],
    ids=repr,
)
def test_every_likelihood_of_ours_passes(likelihood, outputs):
    check_likelihood(likelihood, outputs)


class Positive(nn.Module):
    """A likelihood of one's own: Gamma around the output."""

    def forward(self, outputs):
        return Gamma(torch.tensor(2.0), 2 / softplus(outputs.squeeze(-1)), validate_args=False)


def test_a_likelihood_of_ones_own_passes():
    check_likelihood(Positive())


class Twice(Normal):
    def log_prob(self, value):
        return 2 * super().log_prob(value)


class Off(Normal):
    mean = property(lambda self: self.loc + 0.2)


class Loud(Poisson):
    variance = property(lambda self: 2 * self.rate)


class Blank(nn.Module):
    """Outputs of which the distribution knows nothing."""

    def forward(self, outputs):
        return Normal(0 * outputs.squeeze(-1), 1.0)


def of(distribution):
    class Own(nn.Module):
        def forward(self, outputs):
            return distribution(outputs.squeeze(-1))

    return Own()


@pytest.mark.parametrize(
    ("likelihood", "told"),
    [
        (of(lambda loc: Twice(loc, 1.0)), "must have the density of its draws in log_prob"),
        (of(lambda loc: Off(loc, 1.0)), "has a mean that is .* scales off its samples'"),
        (of(lambda log: Loud(log.exp())), "has a variance that is .* errors off its samples'"),
        (of(lambda loc: Normal(loc.flatten(), 1.0)), r"batch shape \(4, 5\) .* got \(20,\)"),
        (of(lambda loc: loc), "must return a distribution, got Tensor"),
        (of(lambda loc: Normal((loc - loc).abs().sqrt(), 1.0)), "must have finite gradients"),
        (Blank(), "must let gradients reach its outputs"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_broken_likelihood_is_caught(likelihood, told):
    with pytest.raises(AssertionError, match=told):
        check_likelihood(likelihood)
