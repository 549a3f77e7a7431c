"""Suites that your own class can run: the same that our own classes pass."""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Laplace, MultivariateNormal, Normal

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.estimators import Exact, MonteCarlo
from bayesdiv.divergence.quadrature import Quadrature
from bayesdiv.model.posteriors.base import Posterior, PosteriorFor
from bayesdiv.predictive import Predictive

Pair = tuple[Distribution, Distribution]


def _default_pairs() -> list[Pair]:
    def made(family: type[Normal | Laplace], *parameters: float) -> Distribution:
        return family(*torch.tensor(parameters, dtype=torch.float64))

    return [
        (made(Normal, 0.5, 0.8), made(Normal, 0.0, 1.0)),
        (made(Normal, 0.0, 1.2), made(Normal, 0.3, 1.0)),
        (made(Normal, -0.1, 0.2), made(Normal, 0.0, 1.0)),
        (made(Normal, 0.2, 0.9), made(Laplace, 0.0, 0.7)),
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
        samples: Monte Carlo draws per pair.

    Examples:
        >>> from bayesdiv import JSA
        >>> check_divergence(JSA(alpha=0.3))
    """
    for q, p in _default_pairs() if pairs is None else pairs:
        exact = closed_form.find(divergence, q, p) is not None
        _check_value(divergence, q, p, exact)
        _check_samples(divergence, q, p, samples)
        _check_gradient(divergence, q, p, exact)


def _require(holds: bool, subject: object, what: str) -> None:
    if not holds:
        raise AssertionError(f"{subject} {what}")


def _name(q: Distribution, p: Distribution) -> str:
    return f"for {q} against {p}"


def _check_value(divergence: Divergence, q: Distribution, p: Distribution, exact: bool) -> None:
    """Zero, positive, bounded and symmetric by dense integration, as by the closed form."""
    measure = Quadrature()
    value, own = measure(divergence, q, p).item(), measure(divergence, q, q).item()
    _require(abs(own) < 1e-9, divergence, f"must be 0 for equal distributions, got {own} for {q}")
    _require(value > -1e-9, divergence, f"must not be negative, got {value} {_name(q, p)}")
    bound = math.inf if divergence.bound is None else divergence.bound
    _require(value <= bound + 1e-9, divergence, f"exceeds its bound {bound}: {value} {_name(q, p)}")
    if divergence.symmetric:
        back = measure(divergence, p, q).item()
        told = f"claims to be symmetric, got {value} {_name(q, p)} and {back} the other way round"
        _require(math.isclose(value, back, rel_tol=1e-7, abs_tol=1e-9), divergence, told)
    if exact:
        own = Exact()(divergence, q, p).item()
        told = f"has a closed form that gives {own} {_name(q, p)}, integration gives {value}"
        _require(math.isclose(value, own, rel_tol=1e-5, abs_tol=1e-6), divergence, told)


def _check_samples(divergence: Divergence, q: Distribution, p: Distribution, samples: int) -> None:
    dense = Quadrature()(divergence, q, p).item()
    if math.isinf(dense):
        return
    # Independent groups show the spread, whatever the formula does with its points.
    groups = 20
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        estimator = MonteCarlo(max(1000, samples // groups))
        values = torch.stack([estimator(divergence, q, p) for _ in range(groups)])
    error, mean = values.std().item() / math.sqrt(groups), values.mean().item()
    # The logarithm of a mean is biased by about half its relative variance.
    allowance = 5 * error + 1e-9 + (0.0 if divergence.linear else 0.5 * values.var().item() * 10)
    told = f"estimated from samples is {mean} ± {error} {_name(q, p)}, integration gives {dense}"
    _require(abs(mean - dense) <= allowance, divergence, told)


def _check_gradient(divergence: Divergence, q: Distribution, p: Distribution, exact: bool) -> None:
    if not isinstance(q, Normal) or math.isinf(Quadrature()(divergence, q, p).item()):
        return
    dense = _gradient(divergence, q, p, Quadrature())
    _require(bool(dense.isfinite().all()), divergence, f"has a gradient of {dense} {_name(q, p)}")
    if exact:
        own = _gradient(divergence, q, p, Exact())
        told = f"has a closed form with gradient {own.tolist()} {_name(q, p)}, integration gives "
        same = torch.allclose(own, dense, rtol=1e-4, atol=1e-4)
        _require(same, divergence, f"{told}{dense.tolist()}")


def _gradient(
    divergence: Divergence, q: Normal, p: Distribution, estimator: Exact | Quadrature
) -> Tensor:
    loc, scale = (x.detach().clone().requires_grad_() for x in (q.loc, q.scale))
    value = estimator(divergence, Normal(loc, scale), p).sum()
    if not value.requires_grad:  # such as Renyi(0), which does not depend on q at all
        return torch.zeros(2, dtype=loc.dtype)
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
        _check_shapes(make)
        _check_dtypes(make)
        _check_draws(make, _bent(make))
        one, other = _bent(make), _bent(make)
        _module(other).load_state_dict(_module(one).state_dict())
        told = "must have all that its draws depend on in its state dict"
        _require(_same_draws(one, other), make, told)
        _check_density(make, _bent(make), samples)


_WEIGHTS, _TRIALS = 3, 2


def _made(make: PosteriorFor, dtype: torch.dtype = torch.float64, *trials: int) -> Posterior:
    loc = torch.linspace(-0.3, 0.3, _WEIGHTS, dtype=torch.float64).expand(*trials, _WEIGHTS)
    scale = torch.linspace(0.5, 1.0, _WEIGHTS, dtype=torch.float64)
    return cast(Posterior, make(loc.to(dtype), scale.to(dtype)))


def _bent(make: PosteriorFor) -> Posterior:
    """A posterior away from its start, where all parameters matter."""
    posterior = _made(make)
    with torch.no_grad():
        for parameter in _module(posterior).parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return posterior


def _module(posterior: Posterior) -> nn.Module:
    return cast(nn.Module, posterior)


def _same_draws(one: Posterior, other: Posterior) -> bool:
    seed = torch.tensor(7)
    return torch.equal(one.rsample(4, seed=seed), other.rsample(4, seed=seed))


def _check_shapes(make: PosteriorFor) -> None:
    for trials in ((), (_TRIALS,)):
        posterior = _made(make, torch.float64, *trials)
        drawn, wanted = posterior.rsample(4), (4, *trials, _WEIGHTS)
        _require_shape(make, "rsample(4)", drawn, wanted)
        _require_shape(make, "mean", posterior.mean, wanted[1:])
        density = _density(posterior, drawn)
        if density is not None:
            _require_shape(make, "log_prob", density, wanted[:-1])
        event = tuple(posterior.distribution().event_shape)
        right = () if posterior.marginals() is not None else (_WEIGHTS,)
        told = f"must give a distribution() of event shape {right}, got {event}"
        _require(event == right, make, told)


def _require_shape(subject: object, name: str, value: Tensor, wanted: tuple[int, ...]) -> None:
    shape = tuple(value.shape)
    _require(shape == wanted, subject, f"must give {name} of shape {wanted}, got {shape}")


def _density(posterior: Posterior, weights: Tensor) -> Tensor | None:
    """The log density, or None where there is none: of points."""
    try:
        density = posterior.log_prob(weights)
    except ValueError:
        return None
    spread = posterior.rsample(8).detach().std(0)
    return density if bool((spread > 0).any()) else None


def _check_dtypes(make: PosteriorFor) -> None:
    for given, wanted in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        posterior = _made(make, given)
        found = {parameter.dtype for parameter in _module(posterior).parameters()}
        told = f"must have parameters of {wanted} for means of {given}, got {found}"
        _require(found == {wanted}, make, told)
        drawn = posterior.rsample(2, torch.bfloat16).dtype
        _require(drawn == torch.bfloat16, make, f"must draw in the dtype asked for, got {drawn}")


def _check_draws(make: PosteriorFor, posterior: Posterior) -> None:
    """Seeds, and gradients by the parameters against small differences along a random line."""
    seed, step = torch.tensor(7), 1e-5
    told = "must draw the same weights for the same seed"
    _require(_same_draws(posterior, posterior), make, told)
    parameters = list(_module(posterior).parameters())
    directions = [torch.randn_like(parameter) for parameter in parameters]
    share = torch.randn(4, _WEIGHTS, dtype=torch.float64)

    def moved(by: float) -> Tensor:
        with torch.no_grad():
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.add_(by * direction)
        return (share * posterior.rsample(4, seed=seed)).sum()

    value = moved(0.0)
    _require(value.requires_grad, make, "must let gradients through its draws")
    gradients = torch.autograd.grad(value, parameters, materialize_grads=True)
    slope = sum((g * d).sum().item() for g, d in zip(gradients, directions, strict=True))
    rise = (moved(step) - moved(-2 * step)).item() / (2 * step)
    moved(step)
    told = f"must have the gradient of its draws, got a slope of {slope} for a rise of {rise}"
    _require(math.isclose(slope, rise, rel_tol=1e-4, abs_tol=1e-4), make, told)


def _check_density(make: PosteriorFor, posterior: Posterior, samples: int) -> None:
    drawn = posterior.rsample(samples).detach()
    density = _density(posterior, drawn)
    if density is None:
        return
    density = density.detach()
    # A Gaussian within the draws: what it weighs in them must be 1 in the mean.
    narrower = MultivariateNormal(drawn.mean(0), 0.5 * drawn.T.cov())
    _require_one(make, "log_prob", narrower.log_prob(drawn) - density)
    joint, marginals = posterior.distribution().log_prob(drawn).detach(), posterior.marginals()
    joint = joint if marginals is None else joint.sum(-1)
    told = "must have the same density in log_prob and in distribution()"
    _require(torch.allclose(joint, density, rtol=1e-6, atol=1e-6), make, told)
    if marginals is not None:
        _check_marginals(make, marginals, drawn)


def _require_one(subject: object, name: str, log_weights: Tensor) -> None:
    """Whether the weights of importance sampling have mean 1, as those of a density do."""
    weights = log_weights.exp()
    mean, error = weights.mean().item(), weights.std().item() / math.sqrt(len(weights))
    told = f"must have the density of its draws in {name}: its integral is {mean} ± {error}, not 1"
    _require(abs(mean - 1) <= 5 * error + 1e-9, subject, told)


def _check_marginals(make: PosteriorFor, marginals: Distribution, drawn: Tensor) -> None:
    root = math.sqrt(len(drawn))
    scale = marginals.stddev
    away = ((drawn.mean(0) - marginals.mean) / scale).abs().max().item()
    _require(away < 5 / root, make, f"has marginals whose mean is {away} scales off its draws'")
    ratio = (drawn.std(0) / scale).log().abs().max().item()
    _require(ratio < 10 / root, make, f"has marginals whose scale is e^{ratio} times its draws'")
    tied = (drawn.T.corrcoef() - torch.eye(_WEIGHTS, dtype=drawn.dtype)).abs().max().item()
    told = f"must return None for marginals() of weights that move together: they do, by {tied}"
    _require(tied < 6 / root, make, told)


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
        shape = tuple(cast(Distribution, conditional).batch_shape)
        told = f"must return batch shape (4, 5) for outputs of 4 draws and 5 rows, got {shape}"
        _require(shape == (4, 5), likelihood, told)
        _check_targets(likelihood, conditional, given)
        predictive = Predictive(conditional)
        drawn = predictive.sample(samples)
        if predictive.discrete:
            _check_classes(likelihood, predictive, drawn)
        else:
            _check_numbers(likelihood, predictive, drawn)


def _check_targets(likelihood: nn.Module, conditional: Distribution, outputs: Tensor) -> None:
    y = conditional.sample()[0]
    density = conditional.log_prob(y)
    _require(bool(density.isfinite().all()), likelihood, f"must have a finite density at {y[0]}")
    learned = [outputs, *(p for p in likelihood.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(density.sum(), learned, materialize_grads=True)
    finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
    _require(finite, likelihood, "must have finite gradients by its outputs and parameters")
    reached = bool(gradients[0].abs().sum() > 0)
    _require(reached, likelihood, "must let gradients reach its outputs")


def _check_classes(likelihood: nn.Module, predictive: Predictive, drawn: Tensor) -> None:
    classes = predictive.probabilities.shape[-1]
    shares = predictive.probabilities.detach()
    counted = nn.functional.one_hot(drawn.long(), classes).double().mean(0)
    error = (shares * (1 - shares) / len(drawn)).sqrt() + 1e-4
    told = "must have class probabilities that are the shares of its samples"
    _require(bool(((counted - shares).abs() < 6 * error).all()), likelihood, told)
    told = "must have the logarithm of its class probabilities as its density"
    for label in range(classes):
        density = predictive.log_prob(torch.full(drawn.shape[1:], label)).exp()
        _require(torch.allclose(density, shares[..., label], atol=1e-4), likelihood, told)


def _check_numbers(likelihood: nn.Module, predictive: Predictive, drawn: Tensor) -> None:
    root = math.sqrt(len(drawn))
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
        least, most = level - 0.01, 1.0 if _counts(predictive) else level + 0.01
        told = f"must have {level:.0%} of its samples in that interval, got {share:.1%}"
        _require(least <= share <= most, likelihood, told)
    _check_integral(likelihood, predictive, drawn)


def _counts(predictive: Predictive) -> bool:
    return bool(getattr(predictive.conditional.support, "is_discrete", False))


def _check_integral(likelihood: nn.Module, predictive: Predictive, drawn: Tensor) -> None:
    """The density against the samples: weighted to be even over an interval they have mean 1."""
    low, high = (end.detach() for end in predictive.interval(0.8))
    width = high - low + (1 if _counts(predictive) else 0)
    inside = (low <= drawn) & (drawn <= high)
    density = torch.stack([predictive.log_prob(y) for y in drawn[:2000]]).detach()
    log_even = torch.where(inside[:2000], -width.log(), -math.inf)
    events = tuple(range(density.dim(), log_even.dim()))
    log_even = log_even.sum(events) if events else log_even
    _require_one(likelihood, "log_prob", (log_even - density).flatten())
