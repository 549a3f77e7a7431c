"""Suites that your own class can run: the same that our own classes pass."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Laplace, MultivariateNormal, Normal

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Estimator
from bayesdiv.divergence.estimators import Exact, MonteCarlo
from bayesdiv.divergence.quadrature import Quadrature
from bayesdiv.model.posteriors.base import PosteriorFor
from bayesdiv.predictive import Predictive

Pair = tuple[Distribution, Distribution]
_GROUPS = 20  # of samples, whose spread is the error of their mean
_WEIGHTS, _TRIALS = 3, 2


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
        samples: Monte Carlo draws per pair.

    Examples:
        >>> from bayesdiv import JSA
        >>> check_divergence(JSA(alpha=0.3))
    """
    if pairs is None:
        loc, scale, unit, off = torch.tensor(
            [[0.5, 0.0, -0.1, 0.2], [0.8, 1.2, 0.2, 0.9], [1.0, 1.0, 1.0, 0.7], [0.0, 0.3, 0, 0]]
        ).double()
        priors = [*map(Normal, off[:3], unit[:3]), Laplace(off[3], unit[3])]
        pairs = list(zip(map(Normal, loc, scale), priors, strict=True))
    for q, p in pairs:
        dense = _check_value(divergence, q, p)
        if math.isfinite(dense):
            _check_samples(divergence, q, p, dense, samples)
            if isinstance(q, Normal):
                _check_gradient(divergence, q, p)


def _require(holds: bool | Tensor, subject: object, what: str) -> None:
    if not bool(holds):
        raise AssertionError(f"{subject} {what}")


def _check_value(divergence: Divergence, q: Distribution, p: Distribution) -> float:
    """Zero, positive, bounded and symmetric by dense integration, as by the closed form."""
    measure, pair = Quadrature(), f"for {q} against {p}"
    value, own = measure(divergence, q, p).item(), measure(divergence, q, q).item()
    _require(abs(own) < 1e-9, divergence, f"must be 0 for equal distributions, got {own} for {q}")
    _require(value > -1e-9, divergence, f"must not be negative, got {value} {pair}")
    bound = math.inf if divergence.bound is None else divergence.bound
    _require(value <= bound + 1e-9, divergence, f"exceeds its bound {bound}: {value} {pair}")
    if divergence.symmetric:
        back = measure(divergence, p, q).item()
        told = f"claims to be symmetric, got {value} {pair} and {back} the other way round"
        _require(math.isclose(value, back, rel_tol=1e-7, abs_tol=1e-9), divergence, told)
    if closed_form.find(divergence, q, p) is not None:
        own = Exact()(divergence, q, p).item()
        told = f"has a closed form that gives {own} {pair}, integration gives {value}"
        _require(math.isclose(value, own, rel_tol=1e-5, abs_tol=1e-6), divergence, told)
    return value


def _check_samples(
    divergence: Divergence, q: Distribution, p: Distribution, dense: float, samples: int
) -> None:
    # Independent groups show the spread, whatever the formula does with its points.
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        estimator = MonteCarlo(max(1000, samples // _GROUPS))
        values = torch.stack([estimator(divergence, q, p) for _ in range(_GROUPS)])
    error, mean = values.std().item() / math.sqrt(_GROUPS), values.mean().item()
    # The logarithm of a mean is biased by about half its relative variance.
    allowance = 5 * error + 1e-9 + (0.0 if divergence.linear else 5 * values.var().item())
    told = f"estimated from samples is {mean} ± {error} for {q} against {p}"
    _require(abs(mean - dense) <= allowance, divergence, f"{told}, integration gives {dense}")


def _check_gradient(divergence: Divergence, q: Normal, p: Distribution) -> None:
    dense = _gradient(divergence, q, p, Quadrature())
    pair = f"for {q} against {p}"
    _require(dense.isfinite().all(), divergence, f"has a gradient of {dense} {pair}")
    if closed_form.find(divergence, q, p) is not None:
        own = _gradient(divergence, q, p, Exact())
        told = f"has a closed form with gradient {own.tolist()} {pair}, integration gives "
        same = torch.allclose(own, dense, rtol=1e-4, atol=1e-4)
        _require(same, divergence, f"{told}{dense.tolist()}")


def _gradient(divergence: Divergence, q: Normal, p: Distribution, estimator: Estimator) -> Tensor:
    loc, scale = (x.detach().clone().requires_grad_() for x in (q.loc, q.scale))
    value = estimator(divergence, Normal(loc, scale), p).sum()
    value = value + 0 * loc  # such as Renyi(0), which does not depend on q at all
    return torch.stack(torch.autograd.grad(value, (loc, scale), materialize_grads=True))


def check_posterior(make: PosteriorFor, *, samples: int = 40_000) -> None:
    """Raise an AssertionError, in one sentence, unless `make` makes posteriors that keep to theirs.

    The contract is `bayesdiv.model.posteriors.base.Posterior`. Checked are the shapes, of trials
    too; dtypes, single precision at least; that a seed repeats the draws; that gradients reach all
    parameters through the draws and are those of small differences; that `log_prob` is the density
    of the draws; that marginals have the moments of the draws, and weights that do not depend on
    each other; that the state dict holds all of it.

    A point, whose draws are all alike, has no density to check; nor has a posterior whose
    `log_prob` raises a ValueError.

    Args:
        make: from means and scales of the weights to a posterior, such as `MeanField` or
            `LowRank(rank=3)`.
        samples: draws for the checks of moments and density.

    Examples:
        >>> from bayesdiv import MeanField
        >>> check_posterior(MeanField)
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for trials in ((), (_TRIALS,)):
            _check_shapes(make, *trials)
        for given, wanted in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
            posterior = _made(make, given)
            found = {parameter.dtype for parameter in posterior.parameters()}
            told = f"must have parameters of {wanted} for means of {given}, got {found}"
            _require(found == {wanted}, make, told)
            drawn = posterior.rsample(2, torch.bfloat16).dtype
            told = f"must draw in the dtype asked for, got {drawn}"
            _require(drawn == torch.bfloat16, make, told)
        _check_draws(make, _bent(make))
        one, other = _bent(make), _bent(make)
        other.load_state_dict(one.state_dict())
        told = "must have all that its draws depend on in its state dict"
        _require(_same_draws(one, other), make, told)
        _check_density(make, _bent(make), samples)


def _made(make: PosteriorFor, dtype: torch.dtype = torch.float64, *trials: int) -> Any:
    """A posterior, which is both a module and what the contract says."""
    loc = torch.linspace(-0.3, 0.3, _WEIGHTS, dtype=torch.float64).expand(*trials, _WEIGHTS)
    scale = torch.linspace(0.5, 1.0, _WEIGHTS, dtype=torch.float64)
    return make(loc.to(dtype), scale.to(dtype))


def _bent(make: PosteriorFor) -> Any:
    """A posterior away from its start, where all parameters matter."""
    posterior = _made(make)
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return posterior


def _same_draws(one: Any, other: Any) -> bool:
    seed = torch.tensor(7)
    return torch.equal(one.rsample(4, seed=seed), other.rsample(4, seed=seed))


def _check_shapes(make: PosteriorFor, *trials: int) -> None:
    posterior = _made(make, torch.float64, *trials)
    drawn, wanted = posterior.rsample(4), (4, *trials, _WEIGHTS)

    def shaped(name: str, value: Tensor | None, right: tuple[int, ...]) -> None:
        shape = right if value is None else tuple(value.shape)
        _require(shape == right, make, f"must give {name} of shape {right}, got {shape}")

    shaped("rsample(4)", drawn, wanted)
    shaped("mean", posterior.mean, wanted[1:])
    shaped("log_prob", _density(posterior, drawn), wanted[:-1])
    event = tuple(posterior.distribution().event_shape)
    right = () if posterior.marginals() is not None else (_WEIGHTS,)
    told = f"must give a distribution() of event shape {right}, got {event}"
    _require(event == right, make, told)


def _density(posterior: Any, weights: Tensor) -> Tensor | None:
    """The log density, or None where there is none: of points."""
    try:
        density: Tensor = posterior.log_prob(weights)
    except ValueError:
        return None
    spread = posterior.rsample(8).detach().std(0)
    return density if bool((spread > 0).any()) else None


def _check_draws(make: PosteriorFor, posterior: Any) -> None:
    """Seeds, and gradients by the parameters against small differences along a random line."""
    seed, step = torch.tensor(7), 1e-5
    told = "must draw the same weights for the same seed"
    _require(_same_draws(posterior, posterior), make, told)
    parameters = list(posterior.parameters())
    directions = [torch.randn_like(parameter) for parameter in parameters]
    share = torch.randn(4, _WEIGHTS, dtype=torch.float64)

    def moved(by: float) -> Tensor:
        with torch.no_grad():
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.add_(by * direction)
        total: Tensor = (share * posterior.rsample(4, seed=seed)).sum()
        return total

    value = moved(0.0)
    _require(value.requires_grad, make, "must let gradients through its draws")
    gradients = torch.autograd.grad(value, parameters, materialize_grads=True)
    slope = sum((g * d).sum().item() for g, d in zip(gradients, directions, strict=True))
    rise = (moved(step) - moved(-2 * step)).item() / (2 * step)
    told = f"must have the gradient of its draws, got a slope of {slope} for a rise of {rise}"
    _require(math.isclose(slope, rise, rel_tol=1e-4, abs_tol=1e-4), make, told)


def _check_density(make: PosteriorFor, posterior: Any, samples: int) -> None:
    drawn = posterior.rsample(samples).detach()
    density = _density(posterior, drawn)
    if density is None:
        return
    density = density.detach()
    # A Gaussian within the draws: what it weighs in them must be 1 in the mean.
    narrower = MultivariateNormal(drawn.mean(0), 0.5 * drawn.T.cov())
    _require_one(make, narrower.log_prob(drawn) - density)
    joint, marginals = posterior.distribution().log_prob(drawn).detach(), posterior.marginals()
    joint = joint if marginals is None else joint.sum(-1)
    told = "must have the same density in log_prob and in distribution()"
    _require(torch.allclose(joint, density, rtol=1e-6, atol=1e-6), make, told)
    if marginals is None:
        return
    root, scale = math.sqrt(samples), marginals.stddev
    away = ((drawn.mean(0) - marginals.mean) / scale).abs().max().item()
    _require(away < 5 / root, make, f"has marginals whose mean is {away} scales off its draws'")
    ratio = (drawn.std(0) / scale).log().abs().max().item()
    _require(ratio < 10 / root, make, f"has marginals whose scale is e^{ratio} times its draws'")
    tied = (drawn.T.corrcoef() - torch.eye(_WEIGHTS, dtype=drawn.dtype)).abs().max().item()
    told = f"must return None for marginals() of weights that move together: they do, by {tied}"
    _require(tied < 6 / root, make, told)


def _require_one(subject: object, log_weights: Tensor) -> None:
    """Whether the weights of importance sampling have mean 1, as those of a density do."""
    weights = log_weights.exp()
    mean, error = weights.mean().item(), weights.std().item() / math.sqrt(len(weights))
    told = f"must have the density of its draws in log_prob: its integral is {mean} ± {error}"
    _require(abs(mean - 1) <= 5 * error + 1e-9, subject, f"{told}, not 1")


def check_likelihood(likelihood: nn.Module, outputs: int = 1, *, samples: int = 20_000) -> None:
    """Raise an AssertionError, in one sentence, unless `likelihood` keeps what it promises.

    From outputs (draws, rows, outputs) it must make a distribution of the targets, (draws, rows);
    density and gradients must be finite at targets of its own; mean, variance, intervals or class
    probabilities must agree with samples, and the density must be that of the samples.

    Args:
        likelihood: a module from outputs to a torch distribution, such as `Gaussian()`.
        outputs: how many numbers the network gives.
        samples: targets drawn per row.

    Examples:
        >>> from bayesdiv import Poisson
        >>> check_likelihood(Poisson())
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        given = torch.randn(4, 5, outputs, requires_grad=True)
        conditional = likelihood(given)
        told = f"must return a distribution, got {type(conditional).__name__}"
        _require(isinstance(conditional, Distribution), likelihood, told)
        shape = tuple(conditional.batch_shape)
        told = f"must return batch shape (4, 5) for outputs of 4 draws and 5 rows, got {shape}"
        _require(shape == (4, 5), likelihood, told)
        _check_targets(likelihood, conditional, given)
        predictive = Predictive(conditional)
        check = _check_classes if predictive.discrete else _check_numbers
        check(likelihood, predictive, predictive.sample(samples))


def _check_targets(likelihood: nn.Module, conditional: Distribution, outputs: Tensor) -> None:
    y = conditional.sample()[0]
    density = conditional.log_prob(y)
    _require(density.isfinite().all(), likelihood, f"must have a finite density at {y[0]}")
    learned = [outputs, *(p for p in likelihood.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(density.sum(), learned, materialize_grads=True)
    finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
    _require(finite, likelihood, "must have finite gradients by its outputs and parameters")
    _require(gradients[0].abs().sum() > 0, likelihood, "must let gradients reach its outputs")


def _check_classes(likelihood: nn.Module, predictive: Predictive, drawn: Tensor) -> None:
    classes = predictive.probabilities.shape[-1]
    shares = predictive.probabilities.detach()
    counted = nn.functional.one_hot(drawn.long(), classes).double().mean(0)
    error = (shares * (1 - shares) / len(drawn)).sqrt() + 1e-4
    told = "must have class probabilities that are the shares of its samples"
    _require(((counted - shares).abs() < 6 * error).all(), likelihood, told)
    told = "must have the logarithm of its class probabilities as its density"
    for label in range(classes):
        density = predictive.log_prob(torch.full(drawn.shape[1:], label)).exp()
        _require(torch.allclose(density, shares[..., label], atol=1e-4), likelihood, told)


def _check_numbers(likelihood: nn.Module, predictive: Predictive, drawn: Tensor) -> None:
    root, counts = math.sqrt(len(drawn)), getattr(predictive.conditional.support, "is_discrete", 0)
    mean, variance = predictive.mean.detach(), predictive.variance.detach()
    if bool(variance.isfinite().all()):
        away = ((drawn.mean(0) - mean) / variance.sqrt()).abs().max().item()
        _require(away < 6 / root, likelihood, f"has a mean that is {away} scales off its samples'")
        fourth = (drawn - mean).square().std(0) / root
        off = ((drawn.var(0) - variance).abs() / fourth).max().item()
        _require(off < 12, likelihood, f"has a variance that is {off} errors off its samples'")
    for level in (0.5, 0.9):
        low, high = predictive.interval(level)
        share = ((low <= drawn) & (drawn <= high)).double().mean().item()
        least, most = level - 0.01, 1.0 if counts else level + 0.01
        told = f"must have {level:.0%} of its samples in that interval, got {share:.1%}"
        _require(least <= share <= most, likelihood, told)
    # The density against the samples: weighted to be even over an interval they have mean 1.
    low, high = (end.detach() for end in predictive.interval(0.8))
    some, width = drawn[:2000], high - low + (1 if counts else 0)
    density = torch.stack([predictive.log_prob(y) for y in some]).detach()
    log_even = torch.where((low <= some) & (some <= high), -width.log(), -math.inf)
    _require_one(likelihood, (log_even.reshape(*density.shape, -1).sum(-1) - density).flatten())
